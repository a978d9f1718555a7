"""Charts of what was answered: logprobs by position, lengths by prompt, and what quality they bought."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final, Literal

import numpy as np

from servegate.facts import WorkloadFacts
from servegate.metrics.drift import first_difference
from servegate.metrics.logprobs import RESOLUTION, Scored, scored
from servegate.metrics.matching import match_prompts
from servegate.render.escape import clean
from servegate.render.html.axis import evenly
from servegate.render.html.data import Side, Workload
from servegate.render.html.figure import COLOURS, Chart, Plot, Role, Sheet
from servegate.wording import count, number

SHOWN_PROMPTS: Final = 6
"""Logprob charts of a workload."""
SHOWN_LENGTHS: Final = 30
POSITIONS: Final = 400
NAME: Final = 24
_ROW: Final = 20.0
_PLOT_PX: Final = (260.0, 160.0)
"""About the size of a trade chart's axes, to tell whether two names would meet."""
_LINE_PX: Final = 13.0
_LETTER_PX: Final = 6.5
_REQUESTS: Final = 1000
"""That a cost is told for: of one request it is often a number of many zeros."""


@dataclass(frozen=True)
class Answer:
    """One answer's text: a model wrote it."""

    prompt: str
    finish_reason: str
    text: str
    cut: int
    """Characters left out."""


def logprob_charts(workload: Workload, sheet: Sheet) -> tuple[tuple[Chart, ...], str]:
    """Charts of the prompts that moved most, and a sentence on all of them."""
    base, head = workload.base.facts if workload.base else None, workload.head.facts
    found = list(scored(base, head, match_prompts(base.prompts, head.prompts))) if base else []
    if base is None or not found:
        return (), ""
    moved = sorted((item for item in found if _largest(item) >= RESOLUTION), key=_largest, reverse=True)
    positions = sum(len(item.base) for item in found)
    if not moved:
        return (), (
            f"All {count(positions, 'position')} of {count(len(found), 'prompt')} agree within "
            f"{RESOLUTION:g} nat."
        )
    shown = moved[:SHOWN_PROMPTS]
    left = f" Drawn: the {len(shown)} that moved most." if len(shown) < len(moved) else ""
    text = f"{len(moved)} of {count(len(found), 'prompt')} differ by more than {RESOLUTION:g} nat.{left}"
    return tuple(_logprobs(item, base, head, sheet) for item in shown), text


def _largest(item: Scored) -> float:
    return float(np.abs(item.head - item.base).max())


def _logprobs(item: Scored, base: WorkloadFacts, head: WorkloadFacts, sheet: Sheet) -> Chart:
    deltas = (item.head - item.base).tolist()
    parts = _parts_at(item.prompt_id, base, head)
    worst = int(np.abs(item.head - item.base).argmax())
    kept = sorted({*evenly(len(deltas), POSITIONS), worst})
    plot = sheet.plot(200)
    plot.span_y([0.0, *deltas])
    plot.span_x([0, max(len(deltas) - 1, 1 if parts is None else parts[0], 1)], "token position", air=0.02)
    plot.axes.axhline(0, color=COLOURS["faint"], linewidth=1)
    plot.sticks(kept, 0.0, [deltas[i] for i in kept], "head")
    plot.dots([worst], [deltas[worst]], "head", [f"token {worst}: {number(deltas[worst])} nat"], size=5)
    said = f"Largest at token {worst}: {number(deltas[worst])} nat."
    if parts is not None:
        position, tokens = parts
        text = f"parts at {position}: {tokens}"
        plot.mark(position, text, "bad", f"parts at token {position}: {tokens}")
        said += f" The answers part at token {position}: {tokens}."
    how = "scored on the base's own completion" if item.forced else "on the tokens that both generated alike"
    return plot.chart(
        f"{clean(item.prompt_id, NAME)}: head - base logprob, nat",
        f"{count(len(deltas), 'position')}, {how}. {said}",
        () if item.forced else (how,),
    )


