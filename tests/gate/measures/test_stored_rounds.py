"""A timed row of two stored runs: what its rounds say, and what they cannot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from arms import compared, latency, record, request, round_of, row, suite, workload

from servegate.explain import row_lines
from servegate.facts import Sample
from servegate.judge import Judgement, judge
from servegate.metrics.table import METRICS
from servegate.record import RunRecord
from servegate.suite.schema import Rule
from servegate.verdict import State

STEADY = (100.0, 99.0, 101.0, 100.5, 99.5)
TEN = tuple(100 + k / 5 for k in range(-5, 5))


def sample(rounds: Sequence[float], **more: Any) -> Sample:
    return Sample(value=sum(rounds) / len(rounds), n=1000, per_round=tuple(rounds), **more)


def times(factor: float, rounds: Sequence[float] = STEADY) -> tuple[float, ...]:
    return tuple(factor * value for value in rounds)


def judged(
    base: Sequence[float],
    head: Sequence[float],
    change: str = "10%",
    metric: str = "itl_p50",
    rows: int = 1,
    **rule: Any,
) -> Judgement:
    rules = Rule.model_validate({"change": change, **rule})
    return judge(METRICS[metric], rules, sample(base), sample(head), timed_rows=rows)


@pytest.mark.parametrize(
    ("factor", "change", "metric", "state"),
    [
        (1.00, "25%", "itl_p50", State.PASS),
        (1.05, "10%", "itl_p50", State.INCONCLUSIVE),  # two runs of one code lie this far apart
        (1.30, "10%", "itl_p50", State.REGRESSED),
        (0.70, "10%", "itl_p50", State.IMPROVED),
        (0.70, "10%", "throughput", State.REGRESSED),  # higher is better
        (1.30, "10%", "throughput", State.IMPROVED),
        (1.30, "10%", "itl_p95", State.INCONCLUSIVE),  # the tail of one run says less
        (1.60, "10%", "itl_p95", State.REGRESSED),
        (1.05, "0%", "itl_p50", State.INCONCLUSIVE),
        (2.00, "0%", "itl_p50", State.REGRESSED),
    ],
)
def test_states(factor: float, change: str, metric: str, state: State) -> None:
    assert judged(STEADY, times(factor, STEADY[::-1]), change, metric).state is state


def test_the_floor_must_be_exceeded_too() -> None:
    assert judged(STEADY, times(1.5), floor="10ms").state is State.REGRESSED
    found = judged(STEADY, times(1.5), floor="100ms")
    assert found.state is State.PASS
    assert found.reason.endswith("within the limit of 100.0%")


def test_rows_share_the_error() -> None:
    """One row of many moves by chance."""
    assert judged(STEADY, times(1.3), rows=1).state is State.REGRESSED
    assert judged(STEADY, times(1.3), rows=100).state is State.INCONCLUSIVE


@pytest.mark.parametrize("arm", ["base", "head"])
@pytest.mark.parametrize("factor", [1.0, 1.6])
def test_two_poisoned_rounds_of_ten_move_no_verdict(arm: str, factor: float) -> None:
    """poseidon-http-server#129: two samples of ten at 1.8 times."""
    arms = {"base": TEN, "head": times(factor, TEN[::-1])}
    clean = judged(**arms, change="30%")
    poisoned = judged(**arms | {arm: (*arms[arm][:8], *times(1.8, arms[arm][8:]))}, change="30%")
    assert clean.state is poisoned.state is (State.PASS if factor == 1 else State.REGRESSED)
    assert poisoned.change == pytest.approx(clean.change, abs=0.01)


@pytest.mark.parametrize("bad", [0.0, -1.0])
@pytest.mark.parametrize("arm", ["base", "head"])
def test_a_round_without_a_usable_value_is_named(arm: str, bad: float) -> None:
    arms = {"base": STEADY, "head": STEADY, arm: (100.0, bad, 100.0)}
    found = judge(
        METRICS["itl_p50"],
        Rule(change=0.1),
        *(Sample(value=100, n=1000, per_round=arms[name]) for name in ("base", "head")),
    )
    assert found.state is State.INCONCLUSIVE
    assert found.reason == f"{arm} round 2 is {bad}: a relative change needs positive numbers"


def test_one_round_claims_nothing() -> None:
    found = judged((100.0,), (900.0,))
    assert found.state is State.INCONCLUSIVE
    assert found.reason == "base has 1 of the 3 rounds that a run needs to be judged"
    assert found.evidence is not None
    assert found.evidence.blocks_needed == 3


def test_a_copy_of_the_base_proves_nothing() -> None:
    found = judged(STEADY, STEADY, change="90%")
    assert found.state is State.INCONCLUSIVE
    assert "the same data, or a clock too coarse" in found.reason


