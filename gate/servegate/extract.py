"""Record -> facts: every metric of the table, and what each prompt gave. Pure."""

from __future__ import annotations

from collections import Counter

from servegate.facts import Facts, PromptFacts, Sample, WorkloadFacts
from servegate.load import STARVED, in_words, is_contended, starved_share
from servegate.metrics.context import Context
from servegate.metrics.quality import check_answers
from servegate.metrics.repeats import NO_REASON, answer_facts, forced_facts, rounded
from servegate.metrics.table import METRICS, MetricSpec
from servegate.metrics.timeline import failure
from servegate.record import RequestRecord, RunRecord, WorkloadRecord
from servegate.suite.schema import MachinePrices, Suite
from servegate.wording import amount


def facts(record: RunRecord, suite: Suite | None = None) -> Facts:
    """What the record says. Without a suite there are no prices and no quality checks.

    Workloads with reference numerics keep what each prompt gave and no time: it holds on every machine, and
    their times mean nothing. Native ones keep times and counters.
    """
    prices = suite.prices if suite is not None else None
    return Facts(
        suite=record.suite,
        suite_digest=record.suite_digest,
        prompt_set_digest=record.prompt_set_digest,
        created=record.created,
        commit=record.commit,
        fingerprint=record.fingerprint,
        prices=prices,
        workloads={workload.name: _workload_facts(workload, record, suite) for workload in record.workloads},
        complete=record.complete,
    )


def _workload_facts(workload: WorkloadRecord, record: RunRecord, suite: Suite | None) -> WorkloadFacts:
    quality = check_answers(workload, suite.quality) if suite is not None else ()
    context = Context.of(workload, record.fingerprint, suite.prices if suite is not None else None, quality)
    metrics: dict[str, Sample] = {}
    for spec in METRICS.values():
        if spec.measure is None or not _applies(spec, workload, context):
            continue
        sample = spec.measure(workload, context)
        if sample is not None:
            metrics[spec.name] = sample
    is_reference = workload.numerics == "reference"
    first_round = workload.rounds[0].requests if workload.rounds else ()
    return WorkloadFacts(
        numerics=workload.numerics,
        offered=workload.offered,
        metrics=metrics,
        prompts={r.id: _prompt_facts(r) for r in first_round if is_reference and _has_exact_answer(r)},
        failed={r.id: error for r in first_round if (error := failure(r)) is not None},
        finish_reasons=dict(Counter(request.finish_reason or NO_REASON for request in context.answers)),
        forced=forced_facts(workload.forced),
        answers=answer_facts(workload.rounds) if is_reference else {},
        quality=quality,
        contended=None if is_reference else _contended(workload),
    )


def _contended(workload: WorkloadRecord) -> str | None:
    """Who took CPU time that the engine could have used, by the worst round; or that its client waited."""
    starved = starved_share(workload.rounds)
    if starved > STARVED:
        return f"its client waited for a CPU {amount(starved, 'share')} of the time"
    loads = [round_.load for round_ in workload.rounds if round_.load and is_contended(round_.load)]
    return in_words(max(loads, key=lambda load: load.others + load.stolen)) if loads else None


def _applies(spec: MetricSpec, workload: WorkloadRecord, context: Context) -> bool:
    """Float64 arithmetic is slow on purpose: nothing that comes from a clock is kept of it."""
    if workload.numerics == "native":
        return True
    by_clock = spec.name == "cost_per_request" and isinstance(context.prices, MachinePrices)
    return spec.kind != "timed" and not by_clock


def _has_exact_answer(request: RequestRecord) -> bool:
    return failure(request) is None and request.token_ids is not None


def _prompt_facts(request: RequestRecord) -> PromptFacts:
    return PromptFacts(
        prompt_digest=request.prompt_digest,
        finish_reason=request.finish_reason or NO_REASON,
        prompt_tokens=request.usage.prompt_tokens if request.usage is not None else 0,
        completion_ids=tuple(request.token_ids or ()),
        logprobs=rounded(request.logprobs or ()),
        near_ties=request.near_ties,
    )
