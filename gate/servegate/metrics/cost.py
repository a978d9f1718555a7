"""What an answer costs, at the suite's prices."""

from __future__ import annotations

from servegate.facts import Sample
from servegate.metrics.behaviour import has_usage
from servegate.metrics.context import Context, stable
from servegate.metrics.latency import nothing_answered
from servegate.record import RequestRecord, Usage, WorkloadRecord
from servegate.suite.schema import MachinePrices, TokenPrices

_NS_PER_HOUR = 3.6e12


def cost_per_request(workload: WorkloadRecord, context: Context) -> Sample | None:
    """Price of all that was used / answered requests, in the currency of the prices.

    By tokens: (computed prompt * its price + cached * its price + completion * its price) / per. Every
    attempt of a retried request is charged as the one that answered, whose usage alone is known; a failed
    request is charged what it used; tokens recomputed after a preemption are never billed.
    By machine-hour: wall time * price, so it is as noisy as a latency.
    """
    prices = context.prices
    if prices is None:
        return None
    answered = sum(times.num_answered for times in context.rounds)
    if answered == 0:
        return nothing_answered(context)
    if isinstance(prices, MachinePrices):
        return _by_machine_hour(context, prices, answered)
    return _by_tokens([r for round_ in workload.rounds for r in round_.requests], prices, answered)


def token_price(usage: Usage, prices: TokenPrices) -> float:
    """Of one attempt. Cached tokens never exceed prompt tokens, whatever the engine claims.

    Where it does not tell them, all of the prompt has its full price: never too cheap.
    """
    cached = min(usage.cached_tokens or 0, usage.prompt_tokens)
    computed = usage.prompt_tokens - cached
    total = computed * prices.prompt + cached * prices.cached + usage.completion_tokens * prices.completion
    return total / prices.per


def _by_tokens(requests: list[RequestRecord], prices: TokenPrices, answered: int) -> Sample:
    if not has_usage(request for request in requests if request.error is None):
        missing = sum(request.usage is None for request in requests if request.error is None)
        note = f"{missing} answers came without usage: their cost is unknown, and not zero"
        return Sample(value=None, n=answered, note=note, invalid=True)
    total = sum(
        token_price(request.usage, prices) * request.attempts
        for request in requests
        if request.usage is not None
    )
    return Sample(value=stable(total / answered), n=answered)


def _by_machine_hour(context: Context, prices: MachinePrices, answered: int) -> Sample:
    if any(times.wall_ns <= 0 for times in context.rounds):
        return Sample(value=None, n=answered, note="a round took no time: the clock is broken", invalid=True)
    per_ns = prices.machine_hour / _NS_PER_HOUR
    total = sum(times.wall_ns for times in context.rounds) * per_ns
    each = tuple(
        stable(times.wall_ns * per_ns / times.num_answered) for times in context.rounds if times.num_answered
    )
    return Sample(
        value=stable(total / answered), n=answered, per_round=each if len(each) == len(context.rounds) else ()
    )