def test_rounds_that_are_all_alike_hide_no_luck_of_the_run() -> None:
    """lattice#1137: identical source, +8.95 % with an interval of 7 to 11 %, and FAIL."""
    found = judged((100.0,) * 5, (108.95,) * 5, change="5%")
    assert found.state is State.INCONCLUSIVE
    assert found.evidence is not None
    assert found.evidence.interval is not None
    assert found.evidence.interval[0] < 0 < 0.0895 < found.evidence.interval[1]


def test_values_without_rounds_say_what_to_do() -> None:
    found = judge(METRICS["itl_p50"], Rule(change=0.1), Sample(value=100, n=99), sample(times(9)))
    assert found.state is State.INCONCLUSIVE
    assert found.reason.endswith("so neither is its noise: measure it again")
    assert found.change == pytest.approx(8)


def test_what_got_better_beyond_belief_is_flagged() -> None:
    """ioc-finder#412: a stale base hid a regression of 2.3 times."""
    found = judged(STEADY, times(0.2))
    assert found.state is State.IMPROVED
    assert "5 times better is beyond belief; was the base measured under the same load?" in found.reason


def test_absolute_limits_need_no_interval() -> None:
    found = judged(STEADY, times(1.1), max="105ms")
    assert (found.state, found.reason) == (State.REGRESSED, "110 ms is above the limit of 105 ms")


def test_the_evidence_says_what_would_have_been_seen_and_what_decides() -> None:
    near = judged(STEADY, times(1.05))
    assert near.evidence is not None
    assert (near.evidence.unit, near.evidence.blocks, near.evidence.launches) == ("rounds", 5, 1)
    assert near.evidence.smallest_detectable is not None
    assert 0.3 < near.evidence.smallest_detectable < 0.5
    assert near.detail[-1] == "smallest change that would have been found: +39 %"
    assert near.evidence.blocks_needed is None
    few = judged((100.0, 97.0, 103.0), (150.0, 145.5, 154.5), rows=6)
    assert few.evidence is not None
    assert few.evidence.blocks_needed is not None
    assert few.evidence.blocks_needed > 3


def run(*firsts: float, gap: float = 10) -> RunRecord:
    """One round for each time to first token, of 20 requests."""
    rounds = [
        round_of(*[request(f"p{i}", first=first, gaps=[gap] * 4) for i in range(20)]) for first in firsts
    ]
    return record(workload(*rounds))


def test_a_comparison_shows_what_was_judged_and_counts_its_gating_rows() -> None:
    """Two slow rounds of five are in the values of all rounds, and not in what is judged."""
    base, head = run(100, 101, 99, 100, 102), run(101, 100, 99, 300, 300)
    one = row(compared(base, head, {"ttft_p50": {"change": "40%"}}), "ttft_p50")
    assert (one.base, one.head) == (100, pytest.approx(101, abs=1))
    assert one.state is State.PASS
    assert any(line.startswith("all rounds together: base 100 ms, head ") for line in one.detail)
    several = {"ttft_p50": {"change": "40%"}, "ttft_p95": {"change": "40%"}, "itl_p50": {"max": "1s"}}
    two = row(compared(base, head, several), "ttft_p50")
    assert one.evidence is not None
    assert two.evidence is not None
    assert one.evidence.interval is not None
    assert two.evidence.interval is not None
    assert two.evidence.interval[1] > one.evidence.interval[1]
    wider = compared(base, head, {f"{name}_p50": {"change": "40%"} for name in ("ttft", "itl", "e2e")})
    assert row(wider, "ttft_p50").evidence != two.evidence


def test_explain_says_what_would_change_it() -> None:
    rules = {"ttft_p50": {"change": "10%"}}
    undecided = row(compared(run(100, 101, 99), run(105, 104, 106), rules), "ttft_p50")
    advice = "base and head measured in turn, `servegate ab --base REF`: two separate runs will not"
    assert undecided.detail[-1].startswith(f"what would decide: {advice}")
    last = row_lines(undecided, suite(rules).policy)[-1]
    assert last.startswith(f"what would change it: {advice}")
    few = row(compared(run(100), run(900), rules), "ttft_p50")
    assert few.detail[-1].startswith("what would decide: about `repeat: 3` for base and head")


def test_the_cost_of_a_machine_is_a_time() -> None:
    prices = {"machine_hour": 3.6, "currency": "USD", "source": "a contract", "date": "2026-10-01"}
    base = record(latency(*[request(f"p{i}") for i in range(20)], repeat=3))
    slow = [round_of(*[request(f"p{i}") for i in range(20)], wall=wall) for wall in (2000, 2010, 1990)]
    rules = {"cost_per_request": {"change": "20%"}}
    found = row(compared(base, record(workload(*slow)), rules, prices=prices), "cost_per_request")
    assert (found.kind, found.state) == ("timed", State.REGRESSED)
    assert found.evidence is not None
