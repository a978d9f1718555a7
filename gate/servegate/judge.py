"""One row, judged: base, head and a rule in; a state and a sentence out.

`judge` is the only place where a change between two stored runs becomes a verdict. What can be counted is
held to its tolerance as it is; what comes from a clock by the interval that the rounds give (`timed`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from servegate import timed
from servegate.facts import Sample
from servegate.metrics.context import stable
from servegate.metrics.table import MetricSpec
from servegate.stats.launches import InvalidSamplesError
from servegate.suite.schema import Rule
from servegate.verdict import Evidence, State
from servegate.wording import amount, number, percent

BEYOND_BELIEF: Final = 3.0
"""An improvement by more than this factor is flagged: such a baseline was measured under something else."""

_SLACK: Final = 1 + 1e-9
"""A change of exactly the tolerance is within it, whatever binary fractions make of it."""


@dataclass(frozen=True)
class Judgement:
    state: State
    change: float | None
    """Relative to base; None where base is zero or there is nothing to divide."""
    tolerance: str
    """The rule in words."""
    reason: str
    judged: tuple[float, float] | None = None
    """Base and head as their rounds were judged, where those of all rounds together may differ; else None."""
    detail: tuple[str, ...] = ()
    evidence: Evidence | None = None


def judge(
    spec: MetricSpec, rule: Rule | None, base: Sample | None, head: Sample | None, *, timed_rows: int = 1
) -> Judgement:
    """Judge one metric of one workload.

    In this order: a missing head; an invalid number on either side; too few samples; the rule's absolute
    limits, which need no base; a missing base; then the change. Without a rule, equality is expected of
    everything but a clock. ``timed_rows`` is how many gating rows come from a clock: they share the error.
    """
    tolerance = in_words(spec, rule)

    def judged(state: State, reason: str, change: float | None = None) -> Judgement:
        return Judgement(state, change, tolerance, reason)

    if head is None:
        return judged(State.MISSING, "the base has this metric and the head does not")
    for arm, sample in (("head", head), ("base", base)):
        problem = sample and _problem(spec, sample)
        if problem:
            return judged(State.INVALID, f"{arm}: {problem}")
    if head.value is None or head.n < spec.min_n:
        return judged(State.INCONCLUSIVE, f"head: {_too_few(spec, head)}")
    limit = _beyond_limit(spec, rule, head.value)
    if limit:
        return judged(State.REGRESSED, limit, _relative(base, head))
    if base is None and not _needs_no_base(rule):
        return judged(State.NEW, "the base has no value to compare with")
    if base is None or _needs_no_base(rule):
        return judged(
            State.PASS, f"{amount(head.value, spec.unit)} is within its limit", _relative(base, head)
        )
    if base.value is None or base.n < spec.min_n:
        return judged(State.INCONCLUSIVE, f"base: {_too_few(spec, base)}")
    if spec.kind == "timed" and rule is not None and rule.change is not None:
        return _by_rounds(spec, rule, base, head, timed_rows)
    state, reason = _compared(spec, rule, base.value, head.value)
    return judged(state, reason, _relative(base, head))


def in_words(spec: MetricSpec, rule: Rule | None) -> str:
    """``+10 % and 20 ms``, ``equal``, ``at most 1e-06 nat``."""
    if rule is None and spec.always_gates:
        return "none"
    if rule is None:
        return "shown only" if spec.kind == "timed" else "equal expected; shown only"
    parts = []
    if rule.equal:
        parts.append("equal")
    if rule.change is not None:
        sign = {"lower": "+", "higher": "-", "equal": "±"}[spec.better]
        floor = f" and {amount(rule.floor, spec.unit)}" if rule.floor is not None else ""
        parts.append(f"{sign}{number(rule.change * 100)} %{floor}")
    if rule.max is not None:
        parts.append(f"at most {amount(rule.max, spec.unit)}")
    if rule.min is not None:
        parts.append(f"at least {amount(rule.min, spec.unit)}")
    return ", ".join(parts)


def _problem(spec: MetricSpec, sample: Sample) -> str | None:
    """Why the sample is no measurement at all."""
    if sample.invalid or sample.n == 0:
        return sample.note or "no samples"
    value = sample.value
    if value is None:
        return None
    if not math.isfinite(value) or value < 0:
        return f"{value!r} is not a possible value"
    if value == 0 and spec.kind == "timed":
        return f"a value of 0 {spec.unit} is missing data, not a measurement"
    return None


def _too_few(spec: MetricSpec, sample: Sample) -> str:
    return sample.note or f"needs {spec.min_n} values, has {sample.n}"


def _beyond_limit(spec: MetricSpec, rule: Rule | None, head: float) -> str | None:
    if rule is not None and rule.max is not None and head > rule.max * _SLACK:
        return f"{amount(head, spec.unit)} is above the limit of {amount(rule.max, spec.unit)}"
    if rule is not None and rule.min is not None and head * _SLACK < rule.min:
        return f"{amount(head, spec.unit)} is below the limit of {amount(rule.min, spec.unit)}"
    return None


def _needs_no_base(rule: Rule | None) -> bool:
    return rule is not None and rule.change is None and not rule.equal


def _compared(spec: MetricSpec, rule: Rule | None, base: float, head: float) -> tuple[State, str]:
    if rule is None and spec.kind == "timed":
        return State.PASS, "no rule in the policy; shown only"
    if base == head:
        none = "no difference between base and head"
        return State.PASS, none if spec.between else f"unchanged at {amount(head, spec.unit)}"
    if rule is not None and rule.equal:
        return State.REGRESSED, f"must be equal: {_moved(spec, base, head)}"
    return _by_tolerance(spec, rule, base, head)


def _by_tolerance(spec: MetricSpec, rule: Rule | None, base: float, head: float) -> tuple[State, str]:
    """Beyond the tolerance where ``|head - base|`` exceeds both ``change * |base|`` and ``floor``.

    From a base of zero there is no relative change, and the floor alone decides. Without a rule both are 0.
    """
    share = rule.change if rule is not None and rule.change is not None else 0.0
    floor = float(rule.floor) if rule is not None and rule.floor is not None else 0.0
    difference = abs(head - base)
    moved = _moved(spec, base, head)
    if base == 0 and difference <= floor * _SLACK:
        return State.PASS, f"{moved}, within the floor of {amount(floor, spec.unit)}"
    if difference <= share * base * _SLACK:
        return State.PASS, f"{moved}, within {number(share * 100)} %"
    if difference <= floor * _SLACK:
        return State.PASS, f"{moved}, less than the floor of {amount(floor, spec.unit)}"
    if spec.better == "equal" or (head > base) == (spec.better == "lower"):
        return State.REGRESSED, moved
    if max(base, head) > BEYOND_BELIEF * min(base, head):
        return State.IMPROVED, f"{moved}: {_beyond_belief(base, head)}"
    return State.IMPROVED, moved


def _by_rounds(spec: MetricSpec, rule: Rule, base: Sample, head: Sample, rows: int) -> Judgement:
    tolerance = in_words(spec, rule)
    try:
        found = timed.decided(spec, rule, base, head, rows)
    except InvalidSamplesError as error:
        return Judgement(State.INCONCLUSIVE, _relative(base, head), tolerance, str(error))
    before = timed.typical(base)
    after = before * (1 + found.estimate)
    reason = found.reason
    if found.beyond_belief:
        reason = f"{reason}: {_beyond_belief(before, after)}"
    return Judgement(
        state=State(found.state),
        change=found.estimate,
        tolerance=tolerance,
        reason=reason,
        judged=(stable(before), stable(after)),
        detail=timed.in_detail(spec, found, base, head),
        evidence=timed.described(found),
    )


def _beyond_belief(base: float, head: float) -> str:
    large, small = max(base, head), min(base, head)
    factor = f"{number(large / small)} times better" if small > 0 else "down to nothing"
    return f"{factor} is beyond belief; was the base measured under the same load?"


def _moved(spec: MetricSpec, base: float, head: float) -> str:
    if spec.between:
        is_count = spec.unit not in ("share", "nat")
        return f"{number(head)} {spec.says}" if is_count else f"{amount(head, spec.unit)}: {spec.says}"
    if base == 0:
        return f"from zero to {amount(head, spec.unit)}"
    change = _share(base, head)
    by = f" ({percent(change)})" if change is not None else ""
    return f"{amount(base, spec.unit)} -> {amount(head, spec.unit)}{by}"


def _relative(base: Sample | None, head: Sample) -> float | None:
    if base is None or base.value is None or head.value is None:
        return None
    return _share(base.value, head.value)


def _share(base: float, head: float) -> float | None:
    """head / base - 1; None from zero, and where the ratio overflows."""
    if base == 0:
        return None
    change = head / base - 1
    return change if math.isfinite(change) else None
