"""Charts of what a clock gave: distributions, rates by round, and when each token came."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Final, Literal

import numpy as np

from servegate.facts import WorkloadFacts
from servegate.metrics import latency
from servegate.metrics.table import METRICS
from servegate.metrics.timeline import NS_PER_MS, Floats, failure
from servegate.record import RequestRecord
from servegate.render.escape import clean
from servegate.render.html.axis import evenly
from servegate.render.html.data import Side, Workload
from servegate.render.html.figure import Chart, Mark, Plot, Sheet
from servegate.render.words import value
from servegate.wording import count, number

Arm = Literal["base", "head"]

CURVE_POINTS: Final = 200
STEPS: Final = 60
"""Values of which each is a step of its own; more are a line through quantiles."""
STRIP_POINTS: Final = 200
SHOWN_REQUESTS: Final = 32
TICKS: Final = 400
"""Over the axis: tokens that come closer than so many fit are drawn as one."""
NAME: Final = 24
_HEIGHT: Final = 220.0
_PERCENTILES: Final = (50, 95, 99)
_MARKED: Final = (50, 95)
"""Percentiles whose values stand beside the curves."""

_DISTRIBUTIONS: Final[Mapping[str, tuple[latency.Values, str]]] = MappingProxyType(
    {
        "ttft": (latency.ttft, "time to first token, from scheduled send"),
        "ttft_sent": (latency.ttft_sent, "time to first token, from actual send"),
        "itl": (latency.itl, "each request's mean time between tokens"),
        "decode": (latency.decode, "gaps between tokens"),
        "stall": (latency.stall, "each request's largest gap"),
        "e2e": (latency.e2e, "time to last token, from scheduled send"),
    }
)
_RATES: Final = ("prefill", "throughput", "request_throughput")


def timing_charts(workload: Workload, sheet: Sheet) -> tuple[Chart, ...]:
    """Nothing for reference numerics: what is slow on purpose has no times worth showing."""
    if workload.head.facts.numerics == "reference":
        return ()
    drawn = [_distribution(name, workload, sheet) for name in _DISTRIBUTIONS]
    drawn += [_rate(name, workload, sheet) for name in _RATES]
    drawn.append(_timelines(workload, sheet))
    return tuple(chart for chart in drawn if chart is not None)


def _distribution(name: str, workload: Workload, sheet: Sheet) -> Chart | None:
    """Share of values up to x. Of a stored baseline only its rounds' percentiles: ticks at their heights."""
    of, says = _DISTRIBUTIONS[name]
    curves: dict[Arm, Floats] = {"base": _values(workload.base, of), "head": _values(workload.head, of)}
    base, head = curves["base"], curves["head"]
    old = workload.base.facts if workload.base else None
    stored = [] if len(base) or old is None else list(_stored(name, old))
    if not len(head):
        return None
    per, unit = _unit([*base[-1:], *head[-1:], *(v for _, v, _ in stored)])
    plot = sheet.plot(_HEIGHT)
    # The room at both ends is for the percentiles' values.
    ends = [*base[:1], *base[-1:], *head[:1], *head[-1:], *(v for _, v, _ in stored)]
    plot.span_x([end / per for end in ends], unit, air=0.25)
    plot.axes.set_ylim(0, 1.06)
    plot.axes.set_yticks([q / 100 for q in (0, 25, 50, 75, 95)], [f"{q} %" for q in (0, 25, 50, 75, 95)])
    for arm, values in curves.items():
        if len(values):
            plot.line(*_curve(values / per), arm, dashed=arm == "base")
    for arm, values in curves.items():
        _percentiles(plot, arm, values / per, (base if arm == "head" else head) / per, unit)
    plot.dots(
        [v / per for _, v, _ in stored],
        [q / 100 for q, _, _ in stored],
        "base",
        [tip for _, _, tip in stored],
        size=13,
        marker="|",
    )
    drawn: dict[Arm, Mark] = {"base": "curve" if len(base) else "tick"} if len(base) or stored else {}
    plot.key({**drawn, "head": "curve"})
    most = max(len(base), len(head))
    described = [_in_words("head", head)]
    if len(base):
        described.insert(0, _in_words("base", base))
    elif stored:
        described.insert(0, "base is stored by round: " + "; ".join(tip for _, _, tip in stored))
    return plot.chart(
        f"{name}: {says}",
        f"Share of values up to each time. {'. '.join(described)}.",
        [f"{CURVE_POINTS} points of {count(most, 'value')}"] if most > CURVE_POINTS else (),
    )


