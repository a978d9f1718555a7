"""Latencies and rates: ms and tokens a second, from arrival stamps alone.

A percentile is NumPy's linear interpolation over all rounds' values; it needs the minimum n of
`servegate.stats.percentiles`. A single value of zero or less makes the whole metric invalid: a clock that
gives one cannot be trusted about the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from servegate.facts import Sample
from servegate.metrics.context import Context, stable
from servegate.metrics.timeline import NS_PER_MS, Floats, Timeline
from servegate.record import WorkloadRecord
from servegate.stats.percentiles import min_samples

Values = Callable[[Timeline], Floats]
Measure = Callable[[WorkloadRecord, Context], Sample | None]


def ttft(times: Timeline) -> Floats:
    """First token - scheduled send, ms: includes the wait for a free client."""
    return (times.first_ns - times.scheduled_ns) / NS_PER_MS


def ttft_sent(times: Timeline) -> Floats:
    """First token - actual send, ms."""
    return (times.first_ns - times.sent_ns) / NS_PER_MS


def e2e(times: Timeline) -> Floats:
    """Last token - scheduled send, ms."""
    return (times.last_ns - times.scheduled_ns) / NS_PER_MS


def itl(times: Timeline) -> Floats:
    """(last - first) / (tokens after the first frame), ms, of requests that have such tokens."""
    after_first = times.tokens - times.first_frame_tokens
    has_gap = (after_first > 0) & (times.last_ns != times.first_ns)
    values: Floats = (times.last_ns - times.first_ns)[has_gap] / after_first[has_gap] / NS_PER_MS
    return values


def decode(times: Timeline) -> Floats:
    """Gap before each token, ms: the gap before a frame of k tokens counts as k gaps of a k-th."""
    return np.repeat(times.gap_ns / times.gap_tokens / NS_PER_MS, times.gap_tokens)


def stall(times: Timeline) -> Floats:
    """Each request's largest gap between frames, ms, undivided: it is what a reader waits for."""
    gaps: Floats = times.largest_gap_ns[times.largest_gap_ns != 0] / NS_PER_MS
    return gaps


def percentile(of: Values, q: float) -> Measure:
    """The q-th percentile of ``of``."""
    return _timed(of, lambda values: float(np.percentile(values, q)), min_samples(q))


def largest(of: Values) -> Measure:
    return _timed(of, lambda values: float(values.max()), 1)


def decode_p95(workload: WorkloadRecord, context: Context) -> Sample | None:
    """p95 of `decode` with the number of frame gaps as n, marked where frames hold several tokens."""
    sample = percentile(decode, 95)(workload, context)
    if sample is None:
        return None
    gaps = sum(len(times.gap_ns) for times in context.rounds)
    return sample.model_copy(update={"n": gaps, "note": sample.note or _coalesced(context.rounds)})


def _coalesced(rounds: Sequence[Timeline]) -> str | None:
    gaps = sum(len(times.gap_tokens) for times in rounds)
    several = sum(int((times.gap_tokens > 1).sum()) for times in rounds)
    unseen = sum(int((times.tokens - times.first_frame_tokens).sum()) for times in rounds) - sum(
        int(times.gap_tokens.sum()) for times in rounds
    )
    if unseen > 0:
        return f"gaps between chunks, not tokens: usage counts {unseen} more tokens than were told apart"
    if several:
        return f"{several} of {gaps} frames hold several tokens; their gap is shared out among them"
    return None


def _timed(of: Values, statistic: Callable[[Floats], float], min_n: int) -> Measure:
    def measure(workload: WorkloadRecord, context: Context) -> Sample | None:
        per_round = [of(times) for times in context.rounds]
        values = np.concatenate(per_round) if per_round else np.zeros(0)
        n = len(values)
        if n == 0:
            return nothing_answered(context)
        if values.min() <= 0:
            bad = int((values <= 0).sum())
            note = f"{bad} of {n} values are zero or negative: the clock or the record is broken"
            return Sample(value=None, n=n, note=note, invalid=True)
        if n < min_n:
            return Sample(value=None, n=n, note=f"needs {min_n} values, has {n}")
        value = stable(statistic(values))
        if len(per_round) == 1:
            return Sample(value=value, n=n, per_round=(value,))
        each = tuple(stable(statistic(v)) for v in per_round if len(v))
        return Sample(value=value, n=n, per_round=each if len(each) == len(per_round) else ())

    return measure


def nothing_answered(context: Context) -> Sample | None:
    """Why a workload has no value: every request failed (invalid), or the metric does not apply (None)."""
    requests = sum(times.num_requests for times in context.rounds)
    failed = sum(times.num_failed for times in context.rounds)
    if requests == 0:
        return Sample(value=None, n=0, note="no request was measured", invalid=True)
    if failed == requests:
        return Sample(value=None, n=0, note=f"all {failed} requests failed", invalid=True)
    return None


def throughput(workload: WorkloadRecord, context: Context) -> Sample | None:
    """Completion tokens of answered requests / wall time, tokens/s."""
    return _rate(context, lambda times: int(times.tokens.sum()))


def request_throughput(workload: WorkloadRecord, context: Context) -> Sample | None:
    """Answered requests / wall time, requests/s."""
    return _rate(context, lambda times: times.num_answered)


def prefill(workload: WorkloadRecord, context: Context) -> Sample | None:
    """Prompt tokens computed (cached ones left out) / time from actual send to first token, tokens/s."""
    measured = [times for times in context.rounds if len(times.first_ns)]
    if not measured:
        return nothing_answered(context)
    if any(times.computed_prompt_tokens.min() < 0 for times in measured):
        return None
    pairs = [(int(t.computed_prompt_tokens.sum()), float(ttft_sent(t).sum()) / 1e3) for t in measured]
    if any(ttft_sent(times).min() <= 0 for times in measured):
        return Sample(value=None, n=0, note="a first token before its request was sent", invalid=True)
    return _ratio(pairs, n=sum(len(times.first_ns) for times in measured))


def _rate(context: Context, count: Callable[[Timeline], int]) -> Sample | None:
    if sum(times.num_answered for times in context.rounds) == 0:
        return nothing_answered(context)
    if any(times.wall_ns <= 0 for times in context.rounds):
        return Sample(value=None, n=0, note="a round took no time: the clock is broken", invalid=True)
    pairs = [(count(times), times.wall_ns / 1e9) for times in context.rounds]
    return _ratio(pairs, n=sum(times.num_answered for times in context.rounds))


def _ratio(pairs: Sequence[tuple[int, float]], n: int) -> Sample | None:
    total = sum(count for count, _ in pairs)
    if total == 0:
        return None  # answers without a token, or prompts wholly cached: there is no rate to speak of
    return Sample(
        value=stable(total / sum(seconds for _, seconds in pairs)),
        n=n,
        per_round=tuple(stable(count / seconds) for count, seconds in pairs),
    )
