"""Charts of what a clock gave: distributions, rates by round, and when each token came."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Final

import numpy as np

from servegate.facts import WorkloadFacts
from servegate.metrics import latency
from servegate.metrics.table import METRICS
from servegate.metrics.timeline import NS_PER_MS, Floats, failure
from servegate.record import RequestRecord
from servegate.render.escape import clean
from servegate.render.html.data import Side, Workload
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
from servegate.render.words import number, value
from servegate.wording import count

CURVE_POINTS: Final = 200
STRIP_POINTS: Final = 200
SHOWN_REQUESTS: Final = 32
TICK_PX: Final = 1.5
"""Tokens that come closer than this are drawn as one tick."""
NAME: Final = 24
_SIZE: Final = (360.0, 230.0)
_PERCENTILES: Final = (50, 95, 99)

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


def timing_charts(workload: Workload) -> tuple[Chart, ...]:
    """Nothing for reference numerics: what is slow on purpose has no times worth showing."""
    if workload.head.facts.numerics == "reference":
        return ()
    drawn = [_distribution(name, workload) for name in _DISTRIBUTIONS]
    drawn += [_rate(name, workload) for name in _RATES]
    drawn.append(_timelines(workload))
    return tuple(chart for chart in drawn if chart is not None)


def _distribution(name: str, workload: Workload) -> Chart | None:
    """Share of values up to x. Of a stored baseline only its rounds' percentiles: ticks at their heights."""
    of, says = _DISTRIBUTIONS[name]
    base, head = _values(workload.base, of), _values(workload.head, of)
    old = workload.base.facts if workload.base else None
    stored = [] if len(base) or old is None else list(_stored(name, old))
    if not len(head):
        return None
    width, height = _SIZE
    x = scale([*base, *head, *(v for _, v, _ in stored)], 44, width - 12)
    y = Scale(0, 1, height - 44, 8)
    marks: list[Mark] = [
        *axis_below(x, 8, height - 44, "ms"),
        *axis_left(y, 44, width - 12, [(q / 100, f"{q} %") for q in (0, 25, 50, 75, 95)]),
    ]
    for values, arm in ((base, "base"), (head, "head")):
        if len(values):
            marks.append(Path(line(_curve(values, x, y)), f"curve {arm}"))
    for q, stamp, tip in stored:
        marks.append(Path(f"M{x(stamp):.1f} {y(q / 100) - 7:.1f}v14", "tick base", tip))
    most = max(len(base), len(head))
    described = [_in_words("head", head)]
    if len(base):
        described.insert(0, _in_words("base", base))
    elif stored:
        described.insert(0, "base is stored by round: " + "; ".join(tip for _, _, tip in stored))
    return Chart(
        title=f"{name}: {says}",
        says=f"Share of values up to each time. {'. '.join(described)}.",
        width=width,
        height=height,
        marks=tuple(marks),
        notes=(f"{CURVE_POINTS} points of {count(most, 'value')}",) if most > CURVE_POINTS else (),
    )


def _stored(name: str, facts: WorkloadFacts) -> Iterator[tuple[int, float, str]]:
    """(percentile, ms, in words) of each round."""
    for q in _PERCENTILES:
        sample = facts.metrics.get(f"{name}_p{q}")
        for index, stamp in enumerate(sample.per_round if sample else ()):
            yield q, stamp, f"round {index + 1} p{q} {number(stamp)} ms"


def _values(side: Side | None, of: latency.Values) -> Floats:
    found = [of(times) for times in side.times] if side else []
    return np.sort(np.concatenate(found)) if found else np.zeros(0)


def _curve(values: Floats, x: Scale, y: Scale) -> Iterator[tuple[float, float]]:
    """Steps where there are few values, a line through quantiles where there are many."""
    n = len(values)
    if n > CURVE_POINTS:
        shares = np.linspace(0, 1, CURVE_POINTS)
        for share, at in zip(shares, np.quantile(values, shares), strict=True):
            yield x(float(at)), y(float(share))
        return
    for index, at in enumerate(values.tolist()):
        yield x(at), y(index / n)
        yield x(at), y((index + 1) / n)


def _in_words(arm: str, values: Floats) -> str:
    low, middle, high = (number(float(v)) for v in (values[0], np.median(values), values[-1]))
    return f"{arm}: {count(len(values), 'value')} from {low} to {high} ms, median {middle} ms"


