"""What a reader is told, and in which order: the one reading of a verdict that every renderer shares."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from servegate.verdict import Outcome, Row, State, Verdict

_ALWAYS_FAILS = {State.REGRESSED, State.INVALID, State.MISSING}
_FAILS_UNDER = {
    Outcome.INCONCLUSIVE: {State.INCONCLUSIVE},
    Outcome.NO_DATA: {State.NOT_COMPARABLE, State.NEW},
}
_IDENTITY = (State.NEW, State.MISSING, State.RENAMED)
_UNDECIDED = (State.INVALID, State.INCONCLUSIVE, State.NOT_COMPARABLE)


@dataclass(frozen=True)
class Group:
    """Rows that share a state and a reason: the reason is said once."""

    state: State
    reason: str
    rows: tuple[Row, ...]

    @property
    def names(self) -> str:
        return ", ".join(name(row) for row in self.rows)


@dataclass(frozen=True)
class View:
    failing: tuple[Row, ...]
    """Why the suite does not pass."""
    table: tuple[Row, ...]
    """Failing rows first, then every other row with two values that moved or could not be judged."""
    undecided: tuple[Group, ...]
    """Rows with no verdict of their own, beside the failing ones."""
    better: tuple[Row, ...]
    """The other side of the trade, where something got worse."""
    identity: tuple[Row, ...]
    """New, missing and renamed."""
    folded: int
    """Rows that a table leaves out: nothing moved, or nobody gates on them."""


def view(verdict: Verdict, everything: bool = False) -> View:
    rows = verdict.comparison.rows
    failing = tuple(row for row in rows if fails(row, verdict.outcome))
    rest = [row for row in rows if row not in failing]
    compared = [row for row in rest if row.state not in _IDENTITY]
    shown = [row for row in compared if everything or not _unremarkable(row)]
    improved = tuple(row for row in rows if row.state is State.IMPROVED)
    return View(
        failing=failing,
        table=(*(row for row in failing if row.state not in _IDENTITY), *shown),
        undecided=_grouped(row for row in rest if row.state in _UNDECIDED),
        better=improved if any(row.state is State.REGRESSED for row in rows) else (),
        identity=tuple(row for row in rows if row.state in _IDENTITY),
        folded=len(compared) - len(shown),
    )


def name(row: Row) -> str:
    """As a policy names it: ``workload.metric``."""
    return f"{row.workload}.{row.metric}" if row.workload else row.metric


def fails(row: Row, outcome: Outcome) -> bool:
    """Is this row a reason for an outcome that is not a pass?"""
    if not row.gating or outcome is Outcome.PASS:
        return False
    return row.state in _ALWAYS_FAILS or row.state in _FAILS_UNDER.get(outcome, ())


def _unremarkable(row: Row) -> bool:
    return row.state is State.PASS and (not row.gating or row.base == row.head)


def _grouped(rows: Iterable[Row]) -> tuple[Group, ...]:
    groups: dict[tuple[State, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.state, row.reason), []).append(row)
    return tuple(Group(state, reason, tuple(members)) for (state, reason), members in groups.items())
