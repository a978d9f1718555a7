"""What a reader is told, and in which order: the one reading of a verdict that every renderer shares."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from servegate.verdict import Outcome, Row, State, Verdict
from servegate.wording import count

_FAILS = {
    Outcome.PASS: (),
    Outcome.REGRESSED: (State.REGRESSED, State.INVALID, State.MISSING),
    Outcome.FAILED: (State.INVALID,),
    Outcome.NO_DATA: (State.MISSING, State.NOT_COMPARABLE, State.NEW),
    Outcome.INCONCLUSIVE: (State.INCONCLUSIVE,),
}
_IDENTITY = (State.NEW, State.MISSING, State.RENAMED)
_MOVED = (State.REGRESSED, State.IMPROVED)
_NAMED = 6
"""Rows that a group names before it counts the others."""


@dataclass(frozen=True)
class Group:
    """Rows that share a state and a reason: the reason is said once."""

    rows: tuple[Row, ...]

    @property
    def state(self) -> State:
        return self.rows[0].state

    @property
    def reason(self) -> str:
        return self.rows[0].reason

    @property
    def named(self) -> tuple[Row, ...]:
        """The rows to name, gating ones first."""
        return tuple(sorted(self.rows, key=lambda row: not row.gating)[:_NAMED])

    @property
    def unnamed(self) -> int:
        return len(self.rows) - len(self.named)

    @property
    def names(self) -> str:
        more = f" and {self.unnamed} more" if self.unnamed else ""
        return ", ".join(name(row) for row in self.named) + more

    @property
    def detail(self) -> tuple[str, ...]:
        return self.rows[0].detail if len(self.rows) == 1 else ()


@dataclass(frozen=True)
class View:
    failing: tuple[Group, ...]
    """Why the suite does not pass."""
    table: tuple[Row, ...]
    """Failing rows first, then every other row that gates and moved or could not be judged."""
    better: tuple[Row, ...]
    """The other side of the trade, where something got worse."""
    asides: tuple[Group, ...]
    """Not judged, new, missing, renamed, edited; what is among `failing` is left out."""
    folded: int
    """Rows said nowhere: nothing moved, or no rule gates them."""
    folded_worse: int
    """Those among them that got worse."""


def view(verdict: Verdict, everything: bool = False) -> View:
    rows = verdict.comparison.rows
    failing = [row for row in rows if fails(row, verdict.outcome)]
    rest = [row for row in rows if not fails(row, verdict.outcome)]
    by_identity = {id(row): row for row in rest}
    shown = [row for row in rest if _has_values(row) and (everything or _remarkable(row))]
    asides = [row for row in rest if _is_aside(row) and (everything or _is_worth_saying(row))]
    for row in (*shown, *asides):
        by_identity.pop(id(row), None)
    folded = by_identity.values()
    worse = any(row.gating and row.state is State.REGRESSED for row in rows)
    return View(
        failing=_grouped(failing),
        table=(*filter(_has_values, failing), *shown),
        better=tuple(row for row in rows if worse and row.state is State.IMPROVED),
        asides=_grouped(asides),
        folded=len(folded),
        folded_worse=sum(row.state is State.REGRESSED for row in folded),
    )


def name(row: Row) -> str:
    """As a policy names it: ``workload.metric``."""
    return f"{row.workload}.{row.metric}" if row.workload else row.metric


def judged(row: Row) -> str:
    """The row's state in words. What no rule gates is worse or better, and never a regression."""
    if not row.gating and row.state in _MOVED:
        return "worse, no rule" if row.state is State.REGRESSED else "better, no rule"
    return row.state.value


def allowed(row: Row) -> str:
    """The rule in words, for the column that says what a row was held to."""
    return row.tolerance if row.gating else "none"


def fails(row: Row, outcome: Outcome) -> bool:
    """Is this row a reason for an outcome that is not a pass?"""
    return row.gating and row.state in _FAILS[outcome]


def folded_in_words(seen: View) -> str:
    worse = f", {seen.folded_worse} of them worse" if seen.folded_worse else ""
    return f"{count(seen.folded, 'more row')} unchanged or without a rule{worse}"


def _has_values(row: Row) -> bool:
    return row.state not in _IDENTITY and row.kind not in ("prompt", "workload")


def _remarkable(row: Row) -> bool:
    if row.state is State.PASS:
        return row.gating and row.base != row.head and row.kind != "pin"
    return row.gating


def _is_aside(row: Row) -> bool:
    return not _has_values(row) or row.state in (State.INVALID, State.INCONCLUSIVE, State.NOT_COMPARABLE)


def _is_worth_saying(row: Row) -> bool:
    """Without a rule, that something vanished or cannot be; what merely is not judged goes without saying."""
    vanished = row.state in (State.MISSING, State.RENAMED, State.INVALID)
    return row.gating or vanished or row.kind in ("prompt", "workload")


def _grouped(rows: Iterable[Row]) -> tuple[Group, ...]:
    groups: dict[tuple[State, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.state, row.reason), []).append(row)
    return tuple(Group(tuple(members)) for members in groups.values())
