"""Rows of a target that does not repeat itself: judged against its own variation, or left undecided.

That a target varies is seen, never assumed: from rounds of one arm that gave other answers to one prompt.
Where they do, an answer of head that is not base's is no finding. What counts is whether answers of head lie
further from base's than base's from each other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Final

from servegate.answers.tested import TESTED, Varying
from servegate.facts import Sample, WorkloadFacts
from servegate.fingerprint import Fingerprint
from servegate.judge import judge
from servegate.metrics.logprobs import RESOLUTION
from servegate.metrics.table import METRICS, MetricSpec
from servegate.suite.schema import Policy, Rule
from servegate.verdict import DECIDED, Row, State
from servegate.wording import count, number

EXACT_WHATEVER: Final = frozenset({"error_rate"})
"""A request without an answer is a failure, not a variation."""
ONCE: Final = (
    "each prompt was answered once: whether the target repeats itself is not known; `repeat: 5` or "
    "`servegate ab` tells"
)

Pair = tuple[str, WorkloadFacts, WorkloadFacts]
"""(head's name, base, head)."""


def variation(workload: WorkloadFacts) -> tuple[str, ...]:
    """What differs between the rounds of one arm, in words; empty where all is equal, or nothing repeated."""
    answers, scores = workload.answers.values(), workload.forced.values()
    found = (
        (sum(a.distinct > 1 for a in answers), "token ids"),
        (sum(a.distinct <= 1 < len(set(a.lengths) - {None}) for a in answers), "lengths"),
        (sum(len(set(a.finish_reasons) - {None}) > 1 for a in answers), "finish reasons"),
        (sum(a.logprob_spread > RESOLUTION for a in answers), "logprobs"),
        (sum(_apart((s.logprobs, *s.again)) > RESOLUTION for s in scores), "scores"),
    )
    return tuple(f"{what} of {count(prompts, 'prompt')}" for prompts, what in found if prompts)


def settled(rows: Sequence[Row], pairs: Sequence[Pair], policy: Policy, suite_digest: str) -> list[Row]:
    """The rows, with those of varying answers judged again.

    Rows with a rule on lengths, finish reasons, logprobs or quality are tested, together at ``NOISE``. Other
    exact rows stand where they repeat themselves or lie within their tolerance in every round, and are
    inconclusive otherwise: never regressed. So are counters that vary although the answers do not.
    """
    arms = {name: Varying.of(old, new) for name, old, new in pairs if _exact(old) and _exact(new)}
    varying = {name for name, both in arms.items() if variation(both.old) or variation(both.new)}
    tests = sum(count_tests(name, bool(arms[name].new.quality), policy) for name in varying)
    found = []
    for row in rows:
        spec, rule = METRICS.get(row.metric), rule_for(policy, row.workload, row.metric)
        if spec is None or row.kind == "timed" or row.state not in DECIDED:
            found.append(row)
        elif row.workload in varying:
            seed = hashlib.sha256(f"{suite_digest}/{row.workload}/{row.metric}".encode()).digest()
            found.append(_settle(row, spec, rule, arms[row.workload], tests, int.from_bytes(seed[:8], "big")))
        elif row.workload in arms and _counts_otherwise(row.metric, arms[row.workload]):
            found.append(_unless_varying(row, spec, rule, arms[row.workload]))
        else:
            found.append(row)
    return found


def seen_once(rows: Sequence[Row], pairs: Sequence[Pair], head: Fingerprint) -> Iterator[str]:
    """A note where answers regressed and nobody saw whether the target repeats itself.

    The embedded engine's float64 does by construction, and its tests hold it to that.
    """
    if head.served.get("dtype.reference") == "float64":
        return
    once = {name for name, old, new in pairs if _seen_once(old, new)}
    if any(r.workload in once and r.metric in TESTED and r.state is State.REGRESSED for r in rows):
        yield ONCE


def count_tests(workload: str, has_checks: bool, policy: Policy) -> int:
    """How many tests the workload's rows take if its answers vary: what the level is shared among."""
    return sum(
        test.tests
        for metric, test in TESTED.items()
        if test.applies(rule_for(policy, workload, metric)) or (METRICS[metric].always_gates and has_checks)
    )


def rule_for(policy: Policy, workload: str, metric: str) -> Rule | None:
    return policy.rules.get(f"{workload}.{metric}") or policy.rules.get(metric)


def _settle(row: Row, spec: MetricSpec, rule: Rule | None, varying: Varying, tests: int, seed: int) -> Row:
    if row.metric in EXACT_WHATEVER:
        return row
    test = TESTED.get(row.metric)
    if test is None or not (test.applies(rule) or spec.always_gates):
        return _unless_varying(row, spec, rule, varying)
    if test.stands(row, rule):
        return row
    found = test.judged(row, rule, varying, tests, seed)
    return found.model_copy(update={"detail": (_told(varying), *found.detail)})


def _unless_varying(row: Row, spec: MetricSpec, rule: Rule | None, varying: Varying) -> Row:
    """A counter or a cost: exact where it repeats itself, and undecided where it does not."""
    if rule is not None and _beyond_own_limit(spec, rule, row):
        return row
    before, after = (_per_round(facts, row.metric) for facts in (varying.old, varying.new))
    if len(before) > 1 and len(after) > 1 and len(set(before)) == len(set(after)) == 1:
        return row
    if not (before and after) and row.state is State.PASS:
        return row
    first = Sample(value=before[0], n=spec.min_n) if before else None
    states = [
        judge(spec, rule, first, Sample(value=value, n=spec.min_n)).state for value in (*before, *after)
    ]
    if first is not None and after and all(state in (State.PASS, State.IMPROVED) for state in states):
        return row
    spread = [f"{arm} {_range(values)}" for arm, values in (("base", before), ("head", after)) if values]
    seen = f": {', '.join(spread)} {row.unit}" if spread else ""
    reason = f"the target does not repeat itself{seen}"
    return row.model_copy(update={"state": State.INCONCLUSIVE, "reason": reason})


def _beyond_own_limit(spec: MetricSpec, rule: Rule, row: Row) -> bool:
    """A rule's max or min holds whatever base does."""
    if rule.change is None and not rule.equal:
        return True
    if not isinstance(row.head, float):
        return False
    above = rule.max is not None and row.head > rule.max
    return above or (rule.min is not None and row.head < rule.min)


def _exact(facts: WorkloadFacts) -> bool:
    """Native numerics vary with what shares a batch: there only times are judged by their noise."""
    return facts.numerics == "reference"


def _counts_otherwise(metric: str, both: Varying) -> bool:
    """Does the number differ between rounds of one arm, although the answers repeat themselves?"""
    return any(len(set(_per_round(facts, metric))) > 1 for facts in (both.old, both.new))


def _per_round(facts: WorkloadFacts, metric: str) -> tuple[float, ...]:
    sample = facts.metrics.get(metric)
    return sample.per_round if sample is not None else ()


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return number(low) if low == high else f"{number(low)} to {number(high)}"


def _told(varying: Varying) -> str:
    """What was seen to vary, in which arm."""
    seen = (("base", variation(varying.old)), ("head", variation(varying.new)))
    arms = "; ".join(f"{arm} differs from itself in {', '.join(found)}" for arm, found in seen if found)
    return f"the target does not repeat itself: {arms}"


def _seen_once(old: WorkloadFacts, new: WorkloadFacts) -> bool:
    if new.numerics != "reference" or not new.prompts:
        return False
    return not (old.answers or new.answers or old.rounds_a_run or new.rounds_a_run)


def _apart(scores: Sequence[tuple[float, ...]]) -> float:
    """Largest difference of a position between scores of one completion."""
    return max((max(at) - min(at) for at in zip(*scores, strict=True)), default=0.0)
