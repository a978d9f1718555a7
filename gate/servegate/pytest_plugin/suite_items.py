"""A suite file as pytest sees it: one test item for each row that gates, and one for the rest.

Reading the suite is all that collecting does. The first item that runs measures; the others share it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from servegate.basecommit import suite_at
from servegate.errors import ServegateError, UsageError
from servegate.pytest_plugin.expected import OTHERS, gating_rows, item_name
from servegate.pytest_plugin.measuring import SuiteRun, run_once
from servegate.pytest_plugin.notes import UPDATED, note, readable, shown
from servegate.pytest_plugin.session import session_of
from servegate.render import terminal
from servegate.render.escape import clean
from servegate.suite.loading import load_suite
from servegate.suite.schema import Policy, Suite
from servegate.verdict import Outcome, Row, State, Verdict, decide


class SuiteFile(pytest.File):
    policy: Policy
    names: tuple[str, ...] = ()
    """Of its items."""

    def collect(self) -> Iterator[pytest.Item]:
        try:
            suite = load_suite(self.path).suite
            judging = self._judging(suite)
        except ServegateError as error:
            raise self.CollectError(clean(shown(str(error)), 2000)) from None
        self.policy = judging.policy
        self.names = (*gating_rows(judging, suite.workloads), OTHERS)
        for name in self.names:
            yield RowItem.from_parent(self, name=name)

    def _judging(self, suite: Suite) -> Suite:
        base = session_of(self.config).base
        return (suite_at(base, self.path) if base is not None else None) or suite


class RowItem(pytest.Item):
    parent: SuiteFile

    def runtest(self) -> None:
        session = session_of(self.config)
        with readable():
            if session.updating:
                self._refuse_part()
            run = run_once(session, self.path)
            if run.fault is not None:
                raise UsageError(run.fault)
        if run.verdict is None:
            note(self, self.name, UPDATED, "with its suite", suite=run.lines)
        elif self.name == OTHERS:
            self._conclude_others(run, run.verdict)
        else:
            self._conclude_row(run, run.verdict)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        # The heading of a failure. The bare name would be taken for a dotted path, and shown with colons.
        return self.path, None, f"{self.path.name}: {self.name}"

    def _refuse_part(self) -> None:
        """A baseline is stored whole. Rows that were not selected would be accepted unseen."""
        selected = [item for item in self.session.items if item.parent is self.parent]
        if len(selected) < len(self.parent.names):
            raise UsageError(
                f"{len(selected)} of {len(self.parent.names)} rows are selected, and a suite's baselines are "
                f"stored whole: run `pytest --servegate-update {self.path.name}`"
            )

    def _conclude_row(self, run: SuiteRun, verdict: Verdict) -> None:
        row = self._row(verdict)
        if row is None:
            why = "no such row here: it is not measured, or has nothing to be compared with"
            note(self, self.name, "no row", why, suite=run.lines)
            pytest.skip(f"{self.name}: {why}")
        note(self, self.name, row.state.value, row.reason, suite=run.lines)
        if fails(row, self.parent.policy):
            pytest.fail(_text(run, verdict, (row,), self.parent.policy), pytrace=False)
        if row.state not in (State.PASS, State.IMPROVED):
            pytest.skip(shown(f"{self.name}: {row.state.value}: {row.reason}"))

    def _row(self, verdict: Verdict) -> Row | None:
        """Or the row of a rule that found nothing in any workload, which belongs to none."""
        rows = {item_name(row): row for row in verdict.comparison.rows}
        return rows.get(self.name) or rows.get(self.name.partition(".")[2])

    def _conclude_others(self, run: SuiteRun, verdict: Verdict) -> None:
        """Fails where no row's own item does, and the suite is no pass for all that."""
        failing = [row for row in verdict.comparison.rows if fails(row, self.parent.policy)]
        covered = {*self.parent.names, *(name.partition(".")[2] for name in self.parent.names)}
        others = tuple(row for row in failing if item_name(row) not in covered)
        nothing_decided = verdict.outcome is not Outcome.PASS and not failing
        if not others and not nothing_decided:
            note(self, self.name, "pass", "nothing else fails", suite=run.lines)
            return
        note(self, self.name, verdict.outcome.value, verdict.headline, suite=run.lines)
        rows = others or verdict.comparison.rows
        pytest.fail(_text(run, verdict, rows, self.parent.policy), pytrace=False)


def fails(row: Row, policy: Policy) -> bool:
    """Is this row alone enough for the suite to be no pass?"""
    by_policy = {
        State.MISSING: policy.missing,
        State.NOT_COMPARABLE: policy.not_comparable,
        State.INCONCLUSIVE: policy.inconclusive,
        State.REGRESSED: "fail",
        State.INVALID: "fail",
    }
    return row.gating and by_policy.get(row.state) == "fail"


def _text(run: SuiteRun, verdict: Verdict, rows: tuple[Row, ...], policy: Policy) -> str:
    """The report of these rows alone, in the suite's words."""
    part = decide(verdict.comparison.model_copy(update={"rows": rows}), policy)
    return terminal.render(shown(part), follow=run.follow)
