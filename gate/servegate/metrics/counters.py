"""What the engine did, as it counts itself: the tight gate on a noisy machine."""

from __future__ import annotations

from collections.abc import Callable

from servegate.facts import Sample
from servegate.metrics.behaviour import mean_of_rounds
from servegate.metrics.context import Context
from servegate.metrics.timeline import completion_tokens
from servegate.record import WorkloadRecord

Measure = Callable[[WorkloadRecord, Context], Sample | None]


def total(name: str) -> Measure:
    """The counter over one round; over several rounds, the mean."""

    def measure(workload: WorkloadRecord, context: Context) -> Sample | None:
        values = _values(workload, name)
        return mean_of_rounds(values, len(values)) if values else None

    return measure


def peak(name: str) -> Measure:
    """The counter's largest value in any round."""

    def measure(workload: WorkloadRecord, context: Context) -> Sample | None:
        values = _values(workload, name)
        if not values:
            return None
        return Sample(value=float(max(values)), n=len(values), per_round=tuple(map(float, values)))

    return measure


def _values(workload: WorkloadRecord, name: str) -> list[int]:
    """The counter of each round; nothing unless every round has it."""
    values = [round_.counters[name] for round_ in workload.rounds if name in round_.counters]
    return values if len(values) == len(workload.rounds) else []


def kv_concurrency(workload: WorkloadRecord, context: Context) -> Sample | None:
    """How many of the workload's longest requests fit in the KV pool at once, sharing nothing.

    ``num_blocks // ceil((prompt + completion tokens) / block_size)``, with the fingerprint's pool.
    """
    served = context.fingerprint.served
    try:
        block_size, num_blocks = int(served["engine.block_size"]), int(served["engine.num_blocks"])
    except (KeyError, ValueError):
        return None
    sizes = [
        request.usage.prompt_tokens + completion_tokens(request)
        for request in context.answers
        if request.usage is not None
    ]
    longest = max(sizes, default=0)
    if longest == 0 or block_size < 1 or not 0 <= num_blocks < 2**53:
        return None
    return Sample(value=float(num_blocks // -(-longest // block_size)), n=len(sizes))