def _rate(name: str, workload: Workload) -> Chart | None:
    """One dot a round: a rate has no distribution within one."""
    rounds = {
        arm: sample.per_round
        for arm, side in (("base", workload.base), ("head", workload.head))
        if side is not None and (sample := side.facts.metrics.get(name)) is not None
    }
    if not rounds.get("head"):
        return None
    spec, (width, height) = METRICS[name], (360.0, 120.0)
    x = scale((v for values in rounds.values() for v in values), 52, width - 14)
    marks: list[Mark] = list(axis_below(x, 8, height - 44, spec.unit))
    for arm, y in (("base", 26.0), ("head", 56.0)):
        marks.append(Label(44, y + 4, arm, "end"))
        values = rounds.get(arm, ())
        marks += [
            Dot(x(values[i]), y, f"dot {arm}", f"{arm} round {i + 1}: {value(values[i], spec.unit)}")
            for i in evenly(len(values), STRIP_POINTS)
        ]
    return Chart(
        title=f"{name}: {spec.says}",
        says="; ".join(
            f"{arm} by round: {', '.join(number(v) for v in values[:12])} {spec.unit}"
            for arm, values in rounds.items()
        ),
        width=width,
        height=height,
        marks=tuple(marks),
        notes=(f"drawn at {STRIP_POINTS} rounds",) if max(map(len, rounds.values())) > STRIP_POINTS else (),
    )


def _timelines(workload: Workload) -> Chart | None:
    """The first round's requests, each from its own scheduled send: the wait, then a tick for each token."""
    before = {r.id: r for r in (workload.base.requests if workload.base else ()) if _has_tokens(r)}
    after = [r for r in workload.head.requests if _has_tokens(r)]
    if not after:
        return None
    by_end = sorted(after, key=lambda r: r.arrivals_ns[-1] - r.scheduled_ns)
    shown = [by_end[i] for i in evenly(len(by_end), SHOWN_REQUESTS)]
    lanes = [(before.get(request.id), request) for request in shown]
    row, top, left, width = (26.0 if before else 16.0), 8.0, room((r.id for r in shown), NAME), 760.0
    bottom = top + row * len(lanes)
    ends = [_ms(r, r.arrivals_ns[-1]) for lane in lanes for r in lane if r is not None]
    x = Scale(0, max(*ends, 1e-6) * 1.02, left, width - 12)
    marks: list[Mark] = list(axis_below(x, top, bottom, "ms since the request's scheduled send"))
    for index, (old, new) in enumerate(lanes):
        y = top + row * index + row / 2
        marks.append(Label(left - 6, y + 4, clean(new.id, NAME), "end"))
        if old is not None:
            marks += _lane(old, x, y - 5, "base")
        marks += _lane(new, x, y + 5 if before else y, "head")
    note = f"{len(shown)} of {count(len(after), 'request')}, spread from the fastest to the slowest"
    return Chart(
        title="Tokens of each request, first round",
        says=_timelines_in_words(shown),
        width=width,
        height=bottom + 38,
        marks=tuple(marks),
        notes=(note,) if len(shown) < len(after) else (),
        wide=True,
    )


def _timelines_in_words(shown: Sequence[RequestRecord]) -> str:
    firsts = [_ms(r, r.arrivals_ns[0]) for r in shown]
    lasts = [_ms(r, r.arrivals_ns[-1]) for r in shown]
    return (
        f"{count(len(shown), 'request')} of the head, fastest first; the first token came after "
        f"{number(min(firsts))} to {number(max(firsts))} ms, the last after {number(min(lasts))} to "
        f"{number(max(lasts))} ms."
    )


def _lane(request: RequestRecord, x: Scale, y: float, arm: str) -> Iterator[Mark]:
    stamps = [_ms(request, stamp) for stamp in request.arrivals_ns]
    gap = max((after - before for before, after in pairwise(stamps)), default=0.0)
    tip = (
        f"{arm} {clean(request.id, NAME)}: first token {number(stamps[0])} ms, last {number(stamps[-1])} ms, "
        f"{count(len(stamps), 'frame')}, largest gap {number(gap)} ms"
    )
    yield Path(f"M{x(0):.1f} {y:.1f}H{x(stamps[0]):.1f}", f"wait {arm}", tip)
    yield Path("".join(_ticks(stamps, x, y)), f"tick {arm}", tip)


def _ticks(stamps: Sequence[float], x: Scale, y: float) -> Iterator[str]:
    drawn = float("-inf")
    for stamp in stamps:
        at = x(stamp)
        if at - drawn >= TICK_PX:
            drawn = at
            yield f"M{at:.1f} {y - 4:.0f}v8"


def _ms(request: RequestRecord, stamp: int) -> float:
    return (stamp - request.scheduled_ns) / NS_PER_MS


def _has_tokens(request: RequestRecord) -> bool:
    return failure(request) is None and len(request.arrivals_ns) > 0