def _parts_at(prompt_id: str, base: WorkloadFacts, head: WorkloadFacts) -> tuple[int, str] | None:
    """Where the free-running answers part, and the two token ids there."""
    pairs = dict(match_prompts(base.prompts, head.prompts).pairs)
    old, new = base.prompts[prompt_id].completion_ids, head.prompts[pairs[prompt_id]].completion_ids
    position = first_difference(old, new)
    if position is None:
        return None
    ids = [str(side[position]) if position < len(side) else "end" for side in (old, new)]
    return position, f"{ids[0]} → {ids[1]}"


def lengths_chart(workload: Workload, sheet: Sheet) -> Chart | None:
    """Completion tokens of each prompt, base to head, with its quality checks beside it."""
    rows = list(_lengths(workload))
    if not rows:
        return None
    moved = sorted(
        rows, key=lambda r: (not r.lost, -abs(r.after - (r.after if r.before is None else r.before)))
    )
    shown = moved[:SHOWN_LENGTHS]
    plot = sheet.plot(74 + _ROW * len(shown), wide=True)
    plot.rows([clean(row.prompt, NAME) for row in shown])
    lengths = [v for row in shown for v in (row.before, row.after) if v is not None]
    plot.span_x(lengths, "completion tokens", zero=True)
    paired = [(row.before, row.after, i) for i, row in enumerate(shown) if row.before is not None]
    for before, after, place in paired:
        plot.line([before, after], [place, place], "faint", width=1.5)
    befores, _, places = zip(*paired, strict=True) if paired else ((), (), ())
    plot.dots(befores, places, "base", [f"base {before} tokens" for before in befores])
    afters = [row.after for row in shown]
    plot.dots(afters, range(len(shown)), "head", [f"head {after} tokens" for after in afters], size=4.5)
    for place, row in enumerate(shown):
        if row.quality:
            role: Role = "bad" if row.lost else "text"
            plot.say(row.quality, (1, place), (8, 0), role, within=("axes fraction", "data"))
    plot.key({"base": "dot", "head": "dot"} if paired else {"head": "dot"})
    note = f"{len(shown)} of {count(len(rows), 'prompt')}: what lost a check first, then what moved most"
    return plot.chart(
        "Completion length by prompt",
        "; ".join(_length_in_words(row) for row in shown[:12]),
        [note] if len(shown) < len(rows) else (),
    )


@dataclass(frozen=True)
class _Length:
    prompt: str
    before: int | None
    after: int
    quality: str
    lost: bool


def _lengths(workload: Workload) -> Iterator[_Length]:
    base, head = workload.base.facts if workload.base else None, workload.head.facts
    pairs = match_prompts(base.prompts, head.prompts).pairs if base else ()
    olds = {head_id: base_id for base_id, head_id in pairs}
    passed_before, passed_after = _checks(base), _checks(head)
    for head_id, prompt in head.prompts.items():
        old = olds.get(head_id)
        before = len(base.prompts[old].completion_ids) if base and old is not None else None
        now, then = passed_after.get(head_id), passed_before.get(old or "")
        quality = (
            ""
            if now is None
            else f"checks passed {f'{then[0]}/{then[1]} → ' if then else ''}{now[0]}/{now[1]}"
        )
        lost = now is not None and then is not None and now[0] < then[0]
        yield _Length(head_id, before, len(prompt.completion_ids), quality, lost)


def _checks(facts: WorkloadFacts | None) -> dict[str, tuple[int, int]]:
    """Prompt -> (checks passed, checks)."""
    found = sorted(facts.quality if facts else (), key=lambda fact: fact.prompt_id)
    grouped = {prompt: list(group) for prompt, group in groupby(found, key=lambda fact: fact.prompt_id)}
    return {p: (sum(fact.passed for fact in group), len(group)) for p, group in grouped.items()}


def _length_in_words(item: _Length) -> str:
    before = "" if item.before is None else f"{item.before} to "
    quality = f", {item.quality}" if item.quality else ""
    return f"{clean(item.prompt, NAME)}: {before}{item.after} tokens{quality}"


