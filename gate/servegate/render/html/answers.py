"""Charts of what was answered: logprobs by position, lengths by prompt, and what quality they bought."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np

from servegate.facts import WorkloadFacts
from servegate.metrics.drift import first_difference
from servegate.metrics.logprobs import RESOLUTION, Scored, scored
from servegate.metrics.matching import match_prompts
from servegate.render.escape import clean
from servegate.render.html.data import Workload
from servegate.render.html.svg import (
    Chart,
    Dot,
    Label,
    Mark,
    Path,
    Scale,
    axis_below,
    axis_left,
    evenly,
    line,
    room,
    scale,
)
from servegate.render.words import number
from servegate.wording import count

SHOWN_PROMPTS: Final = 6
"""Logprob charts of a workload."""
SHOWN_LENGTHS: Final = 30
POSITIONS: Final = 400
NAME: Final = 24


@dataclass(frozen=True)
class Answer:
    """One answer's text: a model wrote it."""

    prompt: str
    finish_reason: str
    text: str
    cut: int
    """Characters left out."""


def logprob_charts(workload: Workload) -> tuple[tuple[Chart, ...], str]:
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
    return tuple(_logprobs(item, base, head) for item in shown), text


def _largest(item: Scored) -> float:
    return float(np.abs(item.head - item.base).max())


