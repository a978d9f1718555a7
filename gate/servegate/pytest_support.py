"""What the `servegate` fixture does once a test uses it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pytest
from rich.table import Table
from rich.text import Text

from servegate import pytest_timing as timing
from servegate.errors import ServegateError, UsageError
from servegate.pytest_plugin import MARKER, PROPERTY
from servegate.render import terminal
from servegate.render.escape import clean
from servegate.suite.schema import Rule
from servegate.verdict import Outcome, State, Verdict
from servegate.wording import count

P = ParamSpec("P")
T = TypeVar("T")

Tolerance = str | float | None


class Gate:
    """The fixture. Every call judges at once, inside the test: so reports, `--lf` and xfail are right."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._item: pytest.Item = request.node
        self._root: Path = request.config.rootpath
        self._updating = bool(request.config.getoption("servegate_update"))
        self._workers = int(getattr(request.config, "workerinput", {}).get("workercount", 1))
        self._timed: set[str] = set()

    def __call__(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Time ``fn(*args, **kwargs)``, judge its median time, return the value of the last call."""
        return self._judge("call", lambda: fn(*args, **kwargs), timing.ROUNDS, tolerance(self._item))

    def measure(
        self,
        fn: Callable[..., T],
        /,
        *args: Any,
        name: str = "call",
        rounds: int = timing.ROUNDS,
        change: Tolerance = None,
        floor: Tolerance = None,
    ) -> T:
        """The same with a name (a test that times twice needs two), rounds and tolerances of its own."""
        with _readable():
            rule = tolerance(self._item, change, floor)
        return self._judge(name, lambda: fn(*args), rounds, rule)

    def check(
        self, suite: str | os.PathLike[str], baselines: str | os.PathLike[str] | None = None
    ) -> Verdict | None:
        """Measure a suite and judge it by its baselines. Paths are relative to pytest's root directory.

        Returns the verdict where it is a pass; the test fails otherwise. With ``--servegate-update`` the
        baselines are written instead, and there is no verdict.
        """
        from servegate import pipeline
        from servegate.suite.loading import load_suite

        path = self._root / suite
        stored = self._root / baselines if baselines is not None else None
        out = self._root / "servegate-out" / timing.file_name(self._item.nodeid)
        with _readable():
            loaded = load_suite(path).suite
            if any(workload.numerics == "native" for workload in loaded.workloads.values()):
                self._refuse_company(f"suite {loaded.name} measures time")
            if self._updating:
                done = pipeline.update_baselines(path, stored, progress=_silent)
                self._note(loaded.name, "updated", count(len(done.changes), "change"))
                return None
            result = pipeline.check(path, stored, out, _silent)
        if not result.record.complete:
            raise KeyboardInterrupt  # the pipeline kept what was measured; pytest has to hear of it too
        verdict = result.verdict
        shown = terminal.Next(suite=str(suite), verdict=str((out / "verdict.json").relative_to(self._root)))
        self._conclude(loaded.name, verdict, terminal.render(verdict, follow=shown))
        return verdict

    def _judge(self, name: str, call: Callable[[], T], rounds: int, rule: Rule) -> T:
        self._refuse_company(f"{name!r} is timed")
        if name in self._timed:
            pytest.fail(f"servegate: {name!r} is timed twice in one test: give one a name=", pytrace=False)
        self._timed.add(name)
        store = timing.Store(self._root, self._item.nodeid)
        with _readable():
            base = store.read()
            timing.require_rounds(rounds)
        value, sample = timing.timed(call, rounds)
        verdict = timing.verdict(name, rule, base, store.facts(name, sample))
        if self._updating:
            with _readable():
                store.write(name, sample)
            self._note(name, "updated", timing.old_to_new(verdict))
        else:
            self._conclude_timing(name, verdict, store)
        return value

    def _conclude_timing(self, name: str, verdict: Verdict, store: timing.Store) -> None:
        state = verdict.comparison.rows[0].state
        text = terminal.render(verdict)
        if state is State.NOT_COMPARABLE:
            # Nothing can be said here, which pytest calls a skip: neither green nor red.
            self._note(name, state.value, verdict.headline)
            pytest.skip(verdict.headline)
        if state is State.NEW:
            text += (
                f"no baseline of {name!r} in {store.path}: run `pytest --servegate-update` and commit it\n"
            )
        self._conclude(name, verdict, text)

    def _conclude(self, name: str, verdict: Verdict, text: str) -> None:
        """Go on after a pass only."""
        self._note(name, verdict.outcome.value, verdict.headline)
        if verdict.outcome is not Outcome.PASS:
            pytest.fail(text, pytrace=False)

    def _refuse_company(self, what: str) -> None:
        if self._workers > 1:
            pytest.fail(
                f"servegate: {what}, and {self._workers} xdist workers share this machine: "
                "run this test with `-n 0`",
                pytrace=False,
            )

    def _note(self, name: str, verdict: str, seen: str) -> None:
        note = {"test": self._item.nodeid, "name": name, "verdict": verdict, "seen": seen}
        self._item.user_properties.append((PROPERTY, json.dumps(note)))


def tolerance(item: pytest.Item, change: Tolerance = None, floor: Tolerance = None) -> Rule:
    """What the call says, else what the test's marker says. UsageError where one says what it cannot."""
    marker = item.get_closest_marker(MARKER)
    given = dict(marker.kwargs) if marker else {}
    unknown = sorted(given.keys() - {"change", "floor"})
    if marker and (marker.args or unknown):
        what = unknown[0] if unknown else repr(marker.args[0])
        raise UsageError(f"marker servegate takes change= and floor=, not {what}")
    return timing.tolerance(
        given.get("change") if change is None else change, given.get("floor") if floor is None else floor
    )


def validate_markers(items: Sequence[pytest.Item]) -> None:
    """Before the first test runs, so that a typing mistake does not cost a measurement."""
    for item in items:
        try:
            tolerance(item)
        except UsageError as error:
            raise pytest.UsageError(f"{item.nodeid}: {error}") from None


def summary(notes: Sequence[dict[str, str]], style: terminal.Style) -> str:
    """The table at the end of the run, and what to do with written baselines."""
    console = terminal.console_for(style)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("test", "judged", "verdict", "seen"):
        table.add_column(heading, overflow="fold")
    for note in notes:
        table.add_row(*(Text(clean(note[key])) for key in ("test", "name", "verdict", "seen")))
    console.print(table)
    updated = sum(note["verdict"] == "updated" for note in notes)
    if updated:
        console.print(Text(f"{count(updated, 'baseline')} written; review them with `git diff baselines/`"))
    return terminal.finished(console)


@contextmanager
def _readable() -> Iterator[None]:
    """A fault that a person is meant to read fails the test with its message and no traceback."""
    try:
        yield
    except ServegateError as error:
        pytest.fail(clean(str(error), 2000), pytrace=False)


def _silent(stage: str, done: int, total: int) -> None:
    """pytest shows its own progress."""
