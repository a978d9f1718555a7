"""One row: base, head and rule in; state and reason out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servegate.facts import Sample
from servegate.judge import Judgement, judge
from servegate.metrics.table import METRICS
from servegate.suite.schema import Rule
from servegate.verdict import State


def judged(
    metric: str, base: float | None, head: float | None, rule: dict[str, Any] | None, n: int = 1000
) -> Judgement:
    arms = [None if value is None else Sample(value=value, n=n) for value in (base, head)]
    return judge(METRICS[metric], Rule.model_validate(rule) if rule else None, *arms)


TTFT = {"change": "10%", "floor": "20ms"}
PREFILL = {"change": "10%", "floor": 20}


@pytest.mark.parametrize(
    ("metric", "rule", "base", "head", "state"),
    [
        ("prefill_tokens", PREFILL, 100, 115, State.PASS),  # +15 %, below the floor
        ("prefill_tokens", PREFILL, 1000, 1050, State.PASS),  # 50 tokens, below the share
        ("prefill_tokens", PREFILL, 1000, 1100, State.PASS),  # exactly the tolerance
        ("prefill_tokens", PREFILL, 100, 120, State.PASS),  # exactly the floor
        ("prefill_tokens", PREFILL, 1000, 1101, State.REGRESSED),
        ("prefill_tokens", PREFILL, 1000, 899, State.IMPROVED),
        ("kv_concurrency", {"change": "5%"}, 100, 94, State.REGRESSED),
        ("kv_concurrency", {"change": "5%"}, 100, 106, State.IMPROVED),
        ("completion_tokens", {"change": "5%"}, 100, 106, State.REGRESSED),
        ("completion_tokens", {"change": "5%"}, 100, 94, State.REGRESSED),  # either way
        ("completion_tokens", {"change": "5%"}, 100, 105, State.PASS),
        ("completion_tokens", {"equal": True}, 100, 101, State.REGRESSED),
        ("completion_tokens", None, 100, 100, State.PASS),
        ("completion_tokens", None, 100, 101, State.REGRESSED),  # shown, and gates nothing
        ("steps", None, 100, 99, State.IMPROVED),
        ("ttft_p95", None, 100, 900, State.PASS),  # a clock without a rule is never called worse
        ("preemptions", {"equal": True}, 0, 1, State.REGRESSED),
        ("error_rate", {"change": "5%", "floor": "1%"}, 0, 0.01, State.PASS),
        ("error_rate", {"change": "5%", "floor": "1%"}, 0, 0.011, State.REGRESSED),
        ("error_rate", {"change": "5%"}, 0.01, 0, State.IMPROVED),
        ("logprob_delta", {"max": "1e-6"}, 0, 1e-6, State.PASS),
        ("logprob_delta", {"max": "1e-6"}, 0, 2e-6, State.REGRESSED),
        ("quality_pass_rate", {"min": "95%"}, None, 0.94, State.REGRESSED),  # needs no base
        ("quality_pass_rate", {"min": "95%"}, None, 0.95, State.PASS),
        ("ttft_p95", TTFT, None, 100, State.NEW),
        ("ttft_p95", TTFT, 100, None, State.MISSING),
    ],
)  # fmt: skip
def test_states(metric: str, rule: dict[str, Any] | None, base: float, head: float, state: State) -> None:
    assert judged(metric, base, head, rule).state is state


def test_from_zero_has_no_percentage_and_an_absolute_floor() -> None:
    """libvroom#469, #470: a division by zero. binwalk-ng#107, kdashboard#52: 0 -> 12 shown as +0 %."""
    found = judged("preemptions", 0, 12, {"change": "5%"})
    assert (found.state, found.change, found.reason) == (State.REGRESSED, None, "from zero to 12 times")


def test_numbers_are_rounded_for_display_alone() -> None:
    """rsync#3574: a ratio was rounded to 0.00 and then inverted."""
    found = judged("cost_per_request", 1.0, 0.004, {"change": "5%"})
    assert found.change == pytest.approx(-0.996)
    assert judged("ttft_p95", 1e-300, 1e300, {"change": "5%"}).change is None


def test_an_improvement_beyond_belief_says_so() -> None:
    """ioc-finder#412: a baseline five times too slow let a regression of 2.3x pass as an improvement."""
    found = judged("prefill_tokens", 500, 100, PREFILL)
    assert found.state is State.IMPROVED
    assert "5 times better is beyond belief" in found.reason
    assert "beyond belief" not in judged("prefill_tokens", 290, 100, PREFILL).reason