def _unit(values_ms: Sequence[float]) -> tuple[float, str]:
    """What to divide ms by, and the unit that then reads best on an axis."""
    longest = max(values_ms)
    return (1e3, "s") if longest >= 1e4 else (1.0, "ms") if longest >= 0.1 else (1e-3, "µs")


def _percentiles(plot: Plot, arm: Arm, values: Floats, other: Floats, unit: str) -> None:
    """Dots with their values. A curve only rises: room is left of it and above, right of it and below."""
    if not len(values):
        return
    places = [float(np.percentile(values, q)) for q in _MARKED]
    tips = [f"{arm} p{q} {number(at)} {unit}" for q, at in zip(_MARKED, places, strict=True)]
    plot.dots(places, [q / 100 for q in _MARKED], arm, tips)
    for q, at in zip(_MARKED, places, strict=True):
        against = float(np.percentile(other, q)) if len(other) else None
        first = against is not None and (at, arm) < (against, "base" if arm == "head" else "head")
        right = (7, -3) if len(other) else (7, -8)  # clear of a stored base's ticks
        plot.say(f"{number(at, 3)} {unit}", (at, q / 100), (-7, 2) if first else right, arm)


def _stored(name: str, facts: WorkloadFacts) -> Iterator[tuple[int, float, str]]:
    """(percentile, ms, in words) of each round."""
    for q in _PERCENTILES:
        sample = facts.metrics.get(f"{name}_p{q}")
        for index, stamp in enumerate(sample.per_round if sample else ()):
            yield q, stamp, f"round {index + 1} p{q} {number(stamp)} ms"


def _values(side: Side | None, of: latency.Values) -> Floats:
    found = [of(times) for times in side.times] if side else []
    return np.sort(np.concatenate(found)) if found else np.zeros(0)


def _curve(values: Floats) -> tuple[list[float], list[float]]:
    """Steps where there are few values, a line through quantiles where there are many."""
    n = len(values)
    if n > STEPS:
        shares = np.linspace(0, 1, min(n, CURVE_POINTS))
        return np.quantile(values, shares).tolist(), shares.tolist()
    steps = np.repeat(np.arange(n + 1) / n, 2)
    return np.repeat(values, 2).tolist(), steps[1:-1].tolist()


def _in_words(arm: str, values: Floats) -> str:
    low, middle, high = (number(float(v)) for v in (values[0], np.median(values), values[-1]))
    p95 = number(float(np.percentile(values, 95)))
    return f"{arm}: {count(len(values), 'value')} from {low} to {high} ms, median {middle} ms, p95 {p95} ms"


def _rate(name: str, workload: Workload, sheet: Sheet) -> Chart | None:
    """One dot a round: a rate has no distribution within one."""
    arms: tuple[tuple[Arm, Side | None], ...] = (("base", workload.base), ("head", workload.head))
    rounds = {
        arm: sample.per_round
        for arm, side in arms
        if side is not None and (sample := side.facts.metrics.get(name)) is not None and sample.per_round
    }
    if "head" not in rounds:
        return None
    spec = METRICS[name]
    plot = sheet.plot(66 + 24 * len(rounds))
    plot.rows(list(rounds))
    plot.span_x([v for values in rounds.values() for v in values], spec.unit)
    for row, (arm, values) in enumerate(rounds.items()):
        kept = evenly(len(values), STRIP_POINTS)
        tips = [f"{arm} round {i + 1}: {value(values[i], spec.unit)}" for i in kept]
        plot.dots([values[i] for i in kept], [row] * len(kept), arm, tips)
    return plot.chart(
        f"{name}: {spec.says}",
        "; ".join(
            f"{arm} by round: {', '.join(number(v) for v in values[:12])} {spec.unit}"
            for arm, values in rounds.items()
        ),
        [f"drawn at {STRIP_POINTS} rounds"] if max(map(len, rounds.values())) > STRIP_POINTS else (),
    )


