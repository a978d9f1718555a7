"""Every row's change on one axis, with its interval where paired arms gave one and what its rule allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from servegate.explain import passing, rule_of
from servegate.render.escape import clean
from servegate.render.html.figure import COLOURS, Chart, Plot, Role, Sheet
from servegate.render.view import fails, judged, name
from servegate.suite.schema import Policy
from servegate.verdict import Row, State, Verdict
from servegate.wording import count, percent

SHOWN: Final = 60
WIDEST: Final = 2.0
"""A change beyond +200 % is an arrow at the edge; its number is beside it."""
NAME: Final = 38
_ROW: Final = 20.0
_ROLES: Final[dict[State, Role]] = {
    State.REGRESSED: "bad",
    State.IMPROVED: "good",
    State.INCONCLUSIVE: "warn",
}


def changes_chart(verdict: Verdict, policy: Policy, sheet: Sheet) -> Chart | None:
    """What gates first, what fails before all. Rows without a rule that did not move are counted."""
    rows = verdict.comparison.rows
    changed = [row for row in rows if row.change is not None]
    told = [row for row in changed if row.gating or row.change or row.evidence]
    told.sort(key=lambda r: (not fails(r, verdict.outcome), not r.gating, -abs(r.change or 0)))
    shown = told[:SHOWN]
    if not shown:
        return None
    low, high = _reach(shown)
    plot = sheet.plot(52 + _ROW * len(shown), wide=True)
    plot.rows([clean(name(row), NAME) for row in shown], faint=[not row.gating for row in shown])
    plot.span_x([100 * low, 100 * high], "change, % of base")
    plot.axes.axvline(0, color=COLOURS["faint"], linewidth=1)
    for place, row in enumerate(shown):
        _row(plot, row, policy, place, (low, high))
        plot.say(_said(row), (1, place), (8, 0), _role(row), within=("axes fraction", "data"))
    return plot.chart(
        "Change of every row",
        "; ".join(f"{name(row)} {_said(row)}" for row in shown[:20]),
        tuple(_notes(len(rows), len(changed), len(told))),
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


def _reach(rows: Sequence[Row]) -> tuple[float, float]:
    """The axis's ends, as shares of base: as far down as up, but nothing falls by more than all of it."""
    ends = [abs(v) for row in rows for v in (row.change or 0.0, *(_interval(row) or ()))]
    reach = min(max(*ends, 0.05), WIDEST)
    return -min(reach, 1.0), reach


def _row(plot: Plot, row: Row, policy: Policy, place: int, reach: tuple[float, float]) -> None:
    allowed, interval, role = _allowed(row, policy), _interval(row), _role(row)
    if allowed is not None:
        low, high = (100 * _held(end, reach) for end in allowed)
        plot.axes.barh(place, high - low, 0.7, low, color=COLOURS["allowed"], edgecolor=COLOURS["allowed"])
    if interval is not None:
        low, high = (100 * _held(end, reach) for end in interval)
        tip = f"between {percent(interval[0])} and {percent(interval[1])}"
        plot.line([low, high], [place, place], role, width=1.8, tip=tip)
        plot.dots([low, high], [place, place], role, [tip, tip], marker="|", size=8)
    change = row.change or 0.0
    held = _held(change, reach)
    marker = None if held == change else ">" if change > 0 else "<"
    tip = f"{name(row)}: {percent(change)}"
    plot.dots([100 * held], [place], role, [tip], marker=marker, size=6.5 if marker is None else 8.5)


def _held(share: float, reach: tuple[float, float]) -> float:
    return min(max(share, reach[0]), reach[1])


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


def _role(row: Row) -> Role:
    return _ROLES.get(row.state, "text") if row.gating else "faint"