def trade_charts(workloads: tuple[Workload, ...], currency: str, sheet: Sheet) -> tuple[Chart, ...]:
    """Share of quality checks passed over mean length, and over cost: one arrow a workload, base to head."""
    drawn = (
        _trade(workloads, "completion_tokens_mean", "length", "completion tokens of an answer", sheet),
        _trade(
            workloads, "cost_per_request", "cost", f"{currency} per {_REQUESTS:,} requests".strip(), sheet
        ),
    )
    return tuple(chart for chart in drawn if chart is not None)


@dataclass(frozen=True)
class _End:
    """Where a workload is on one arm: an amount, and the share of checks passed."""

    name: str
    arm: Literal["base", "head"]
    amount: float
    passed: float


def _trade(workloads: tuple[Workload, ...], metric: str, what: str, title: str, sheet: Sheet) -> Chart | None:
    found = [end for workload in workloads for end in _ends(workload, metric)]
    if not found:
        return None
    plot = sheet.plot(240)
    plot.span_x([end.amount for end in found], title, air=0.15)
    plot.axes.set_ylim(-0.06, 1.06)
    plot.axes.set_yticks([s / 100 for s in (0, 25, 50, 75, 100)], [f"{s} %" for s in (0, 25, 50, 75, 100)])
    for _, group in groupby(found, key=lambda end: end.name):
        ends = list(group)
        if len(ends) == 2:
            plot.line([end.amount for end in ends], [end.passed for end in ends], "faint", width=1.5)
    for arm in ("base", "head"):
        there = [end for end in found if end.arm == arm]
        tips = [f"{clean(end.name, NAME)} {arm}: {number(end.amount)}" for end in there]
        size = 7.0 if arm == "base" else 5.0
        plot.dots([end.amount for end in there], [end.passed for end in there], arm, tips, size=size)
    _name(plot, found)
    plot.key({end.arm: "dot" for end in found})
    said = (
        f"{clean(end.name, NAME)} {end.arm}: {number(end.amount)}, {number(end.passed * 100)} % passed"
        for end in found
    )
    return plot.chart(f"Quality checks passed over {what}", "; ".join(said))


def _ends(workload: Workload, metric: str) -> Iterator[_End]:
    arms: tuple[tuple[Literal["base", "head"], Side | None], ...] = (
        ("base", workload.base),
        ("head", workload.head),
    )
    for arm, side in arms:
        point = _point(side.facts, metric) if side is not None else None
        if point is not None:
            yield _End(workload.name, arm, *point)


def _name(plot: Plot, ends: list[_End]) -> None:
    """Each workload's name right of its head. Several often end in one place: their names stack."""
    low, high = plot.axes.get_xlim()

    def at(end: _End) -> tuple[float, float]:
        return _PLOT_PX[0] * (end.amount - low) / (high - low), _PLOT_PX[1] * end.passed

    heads = [end for end in ends if end.arm == "head"]
    taken = [(x - 5, x + 5, y) for x, y in map(at, heads)]
    for head in heads:
        (x, y), name = at(head), clean(head.name, NAME)
        left, right = x + 8, x + 8 + _LETTER_PX * len(name)
        # The line to the base may go to the right as well: the name then keeps off its side.
        base = next((end for end in ends if end.name == head.name and end.arm == "base"), head)
        shift = 0.0 if base.amount <= head.amount else _LINE_PX if base.passed < head.passed else -_LINE_PX
        step = -_LINE_PX if y > _PLOT_PX[1] / 2 else _LINE_PX
        while any(
            left < end and start < right and abs(y + shift - up) < _LINE_PX for start, end, up in taken
        ):
            shift += step
        taken.append((left, right, y + shift))
        plot.say(name, (head.amount, head.passed), (8, shift))


def _point(facts: WorkloadFacts, metric: str) -> tuple[float, float] | None:
    amount, quality = facts.metrics.get(metric), facts.metrics.get("quality_pass_rate")
    if amount is None or quality is None or amount.value is None or quality.value is None:
        return None
    scale = _REQUESTS if metric == "cost_per_request" else 1
    return scale * amount.value, quality.value
