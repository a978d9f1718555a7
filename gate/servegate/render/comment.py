"""The verdict as a comment on a pull request: all of it where it fits, else what matters most.

It is shortened by rendering less, never by cutting text: a cut can leave a table or a `<details>` open, or
take the marker or the failing rows with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from servegate.render import commands, words
from servegate.render.escape import Markdown
from servegate.render.markdown import MARKS, environment, names
from servegate.render.view import Group, View, allowed, fails, judged, name, view
from servegate.verdict import EnvironmentChange, Outcome, Row, State, Verdict
from servegate.wording import count, percent

MAX_BYTES: Final = 60_000
"""GitHub takes 65,536 of a unit that nobody has pinned down: bytes are the largest count of any."""


@dataclass(frozen=True)
class Origin:
    """Where the verdict comes from, as the trusted side knows it; only ``hardware`` is the artifact's."""

    head_sha: str
    base_sha: str | None
    run_url: str
    run_name: str
    suite: str
    """As it is typed in the repository."""
    pull: int | None = None
    hardware: str = ""
    paired: bool = False
    """Base was measured beside head: there is no stored baseline to accept a change in."""
    changed: tuple[str, ...] = ()
    """Files that decide the verdict and that the pull request changes."""


@dataclass(frozen=True)
class Balance:
    """What was paid for and what it bought, of one workload."""

    workload: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Shape:
    """How much is told."""

    rows: int | None = None
    """Of the table, the worst first; None: all."""
    reasons: int | None = None
    unchanged: bool = False
    aside: bool = False
    """Everything that is not a reason for the outcome."""


LADDER: Final = (
    Shape(unchanged=True, aside=True),
    Shape(aside=True),
    Shape(rows=20, reasons=20),
    Shape(rows=5, reasons=3),
    Shape(rows=0, reasons=0),
)


@dataclass(frozen=True)
class Told:
    """A view of the verdict, cut to a shape."""

    failing: tuple[Group, ...]
    """Reasons that the table does not tell."""
    unsaid: int
    table: tuple[Row, ...]
    left_out: int
    better: tuple[Row, ...]
    balance: tuple[Balance, ...]
    asides: tuple[Group, ...]
    unchanged: tuple[Row, ...]
    environment: tuple[EnvironmentChange, ...]
    notes: tuple[str, ...]
    noise_floor: str


def render(verdict: Verdict, origin: Origin, marker: str = "", limit: int = MAX_BYTES) -> str:
    """The fullest shape that fits ``limit`` bytes; the last one is short whatever the verdict holds."""
    text = ""
    for shape in LADDER:
        text = _render(verdict, origin, marker, tell(verdict, shape))
        if len(text.encode()) <= limit:
            break
    return text


def tell(verdict: Verdict, shape: Shape) -> Told:
    seen = view(verdict)
    table = _worst_first(seen, verdict)
    kept = table if shape.rows is None else table[: shape.rows]
    failing = tuple(group for group in seen.failing if not _is_told_by(group, kept))
    reasons = failing if shape.reasons is None else failing[: shape.reasons]
    aside = shape.aside
    unchanged = _unchanged(verdict, table)
    balance = tuple(_balance(verdict.comparison.rows)) if aside else ()
    weighed = {id(row) for line in balance for row in line.rows}
    return Told(
        failing=reasons,
        unsaid=len(failing) - len(reasons),
        table=kept,
        left_out=len(table) - len(kept) + (0 if shape.unchanged else len(unchanged)),
        better=tuple(row for row in seen.better if id(row) not in weighed) if aside else (),
        balance=balance,
        asides=seen.asides if aside else (),
        unchanged=unchanged if shape.unchanged else (),
        environment=verdict.comparison.environment if aside else (),
        notes=verdict.comparison.notes if aside else verdict.comparison.notes[:3],
        noise_floor=_noise_floor(verdict.comparison.rows),
    )


def _render(verdict: Verdict, origin: Origin, marker: str, told: Told) -> str:
    text = (
        environment()
        .get_template("comment.md.jinja")
        .render(
            verdict=verdict,
            told=told,
            origin=origin,
            marker=Markdown(marker),
            mark=Markdown(MARKS.get(verdict.outcome, "❌")),
            reproduce=_reproduce(origin),
            accept=commands.accept(origin.suite)
            if verdict.outcome is not Outcome.PASS and not origin.paired
            else "",
            run=Markdown(f"[{origin.run_name}]({origin.run_url})"),
            name=name,
            names=names,
            pair=words.pair,
            change=_change,
            judged=judged,
            allowed=allowed,
            count=count,
        )
    )
    return text.strip() + "\n"


def _reproduce(origin: Origin) -> str:
    """From any clone of the repository."""
    measure, base = commands.check(origin.suite), ""
    if origin.paired and origin.base_sha is not None:
        measure, base = commands.ab(origin.suite, origin.base_sha), f" {origin.base_sha}"
    if origin.pull is None:
        return measure
    return f"git fetch origin pull/{origin.pull}/head{base} && git checkout {origin.head_sha} && {measure}"


def _worst_first(seen: View, verdict: Verdict) -> tuple[Row, ...]:
    """Rows that fail, the largest change first; then the others that have a base, as they come.

    Those without one would be lines of n/a here. What keeps them from being judged is said below the table.
    """
    failing = [row for row in seen.table if fails(row, verdict.outcome)]
    others = [row for row in seen.table if not fails(row, verdict.outcome) and row.base is not None]
    return (*sorted(failing, key=lambda row: -abs(row.change or 0)), *others)


def _is_told_by(group: Group, table: Sequence[Row]) -> bool:
    """The value and what was allowed stand in the table: a sentence would say the same once more."""
    shown = {id(row) for row in table}
    return all(
        row.state is State.REGRESSED and row.head is not None and id(row) in shown for row in group.rows
    )


def _unchanged(verdict: Verdict, table: Sequence[Row]) -> tuple[Row, ...]:
    shown = {id(row) for row in table}
    return tuple(row for row in view(verdict, everything=True).table if id(row) not in shown)


def _balance(rows: Sequence[Row]) -> Iterator[Balance]:
    """Cost and quality of a workload side by side, where either moved: neither is news alone."""
    for workload in dict.fromkeys(row.workload for row in rows):
        pair = tuple(
            row
            for kind in ("cost", "quality")
            for row in rows
            if row.workload == workload and row.kind == kind and None not in (row.base, row.head)
        )
        if {row.kind for row in pair} == {"cost", "quality"} and any(row.base != row.head for row in pair):
            yield Balance(workload, pair)


def _noise_floor(rows: Sequence[Row]) -> str:
    floors = [
        row.evidence.noise_floor for row in rows if row.evidence and row.evidence.noise_floor is not None
    ]
    return percent(max(floors)).lstrip("+") if floors else ""


def _change(row: Row) -> str:
    """With the interval where paired arms gave one."""
    interval = row.evidence.interval if row.evidence is not None else None
    if interval is None or row.state in (State.INVALID, State.NOT_COMPARABLE):
        return words.change(row)
    return f"{words.change(row)} ({percent(interval[0])} to {percent(interval[1])})"
