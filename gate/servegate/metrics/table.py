"""Every metric: one row here, one function elsewhere. The names are public."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from servegate.metrics import behaviour, cost, counters, drift, latency, logprobs, quality
from servegate.metrics.finding import Between
from servegate.metrics.latency import Measure, Values
from servegate.stats.percentiles import min_samples

Kind = Literal["exact", "timed", "logprob", "quality", "cost"]
Better = Literal["lower", "higher", "equal"]


@dataclass(frozen=True)
class MetricSpec:
    """A metric is measured in each arm, or it is what differs between two arms; one of the two is set."""

    name: str
    kind: Kind
    unit: str
    better: Better
    says: str
    measure: Measure | None = None
    """(workload, context) -> sample in ``unit``; None where the metric does not apply to the workload."""
    between: Between | None = None
    min_n: int = 1
    """With fewer observations on either side a change cannot be judged."""
    always_gates: bool = False
    """Counts without a rule in the policy."""


def _exact(name: str, unit: str, better: Better, says: str, measure: Measure) -> MetricSpec:
    return MetricSpec(name, "exact", unit, better, says, measure)


def _differs(name: str, unit: str, says: str, between: Between, kind: Kind = "exact") -> MetricSpec:
    """Zero where both arms are alike."""
    return MetricSpec(name, kind, unit, "lower", says, between=between)


def _percentiles(name: str, of: Values, qs: tuple[int, ...], says: str) -> list[MetricSpec]:
    return [
        MetricSpec(
            f"{name}_p{q}",
            "timed",
            "ms",
            "lower",
            f"p{q} of {says}",
            latency.percentile(of, q),
            min_n=min_samples(q),
        )
        for q in qs
    ]


def _rate(name: str, unit: str, says: str, measure: Measure) -> MetricSpec:
    return MetricSpec(name, "timed", unit, "higher", says, measure)


_BEHAVIOUR = [
    _exact(
        "completion_tokens",
        "tokens",
        "equal",
        "completion tokens of one round's answers",
        behaviour.total_completion_tokens,
    ),
    _exact(
        "completion_tokens_mean",
        "tokens",
        "equal",
        "completion tokens of an answer, on average",
        behaviour.completion_tokens_mean,
    ),
    _differs(
        "completion_length_shift",
        "share",
        "how far completion lengths moved, prompt by prompt",
        drift.completion_length_shift,
    ),
    _differs(
        "finish_reasons",
        "prompts",
        "answers that ended for another reason than the base's",
        drift.finish_reasons,
    ),
    _exact(
        "empty_answers", "share", "lower", "answered requests without a single token", behaviour.empty_answers
    ),
    _differs("token_ids", "prompts", "prompts whose token ids are not the base's", drift.token_ids),
    _differs(
        "logprob_delta",
        "nat",
        "largest difference of a logprob on the base's own completions",
        logprobs.logprob_delta,
        "logprob",
    ),
    _differs(
        "logprob_delta_mean",
        "nat",
        "mean difference of logprobs on the base's own completions",
        logprobs.logprob_delta_mean,
        "logprob",
    ),
    MetricSpec(
        "quality_lost",
        "quality",
        "checks",
        "lower",
        "of the quality checks that passed on the base fail now",
        between=drift.quality_lost,
        always_gates=True,
    ),
    MetricSpec(
        "quality_pass_rate",
        "quality",
        "share",
        "higher",
        "quality checks that pass",
        quality.quality_pass_rate,
    ),
    _exact("error_rate", "share", "lower", "requests without a usable answer", behaviour.error_rate),
    _exact(
        "unstable_prompts",
        "prompts",
        "lower",
        "prompts whose token ids differ between rounds of one run",
        behaviour.unstable_prompts,
    ),
]

_USAGE = [
    _exact(
        "prompt_tokens",
        "tokens",
        "equal",
        "prompt tokens of one round, as metered",
        behaviour.from_usage(lambda u: u.prompt_tokens),
    ),
    _exact(
        "cached_tokens",
        "tokens",
        "higher",
        "prompt tokens of one round that the prefix cache spared",
        behaviour.from_usage(lambda u: u.cached_tokens),
    ),
    _exact(
        "recomputed_tokens",
        "tokens",
        "lower",
        "tokens of one round that were run again after a preemption",
        behaviour.from_usage(lambda u: u.recomputed_tokens),
    ),
    _exact(
        "usage_mismatch",
        "requests",
        "lower",
        "answers whose metered completion tokens are not those seen",
        behaviour.usage_mismatch,
    ),
    MetricSpec(
        "cost_per_request",
        "cost",
        "per request",
        "lower",
        "price of all tokens or machine time, over answered requests",
        cost.cost_per_request,
    ),
]

_COUNTERS = [
    _exact("steps", "steps", "lower", "scheduler steps of one round", counters.total("steps")),
    _exact(
        "prefill_tokens",
        "tokens",
        "lower",
        "tokens that prefill ran through the model",
        counters.total("prefill_tokens"),
    ),
    _exact(
        "decode_tokens", "tokens", "equal", "tokens that decode generated", counters.total("decode_tokens")
    ),
    _exact(
        "preemptions",
        "times",
        "lower",
        "requests thrown out of the KV pool to be recomputed",
        counters.total("preemptions"),
    ),
    _exact(
        "evictions", "blocks", "lower", "cached KV blocks given up to make room", counters.total("evictions")
    ),
    _exact("peak_blocks", "blocks", "lower", "most KV blocks in use at once", counters.peak("peak_blocks")),
    _exact(
        "peak_running", "requests", "higher", "most requests running at once", counters.peak("peak_running")
    ),
    _exact(
        "kv_concurrency",
        "requests",
        "higher",
        "how many of the longest requests the KV pool holds at once",
        counters.kv_concurrency,
    ),
]

_LATENCY = [
    *_percentiles("ttft", latency.ttft, (50, 95, 99), "time from scheduled send to first token"),
    *_percentiles("ttft_sent", latency.ttft_sent, (50, 95, 99), "time from actual send to first token"),
    _rate("prefill", "tokens/s", "prompt tokens computed per second until the first token", latency.prefill),
    *_percentiles("itl", latency.itl, (50, 95), "each request's mean time between tokens"),
    MetricSpec(
        "decode_p95",
        "timed",
        "ms",
        "lower",
        "p95 of all gaps between tokens",
        latency.decode_p95,
        min_n=min_samples(95),
    ),
    *_percentiles("stall", latency.stall, (95,), "each request's largest gap"),
    MetricSpec(
        "stall_max", "timed", "ms", "lower", "largest gap of any request", latency.largest(latency.stall)
    ),
    *_percentiles("e2e", latency.e2e, (50, 95), "time from scheduled send to last token"),
    _rate("throughput", "tokens/s", "completion tokens per second", latency.throughput),
    _rate("request_throughput", "requests/s", "answered requests per second", latency.request_throughput),
]

METRICS: Final[dict[str, MetricSpec]] = {
    spec.name: spec for spec in (*_BEHAVIOUR, *_USAGE, *_COUNTERS, *_LATENCY)
}
"""In the order of a report: what was answered, what was used, what the engine did, how fast."""
