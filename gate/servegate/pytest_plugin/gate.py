"""The `servegate` fixture."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import pytest

from servegate.errors import UsageError
from servegate.facts import Sample
from servegate.pytest_plugin import timing
from servegate.pytest_plugin.expected import item_name
from servegate.pytest_plugin.markers import Tolerance, tolerance
from servegate.pytest_plugin.measuring import one_at_a_time, refuse_company, run
from servegate.pytest_plugin.notes import UPDATED, note, readable, shown
from servegate.pytest_plugin.session import session_of
from servegate.render import terminal
from servegate.suite.schema import Rule
from servegate.verdict import Outcome, State, Verdict

P = ParamSpec("P")
T = TypeVar("T")


class Gate:
    """What one test judges. Its calls measure; the verdicts fall together when the test is done (`conclude`).

    ``extra_info``: what the test wants to have beside them in the report.
    """

    def __init__(self, item: pytest.Item) -> None:
        self.extra_info: dict[str, Any] = {}
        self._item = item
        self._session = session_of(item.config)
        self._judged: set[str] = set()
        self._failures: list[str] = []
        self._skips: list[str] = []
        self._writes: list[Callable[[], None]] = []
        self._notes: list[tuple[str, str, str]] = []
        self._concluded = False

    def __call__(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Time ``fn(*args, **kwargs)``, judge its median time, return the value of the last call."""
        return self._time(fn, (args, kwargs), "call", timing.Rounds(), tolerance(self._item))

    def pedantic(
        self,
        target: Callable[..., T],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        setup: Callable[[], timing.Arguments | None] | None = None,
        teardown: Callable[..., object] | None = None,
        rounds: int = timing.ROUNDS,
        warmup_rounds: int = 1,
        iterations: int = 1,
        *,
        name: str = "call",
        change: Tolerance = None,
        floor: Tolerance = None,
    ) -> T:
        """The same, told how. A test that times twice needs two names; tolerances win over the marker's.

        ``setup`` runs before each round, untimed, and may return that round's ``(args, kwargs)``.
        """
        how = timing.Rounds(rounds, warmup_rounds, iterations, setup, teardown)
        with readable():
            how.require_sense()
            rule = tolerance(self._item, change, floor)
        return self._time(target, (args, kwargs or {}), name, how, rule)

    def check(
        self, suite: str | os.PathLike[str], baselines: str | os.PathLike[str] | None = None
    ) -> Verdict | None:
        """Measure a suite and judge it by its baselines. Paths are relative to pytest's root directory.

        With ``--servegate-update`` the baselines are written instead, and there is no verdict.
        """
        root = self._session.root
        stored = root / baselines if baselines is not None else None
        with readable(), one_at_a_time():
            done = run(self._session, root / suite, stored, self._item.nodeid)
        if done.verdict is None:
            self._note(done.suite, UPDATED, "; ".join(done.changes))
            return None
        self._conclude(done.suite, done.verdict, terminal.render(shown(done.verdict), follow=done.follow))
        return done.verdict

    def judge_sample(self, name: str, rule: Rule, measured: Sample) -> None:
        """Judge a median time, whoever measured it."""
        self._claim(name)
        store = timing.Store(self._session.root, self._item.nodeid, self._session.base)
        with readable():
            base = store.read()
        verdict = timing.verdict([name], rule, base, store.facts({name: measured}))
        if self._session.updating:
            self._writes.append(lambda: store.write(name, measured))
            self._note(name, UPDATED, timing.old_to_new(verdict))
            return
        row, text = verdict.comparison.rows[0], terminal.render(verdict)
        if row.state in (State.NOT_COMPARABLE, State.INCONCLUSIVE):
            self.skip(name, verdict.headline, row.state)
            return
        if row.state is State.NEW:
            where = f"the base, {self._session.base.said}" if self._session.base else str(store.path)
            text += f"no baseline of {name!r} in {where}: run `pytest --servegate-update` and commit it\n"
        self._conclude(name, verdict, text)

    def skip(self, name: str, why: str, state: State = State.NOT_COMPARABLE) -> None:
        """Nothing can be said of it here: neither green nor red."""
        self._note(name, state.value, why)
        self._skips.append(why)

    def leave_notes(self) -> None:
        """When the test is done, in whatever way: its report says what was judged until then."""
        self._concluded = True
        for name, verdict, seen in self._notes:
            note(self._item, name, verdict, seen, extra=self.extra_info)

    def conclude(self) -> None:
        """When the test is done and did not fail itself: write its baselines, or fail by its verdicts."""
        with readable():
            for write in self._writes:
                write()
        if self._failures:
            pytest.fail("\n".join(self._failures), pytrace=False)
        if self._skips:
            pytest.skip("; ".join(self._skips))

    def _time(
        self, fn: Callable[..., T], arguments: timing.Arguments, name: str, how: timing.Rounds, rule: Rule
    ) -> T:
        with readable():
            refuse_company(self._session, f"{name!r} is timed")
        value, measured = timing.timed(fn, arguments, how)
        self.judge_sample(name, rule, measured)
        return value

    def _claim(self, name: str) -> None:
        with readable():
            if name in self._judged:
                raise UsageError(f"{name!r} is timed twice in one test: give one a name=")
            if self._concluded:
                raise UsageError(f"{name!r} is timed after the test: nothing would judge it")
        self._judged.add(name)

    def _note(self, name: str, verdict: str, seen: str) -> None:
        self._notes.append((name, verdict, seen))

    def _conclude(self, name: str, verdict: Verdict, text: str) -> None:
        self._note(name, verdict.outcome.value, verdict.headline)
        rows = verdict.comparison.rows
        values = {item_name(row): row.head for row in rows if row.head is not None}
        self._session.metrics.setdefault(self._item.nodeid, {}).update(values)
        if verdict.outcome is not Outcome.PASS:
            self._failures.append(text)