def _logprobs(item: Scored, base: WorkloadFacts, head: WorkloadFacts) -> Chart:
    width, height, left = 360.0, 190.0, 58.0
    deltas = (item.head - item.base).tolist()
    parts = _parts_at(item.prompt_id, base, head)
    x = Scale(0, max(len(deltas) - 1, 1 if parts is None else parts[0], 1), left, width - 12)
    y = scale([0.0, *deltas], height - 44, 20)
    marks: list[Mark] = [
        *axis_left(y, left, width - 12, [(tick, number(tick, 3)) for tick in y.ticks(4)]),
        *axis_below(x, 20, height - 44, "token position"),
        Path(f"M{left:.1f} {y(0):.1f}H{width - 12:.1f}", "zero"),
    ]
    kept = evenly(len(deltas), POSITIONS)
    worst = int(np.abs(item.head - item.base).argmax())
    marks.append(Path(line((x(i), y(deltas[i])) for i in sorted({*kept, worst})), "curve head"))
    said = f"Largest at token {worst}: {number(deltas[worst])} nat."
    if parts is not None:
        position, tokens = parts
        at, before_half = x(position), x(position) < (left + width) / 2
        marks.append(Path(f"M{at:.1f} 20V{height - 44:.1f}", "parts", f"parts at token {position}: {tokens}"))
        text = f"parts at {position}: {tokens}"
        marks.append(Label(at, 14, text, "start" if before_half else "end", "label bad"))
        said += f" The answers part at token {position}: {tokens}."
    how = "scored on the base's own completion" if item.forced else "on the tokens that both generated alike"
    return Chart(
        title=f"{clean(item.prompt_id, NAME)}: head - base logprob, nat",
        says=f"{count(len(deltas), 'position')}, {how}. {said}",
        width=width,
        height=height,
        marks=tuple(marks),
        notes=() if item.forced else (how,),
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


def lengths_chart(workload: Workload) -> Chart | None:
    """Completion tokens of each prompt, base to head, with its quality checks beside it."""
    rows = list(_lengths(workload))
    if not rows:
        return None
    moved = sorted(
        rows, key=lambda r: (not r.lost, -abs(r.after - (r.after if r.before is None else r.before)))
    )
    shown = moved[:SHOWN_LENGTHS]
    width, row, top, left = 760.0, 20.0, 8.0, room((r.prompt for r in shown), NAME)
    right = width - 12 - room((r.quality for r in shown), 40)
    bottom = top + row * len(shown)
    x = scale((v for r in shown for v in (r.before, r.after) if v is not None), left, right, from_zero=True)
    marks: list[Mark] = list(axis_below(x, top, bottom, "completion tokens"))
    for index, item in enumerate(shown):
        y = top + row * index + row / 2
        marks.append(Label(left - 6, y + 4, clean(item.prompt, NAME), "end"))
        if item.before is not None:
            marks.append(Path(f"M{x(item.before):.1f} {y:.1f}H{x(item.after):.1f}", "link"))
            marks.append(Dot(x(item.before), y, "dot base", f"base {item.before} tokens", 5))
        marks.append(Dot(x(item.after), y, "dot head", f"head {item.after} tokens"))
        if item.quality:
            marks.append(Label(right + 10, y + 4, item.quality, kind="label bad" if item.lost else "label"))
    note = f"{len(shown)} of {count(len(rows), 'prompt')}: what lost a check first, then what moved most"
    return Chart(
        title="Completion length by prompt",
        says="; ".join(_length_in_words(item) for item in shown[:12]),
        width=width,
        height=bottom + 38,
        marks=tuple(marks),
        notes=(note,) if len(shown) < len(rows) else (),
        wide=True,
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


def trade_charts(workloads: tuple[Workload, ...], currency: str) -> tuple[Chart, ...]:
    """Share of quality checks passed over mean length, and over cost: one arrow a workload, base to head."""
    drawn = (
        _trade(workloads, "completion_tokens_mean", "length", "completion tokens of an answer"),
        _trade(workloads, "cost_per_request", "cost", f"{currency} per request".strip()),
    )
    return tuple(chart for chart in drawn if chart is not None)


def _trade(workloads: tuple[Workload, ...], metric: str, what: str, title: str) -> Chart | None:
    arrows = [
        (w.name, arm, point)
        for w in workloads
        for arm, side in (("base", w.base), ("head", w.head))
        if side is not None and (point := _point(side.facts, metric)) is not None
    ]
    if not arrows:
        return None
    width, height, left = 360.0, 230.0, 52.0
    x = scale((point[0] for _, _, point in arrows), left, width - 70)
    y = Scale(-0.05, 1.05, height - 44, 12)
    marks: list[Mark] = [
        *axis_left(y, left, width - 12, [(s / 100, f"{s} %") for s in (0, 25, 50, 75, 100)]),
        *axis_below(x, 12, height - 44, title),
    ]
    named: list[tuple[float, float]] = []
    for name, group in groupby(arrows, key=lambda arrow: arrow[0]):
        ends = [(x(point[0]), y(point[1]), arm, point) for _, arm, point in group]
        if len(ends) == 2:
            marks.append(Path(line((px, py) for px, py, _, _ in ends), "link"))
        for px, py, arm, point in ends:
            radius = 5 if arm == "base" else 3.5
            marks.append(Dot(px, py, f"dot {arm}", f"{clean(name, NAME)} {arm}: {number(point[0])}", radius))
        place = _free(ends[-1][0] + 7, ends[-1][1], named, height / 2)
        named.append(place)
        marks.append(Label(*place, clean(name, NAME)))
    said = (
        f"{clean(name, NAME)} {arm}: {number(p[0])}, {number(p[1] * 100)} % passed" for name, arm, p in arrows
    )
    return Chart(f"Quality checks passed over {what}", "; ".join(said), width, height, tuple(marks))


def _free(x: float, y: float, taken: list[tuple[float, float]], middle: float) -> tuple[float, float]:
    """Where a dot's name goes: workloads often end in one place, and names then stack towards the middle."""
    step = 13 if y < middle else -13
    y += 16 if y < middle else -8
    while any(abs(x - left) < 80 and abs(y - top) < 13 for left, top in taken):
        y += step
    return x, y


def _point(facts: WorkloadFacts, metric: str) -> tuple[float, float] | None:
    amount, quality = facts.metrics.get(metric), facts.metrics.get("quality_pass_rate")
    if amount is None or quality is None or amount.value is None or quality.value is None:
        return None
    return amount.value, quality.value