def _timelines(workload: Workload, sheet: Sheet) -> Chart | None:
    """The first round's requests, each from its own scheduled send: the wait, then a tick for each token."""
    before = {r.id: r for r in (workload.base.requests if workload.base else ()) if _has_tokens(r)}
    after = [r for r in workload.head.requests if _has_tokens(r)]
    if not after:
        return None
    by_end = sorted(after, key=lambda r: r.arrivals_ns[-1] - r.scheduled_ns)
    shown = [by_end[i] for i in evenly(len(by_end), SHOWN_REQUESTS)]
    lanes = [(before.get(request.id), request) for request in shown]
    longest = max(_ms(r, r.arrivals_ns[-1]) for lane in lanes for r in lane if r is not None)
    per, unit = _unit([longest])
    plot = sheet.plot(74 + (24 if before else 16) * len(lanes), wide=True)
    plot.rows([clean(request.id, NAME) for request in shown])
    plot.span_x([0.0, longest / per], f"{unit} since the request's scheduled send", air=0.02, zero=True)
    for row, (old, new) in enumerate(lanes):
        if old is not None:
            _lane(plot, old, row - 0.2, "base", longest, per)
        _lane(plot, new, row + 0.2 if before else row, "head", longest, per)
    plot.key({"base": "lane", "head": "lane"} if before else {"head": "lane"})
    note = f"{len(shown)} of {count(len(after), 'request')}, spread from the fastest to the slowest"
    return plot.chart(
        "Tokens of each request, first round",
        _timelines_in_words(shown),
        [note] if len(shown) < len(after) else (),
    )


def _timelines_in_words(shown: Sequence[RequestRecord]) -> str:
    firsts = [_ms(r, r.arrivals_ns[0]) for r in shown]
    lasts = [_ms(r, r.arrivals_ns[-1]) for r in shown]
    return (
        f"{count(len(shown), 'request')} of the head, fastest first; the first token came after "
        f"{number(min(firsts))} to {number(max(firsts))} ms, the last after {number(min(lasts))} to "
        f"{number(max(lasts))} ms."
    )


def _lane(plot: Plot, request: RequestRecord, y: float, arm: Arm, longest: float, per: float) -> None:
    """``longest``: ms of the whole axis, whose unit is ``per`` ms."""
    stamps = [_ms(request, stamp) for stamp in request.arrivals_ns]
    gap = max((after - before for before, after in pairwise(stamps)), default=0.0)
    tip = (
        f"{arm} {clean(request.id, NAME)}: first token {number(stamps[0])} ms, last {number(stamps[-1])} ms, "
        f"{count(len(stamps), 'frame')}, largest gap {number(gap)} ms"
    )
    plot.line([0.0, stamps[0] / per], [y, y], arm, width=1.2, dashed=arm == "base", tip=tip)
    kept = [stamp / per for stamp in _ticks(stamps, longest / TICKS)]
    plot.sticks(kept, y - 0.16, y + 0.16, arm, tip)


def _ticks(stamps: Sequence[float], apart: float) -> Iterator[float]:
    drawn = float("-inf")
    for stamp in stamps:
        if stamp - drawn >= apart:
            drawn = stamp
            yield stamp


def _ms(request: RequestRecord, stamp: int) -> float:
    return (stamp - request.scheduled_ns) / NS_PER_MS


def _has_tokens(request: RequestRecord) -> bool:
    return failure(request) is None and len(request.arrivals_ns) > 0
