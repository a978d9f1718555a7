"""Every row's change on one axis, with its interval where paired arms gave one and what its rule allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from servegate.explain import passing, rule_of
from servegate.render.escape import clean
from servegate.render.html.svg import Box, Chart, Dot, Label, Mark, Path, Scale, axis_below, room
from servegate.render.view import fails, judged, name
from servegate.suite.schema import Policy
from servegate.verdict import Row, State, Verdict
from servegate.wording import count, percent

SHOWN: Final = 60
WIDEST: Final = 2.0
"""A change beyond +200 % is drawn at the edge; its number is beside it."""
NAME: Final = 38
_KINDS: Final = {State.REGRESSED: "bad", State.IMPROVED: "good", State.INCONCLUSIVE: "warn"}


def changes_chart(verdict: Verdict, policy: Policy) -> Chart | None:
    """What gates first, what fails before all. Rows without a rule that did not move are counted."""
    rows = verdict.comparison.rows
    changed = [row for row in rows if row.change is not None]
    told = [row for row in changed if row.gating or row.change or row.evidence]
    told.sort(key=lambda r: (not fails(r, verdict.outcome), not r.gating, -abs(r.change or 0)))
    shown = told[:SHOWN]
    if not shown:
        return None
    width, step, top = 760.0, 20.0, 8.0
    left, right = room(map(name, shown), NAME), width - 12 - room(map(_said, shown), 40)
    bottom = top + step * len(shown)
    x = _axis(shown, left, right)
    marks: list[Mark] = list(axis_below(x, top, bottom, "change, % of base"))
    marks.append(Path(f"M{x(0):.1f} {top:.1f}V{bottom:.1f}", "zero"))
    for index, row in enumerate(shown):
        marks += _row(row, policy, x, top + step * index, step)
        marks.append(
            Label(right + 10, top + step * index + step / 2 + 4, _said(row), kind=f"label {_kind(row)}")
        )
    return Chart(
        title="Change of every row",
        says="; ".join(f"{name(row)} {_said(row)}" for row in shown[:20]),
        width=width,
        height=bottom + 38,
        marks=tuple(marks),
        notes=tuple(_notes(len(rows), len(changed), len(told))),
        wide=True,
    )


def _notes(rows: int, changed: int, told: int) -> Iterator[str]:
    if told > SHOWN:
        yield f"{SHOWN} of {count(told, 'row')}: what fails first, then what moved most"
    if changed > told:
        yield f"{count(changed - told, 'row')} without a rule did not move and are left out"
    if rows > changed:
        yield (
            f"{count(rows - changed, 'row')} have no relative change (zero or words on the base's side): "
            "they are in the table"
        )


def _axis(rows: Sequence[Row], left: float, right: float) -> Scale:
    ends = [abs(v) for row in rows for v in (row.change or 0.0, *(_interval(row) or ()))]
    reach = 100 * min(max(*ends, 0.05) * 1.08, WIDEST)
    return Scale(-min(reach, 105), reach, left, right)  # nothing falls by more than all of it


def _row(row: Row, policy: Policy, x: Scale, y: float, step: float) -> Iterator[Mark]:
    middle, kind, change = y + step / 2, _kind(row), row.change or 0.0
    yield Label(
        x.start - 6, middle + 4, clean(name(row), NAME), "end", "label" if row.gating else "label faint"
    )
    allowed = _allowed(row, policy)
    if allowed is not None:
        low, high = x(100 * allowed[0]), x(100 * allowed[1])
        yield Box(low, y + 3, max(high - low, 1.0), step - 6, "allowed")
    interval = _interval(row)
    if interval is not None:
        low, high = x(100 * interval[0]), x(100 * interval[1])
        yield Path(
            f"M{low:.1f} {middle - 4:.1f}v8M{low:.1f} {middle:.1f}H{high:.1f}M{high:.1f} {middle - 4:.1f}v8",
            f"interval {kind}",
            f"between {percent(interval[0])} and {percent(interval[1])}",
        )
    yield Dot(x(100 * change), middle, f"dot {kind}", f"{name(row)}: {percent(change)}")


def _allowed(row: Row, policy: Policy) -> tuple[float, float] | None:
    """The changes that pass, as shares of base."""
    rule = rule_of(row, policy)
    if rule is None or not isinstance(row.base, float) or row.base <= 0:
        return None
    lower, upper = passing(row, rule)
    low = -WIDEST if lower is None else (lower - row.base) / row.base
    high = WIDEST if upper is None else (upper - row.base) / row.base
    return (low, high) if low <= high else None


def _interval(row: Row) -> tuple[float, float] | None:
    return row.evidence.interval if row.evidence is not None else None


def _said(row: Row) -> str:
    moved = percent(row.change) if row.change else "0 %"
    return f"{moved} {judged(row) if row.gating or row.state is not State.PASS else 'no rule'}"


def _kind(row: Row) -> str:
    return _KINDS.get(row.state, "plain") if row.gating else "faint"