@pytest.mark.parametrize("arm", ["base", "head"])
@pytest.mark.parametrize("value", [0.0, -3.0])
def test_an_impossible_latency_is_invalid_on_either_side(arm: str, value: float) -> None:
    """mlcommons/inference#1788: zeros are missing data. Baselines are edited by hand."""
    base, head = (value, 100) if arm == "base" else (100, value)
    found = judged("ttft_p95", base, head, TTFT)
    assert found.state is State.INVALID
    assert found.reason.startswith(f"{arm}: ")


def test_no_samples_are_invalid_and_too_few_are_inconclusive() -> None:
    spec, rule = METRICS["ttft_p95"], Rule.model_validate(TTFT)
    none = Sample(value=None, n=0, note="all 30 requests failed", invalid=True)
    few = Sample(value=None, n=12, note="needs 20 values, has 12")
    good = Sample(value=100, n=30)
    assert judge(spec, rule, good, none).reason == "head: all 30 requests failed"
    assert judge(spec, rule, good, few) == judge(spec, rule, None, few)
    assert judge(spec, rule, good, few).state is State.INCONCLUSIVE
    assert judge(spec, rule, few, good).reason == "base: needs 20 values, has 12"
    assert judge(spec, rule, Sample(value=100, n=19), good).reason == "base: needs 20 values, has 19"


@pytest.mark.parametrize(
    ("metric", "rule", "words"),
    [
        ("ttft_p95", TTFT, "+10 % and 20 ms"),
        ("throughput", {"change": "5%"}, "-5 %"),
        ("completion_tokens", {"change": "5%"}, "±5 %"),
        ("completion_tokens", {"equal": True, "max": 500}, "equal, at most 500 tokens"),
        ("logprob_delta", {"max": "1e-6"}, "at most 1e-06 nat"),
        ("quality_pass_rate", {"min": "95%"}, "at least 95 %"),
        ("ttft_p95", None, "shown only"),
    ],
)
def test_the_rule_in_words(metric: str, rule: dict[str, Any] | None, words: str) -> None:
    assert judged(metric, 1, 1, rule).tolerance == words


VALUES = st.floats(0, 1e12, allow_nan=False)
RULES = st.builds(
    lambda change, floor: Rule.model_validate({"change": change, "floor": floor}), st.floats(0, 0.99), VALUES
)
SPECS = st.sampled_from([spec for spec in METRICS.values() if spec.better != "equal"])


def rounds_of(value: float) -> Sample:
    """Three rounds, 1 % apart."""
    return Sample(value=value, n=500, per_round=(value * 0.99, value, value * 1.01))


@settings(deadline=None)
@given(SPECS, RULES, VALUES, VALUES)
def test_what_got_worse_one_way_did_not_get_worse_the_other(
    spec: Any, rule: Rule, a: float, b: float
) -> None:
    there, back = (judge(spec, rule, rounds_of(x), rounds_of(y)) for x, y in ((a, b), (b, a)))
    if there.state is State.REGRESSED:
        assert back.state in (State.IMPROVED, State.PASS, State.INCONCLUSIVE)
    if there.state is State.IMPROVED:
        assert back.state in (State.REGRESSED, State.PASS, State.INCONCLUSIVE)


@settings(deadline=None)
@given(SPECS, st.none() | RULES, VALUES)
def test_an_unchanged_number_never_fails(spec: Any, rule: Rule | None, a: float) -> None:
    state = judge(spec, rule, rounds_of(a), rounds_of(a)).state
    assert state in (State.PASS, State.INVALID) or (spec.kind == "timed" and state is State.INCONCLUSIVE)


@settings(deadline=None)
@given(SPECS, RULES, VALUES, VALUES, st.floats(0, 1e12))
def test_a_worse_head_is_never_judged_better(spec: Any, rule: Rule, a: float, b: float, more: float) -> None:
    rank = {State.IMPROVED: 0, State.PASS: 1, State.REGRESSED: 2}
    sign = 1 if spec.better == "lower" else -1
    worse = b + sign * more
    states = [judge(spec, rule, rounds_of(a), rounds_of(x)).state for x in (b, worse)]
    if worse >= 0 and all(state in rank for state in states):
        assert rank[states[0]] <= rank[states[1]]
