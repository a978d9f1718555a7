"""What the answers were: lengths, usage, errors. Exact on a target that repeats itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from servegate.facts import Sample
from servegate.metrics.context import Context, stable
from servegate.metrics.latency import nothing_answered
from servegate.metrics.timeline import completion_tokens, tokens_seen
from servegate.record import RequestRecord, Usage, WorkloadRecord

Measure = Callable[[WorkloadRecord, Context], Sample | None]


def total_completion_tokens(workload: WorkloadRecord, context: Context) -> Sample | None:
    """Completion tokens of one round's answers; over several rounds, their mean."""
    return _per_round_total(context, completion_tokens)


def completion_tokens_mean(workload: WorkloadRecord, context: Context) -> Sample | None:
    """Completion tokens of an answered request, mean over all rounds."""
    lengths = [completion_tokens(request) for request in context.answers]
    if not lengths:
        return nothing_answered(context)
    return Sample(value=stable(sum(lengths) / len(lengths)), n=len(lengths))


def empty_answers(workload: WorkloadRecord, context: Context) -> Sample | None:
    """Share of answered requests without a single token: a mean length hides them."""
    lengths = [completion_tokens(request) for request in context.answers]
    if not lengths:
        return nothing_answered(context)
    return Sample(value=stable(lengths.count(0) / len(lengths)), n=len(lengths))


def error_rate(workload: WorkloadRecord, context: Context) -> Sample | None:
    """Share of requests without a usable answer."""
    requests = sum(times.num_requests for times in context.rounds)
    if requests == 0:
        return nothing_answered(context)
    failed = sum(times.num_failed for times in context.rounds)
    return Sample(value=stable(failed / requests), n=requests)


def usage_mismatch(workload: WorkloadRecord, context: Context) -> Sample | None:
    """Answered requests whose metered completion tokens are not the number that was seen."""
    counted = [request for request in context.answers if request.usage is not None]
    if not counted:
        return None
    differing = sum(completion_tokens(request) != tokens_seen(request) for request in counted)
    return Sample(value=float(differing), n=len(counted))


def unstable_prompts(workload: WorkloadRecord, context: Context) -> Sample | None:
    """Requests whose token ids differ between rounds of this very run: the target does not repeat itself."""
    if len(workload.rounds) < 2:
        return None
    by_id: dict[str, list[bytes]] = {}
    for request in context.answers:
        if request.token_ids is not None:
            by_id.setdefault(request.id, []).append(request.token_ids.array.tobytes())
    repeated = [answers for answers in by_id.values() if len(answers) > 1]
    if not repeated:
        return None
    return Sample(value=float(sum(len(set(answers)) > 1 for answers in repeated)), n=len(repeated))


def from_usage(of: Callable[[Usage], int | None]) -> Measure:
    """Total over one round of a number that the engine meters by request; mean over several rounds.

    None where it meters some request without that number.
    """

    def metered(request: RequestRecord) -> int | None:
        return of(request.usage) if request.usage is not None else None

    def measure(workload: WorkloadRecord, context: Context) -> Sample | None:
        if any(metered(request) is None for request in context.answers):
            return None
        return _per_round_total(context, lambda request: metered(request) or 0)

    return measure


def has_usage(requests: Iterable[RequestRecord]) -> bool:
    return all(request.usage is not None for request in requests)


def _per_round_total(context: Context, of: Callable[[RequestRecord], int]) -> Sample | None:
    rounds = [[of(request) for request in answered] for answered in context.answered]
    n = sum(map(len, rounds))
    if n == 0:
        return nothing_answered(context)
    return mean_of_rounds([sum(values) for values in rounds], n)


def mean_of_rounds(totals: Sequence[int], n: int) -> Sample:
    """Exact numbers do not depend on how often a workload was repeated."""
    return Sample(
        value=stable(sum(totals) / len(totals)), n=n, per_round=tuple(float(total) for total in totals)
    )
