"""All runs of the exact workloads put together, where the first ones do not repeat themselves. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from servegate.ab.record import AbRecord, AnswerRun
from servegate.answers.evidence import NOISE
from servegate.answers.settle import count_tests, variation
from servegate.facts import Facts, WorkloadFacts
from servegate.metrics.repeats import answer_facts, forced_facts
from servegate.record import RunRecord, WorkloadRecord
from servegate.stats.runs import runs_needed
from servegate.suite.schema import Suite
from servegate.wording import count

Arms = tuple[RunRecord, RunRecord]
"""(base, head)."""


def together(first: WorkloadRecord, runs: Iterable[AnswerRun], *, head: bool) -> WorkloadRecord:
    """An arm's workload with the rounds and scores of all of its runs, the first one's first."""
    more = [r.workload for r in runs if r.workload.name == first.name and (r.role == "head") == head]
    rounds = tuple(round_ for workload in (first, *more) for round_ in workload.rounds)
    forced = tuple(score for workload in (first, *more) for score in workload.forced)
    return first.model_copy(update={"rounds": rounds, "forced": forced})


def differences(workload: WorkloadRecord) -> tuple[str, ...]:
    """What its rounds answer differently, in words."""
    return variation(
        WorkloadFacts(
            numerics="reference",
            offered={},
            metrics={},
            forced=forced_facts(workload.forced),
            answers=answer_facts(workload.rounds),
        )
    )


def anything(workload: WorkloadRecord) -> bool:
    """Do its rounds answer differently, or did the engine count otherwise?"""
    counted = []
    for round_ in workload.rounds:
        usages = [request.usage for request in round_.requests if request.usage is not None]
        spared = [(u.prompt_tokens, u.cached_tokens or 0, u.recomputed_tokens) for u in usages]
        counted.append((round_.counters, [sum(column) for column in zip(*spared, strict=True)]))
    return bool(differences(workload)) or any(count != counted[0] for count in counted)


def varying(
    base: Sequence[WorkloadRecord],
    head: Sequence[WorkloadRecord],
    runs: Sequence[AnswerRun],
    differ: Callable[[WorkloadRecord], object] = differences,
) -> list[str]:
    """Workloads of both arms of which either differs from itself in another run or round; in its answers,
    unless ``differ`` is `anything`."""
    heads = {workload.name: workload for workload in head}
    return [
        first.name
        for first in base
        if first.numerics == "reference" == heads.get(first.name, first).numerics
        and first.name in heads
        and (
            differ(together(first, runs, head=False)) or differ(together(heads[first.name], runs, head=True))
        )
    ]


def needed_runs(names: Sequence[str], suite: Suite) -> int:
    """Runs of each arm with which the tests of these workloads' rows reach their level."""
    tests = sum(count_tests(name, bool(suite.quality), suite.policy) for name in names)
    return runs_needed(NOISE / max(tests, 1))


def with_all_runs(arms: Arms, record: AbRecord) -> Arms:
    """Both arms, workloads that vary in anything with all of their runs."""
    names = varying(arms[0].workloads, arms[1].workloads, record.answers, anything)

    def arm(run: RunRecord, *, head: bool) -> RunRecord:
        workloads = [
            together(first, record.answers, head=head) if first.name in names else first
            for first in run.workloads
        ]
        return run.model_copy(update={"workloads": tuple(workloads)})

    return arm(arms[0], head=False), arm(arms[1], head=True)


def by_run(facts: Facts, first: RunRecord, record: AbRecord) -> Facts:
    """Facts that know how many rounds each process gave, since base was measured in two at least."""
    if not record.answers:
        return facts
    sizes = {w.name: len(w.rounds) for w in first.workloads if w.numerics == "reference"}
    workloads = {
        name: workload.model_copy(update={"rounds_a_run": sizes.get(name)})
        for name, workload in facts.workloads.items()
    }
    return facts.model_copy(update={"workloads": workloads})


def notes(record: AbRecord, suite: Suite) -> Iterator[str]:
    """Which workloads do not repeat themselves, and with how many runs that was met."""
    names = varying(record.base.workloads, record.head.workloads, record.answers)
    needed = needed_runs(names, suite)
    for name in names:
        runs = [run for run in record.answers if run.workload.name == name]
        heads = 1 + sum(run.role == "head" for run in runs)
        short = "" if heads >= needed else f", where {needed} are needed: a larger --budget"
        yield (
            f"{name}: the target does not repeat itself; its answers are judged as distributions, over "
            f"{count(2 + len(runs) - heads, 'run')} of base and {heads} of head{short}"
        )
