"""Teacher-forced logprobs, token ids, finish reasons: what is found between two arms, prompt by prompt."""

from __future__ import annotations

import pytest
from arms import answer, behaviour, compared, latency, record, request, round_of, row, workload

from servegate.answers.settle import ONCE
from servegate.record import ForcedScore
from servegate.verdict import State


def forced(prompt_id: str, ids: list[int], logprobs: list[float]) -> ForcedScore:
    return ForcedScore.model_validate({"prompt_id": prompt_id, "completion_ids": ids, "logprobs": logprobs})


def test_logprob_delta_is_the_worst_position_of_the_bases_own_completions() -> None:
    base = record(behaviour(answer("a", [5, 6, 7], [-0.1, -0.2, -0.3]), answer("b", [8], [-1.0])))
    head = record(
        behaviour(
            answer("a", [5, 9, 9, 9], [-0.1, -4.0, -4.0, -4.0]),
            answer("b", [8], [-1.0]),
            forced=[forced("a", [5, 6, 7], [-0.1, -0.25, -0.29]), forced("b", [8], [-1.0])],
        )
    )
    comparison = compared(base, head, {"logprob_delta": {"max": "1e-6"}})
    worst = row(comparison, "logprob_delta")
    assert worst.head == pytest.approx(0.05)
    assert worst.n_head == 4
    assert worst.state is State.REGRESSED
    assert worst.detail == ("worst at prompt 'a', token 1: base -0.2000000000, head -0.2500000000 nat",)
    assert row(comparison, "logprob_delta_mean").head == pytest.approx((0.05 + 0.01) / 4)


def test_a_difference_below_what_reference_numerics_hold_is_zero() -> None:
    base = record(behaviour(answer("a", [5, 6], [-0.1, -0.2])))
    for delta, expected in ((9e-10, 0.0), (2e-9, 2e-9)):
        scores = [forced("a", [5, 6], [-0.1, -0.2 - delta])]
        head = record(behaviour(answer("a", [5, 6], [-0.1, -0.2]), forced=scores))
        assert row(compared(base, head), "logprob_delta").head == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("scores", [[], [forced("a", [5, 6, 8], [-9.0, -9.0, -9.0])]])
def test_without_a_fitting_score_the_common_prefix_is_compared(scores: list[ForcedScore]) -> None:
    """Scores of another completion than the base's say nothing about it."""
    base = record(behaviour(answer("a", [5, 6, 7], [-0.1, -0.2, -0.3])))
    head = record(behaviour(answer("a", [5, 6, 9], [-0.1, -0.4, -7.0]), forced=scores))
    found = row(compared(base, head), "logprob_delta")
    assert found.head == pytest.approx(0.2)
    assert found.n_head == 2
    assert "1 of 1 prompts by their common prefix, not teacher-forced" in found.detail


def test_token_ids_name_the_first_divergence() -> None:
    base = record(behaviour(answer("a", [5, 6, 7]), answer("b", [1, 2]), answer("c", [3])))
    head = record(behaviour(answer("a", [5, 9, 7]), answer("b", [1, 2, 4]), answer("c", [3])))
    found = row(compared(base, head, {"token_ids": {"equal": True}}), "token_ids")
    assert (found.base, found.head, found.state) == (0, 2, State.REGRESSED)
    assert found.detail == ("prompt 'a' parts at token 1: 6 -> 9", "prompt 'b' parts at token 2: end -> 4")


@pytest.mark.parametrize("arm", ["base", "head"])
def test_a_flip_at_a_near_tie_is_told_and_is_no_regression(arm: str) -> None:
    ties = {arm: (1,)}
    base = record(behaviour(answer("a", [5, 6, 7], near_ties=ties.get("base", ()))))
    head = record(behaviour(answer("a", [5, 9, 7], near_ties=ties.get("head", ()))))
    found = row(compared(base, head, {"token_ids": {"equal": True}}), "token_ids")
    assert (found.head, found.state) == (0, State.PASS)
    assert any("a near-tie" in line for line in found.detail)


def test_a_near_tie_elsewhere_excuses_nothing() -> None:
    base = record(behaviour(answer("a", [5, 6, 7], near_ties=(0, 2))))
    head = record(behaviour(answer("a", [5, 9, 7])))
    assert row(compared(base, head), "token_ids").head == 1


def test_finish_reasons_are_counted_by_prompt_and_shown_as_counts() -> None:
    base = record(behaviour(answer("a", [5]), answer("b", [6])))
    head = record(behaviour(answer("a", [5], finish_reason="length"), answer("b", [6])))
    found = row(compared(base, head, {"finish_reasons": {"equal": True}}), "finish_reasons")
    assert (found.base, found.head, found.state) == ("stop 2", "length 1, stop 1", State.REGRESSED)
    assert found.detail == ("prompt 'a': stop -> length",)


def test_a_difference_on_a_target_that_was_asked_once_comes_with_how_to_find_out_whether_it_varies() -> None:
    base, head = record(behaviour(answer("a", [5]))), record(behaviour(answer("a", [5, 6])))
    rule = {"completion_tokens": {"equal": True}}
    assert ONCE in compared(base, head, rule).notes
    assert ONCE not in compared(base, base, rule).notes
    own_engine = record(behaviour(answer("a", [5, 6])), served={"dtype.reference": "float64"})
    assert ONCE not in compared(base, own_engine, rule).notes, "float64 repeats itself"


def test_finish_reasons_of_native_workloads_are_compared_as_shares() -> None:
    answers = [request(f"p{i}") for i in range(4)]
    once, twice = latency(*answers), workload(round_of(*answers), round_of(*answers))
    assert row(compared(record(once), record(twice)), "finish_reasons").state is State.PASS
    cut = latency(*answers[:3], request("p3", finish_reason="length"))
    found = row(compared(record(once), record(cut), {"finish_reasons": {"equal": True}}), "finish_reasons")
    assert found.state is State.REGRESSED
    assert found.reason == "must be equal: 1 answers that ended for another reason than the base's"


def test_lengths_that_moved_are_seen_where_the_mean_stands_still() -> None:
    """tenstorrent/vllm#354: half of the replies empty, half twice as long."""
    base = record(behaviour(answer("a", [1, 2]), answer("b", [1, 2])))
    head = record(behaviour(answer("a", [1, 2, 3, 4]), request("b", arrivals_ns=[], ids=[], logprobs=[])))
    comparison = compared(base, head, {"completion_length_shift": {"max": "10%"}})
    assert row(comparison, "completion_tokens").state is State.PASS
    shift = row(comparison, "completion_length_shift")
    assert (shift.head, shift.state) == (1.0, State.REGRESSED)
    assert shift.detail == ("prompt 'a': 2 -> 4 tokens", "prompt 'b': 2 -> 0 tokens")


def test_a_quality_check_that_is_lost_gates_without_a_rule() -> None:
    base = record(behaviour(request("a", text="30 days"), request("b", text="no")))
    head = record(behaviour(request("a", text="a month"), request("b", text="no")))
    checks = [{"prompt": "*", "contains": "30 days"}]
    lost = row(compared(base, head, quality=checks), "quality_lost")
    assert (lost.head, lost.state, lost.gating) == (1, State.REGRESSED, True)
    assert lost.detail == ('prompt \'a\': contains "30 days": "30 days" is not in the answer',)
    assert row(compared(base, base, quality=checks), "quality_lost").state is State.PASS
