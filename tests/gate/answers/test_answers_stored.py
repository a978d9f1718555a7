"""A run against a stored one where the target does not repeat itself: rounds tell how much it varies."""

from __future__ import annotations

from typing import Any

import pytest
from varying import Engine, run, suite

from servegate.answers.settle import ONCE, variation
from servegate.compare import compare
from servegate.explain import what_would_change_it
from servegate.extract import facts
from servegate.record import RunRecord
from servegate.verdict import Outcome, Row, State, Verdict, decide


def verdict(base: RunRecord, head: RunRecord, policy: dict[str, Any] | None = None, **more: Any) -> Verdict:
    judged_by = suite(policy, **more)
    arms = [facts(arm, judged_by) for arm in (base, head)]
    return decide(compare(arms[0], arms[1], judged_by), judged_by.policy)


def row_of(found: Verdict, metric: str) -> Row:
    return next(row for row in found.comparison.rows if row.metric == metric)


def test_equal_engines_that_vary_do_not_regress() -> None:
    found = verdict(run(Engine(), 1, 5), run(Engine(), 2, 5))
    assert found.outcome is Outcome.PASS
    row = row_of(found, "completion_tokens")
    assert (row.state, row.base == row.head) == (State.PASS, False)
    assert "within the tolerance of" in row.reason
    assert any(
        "does not repeat itself: base differs from itself in token ids of 20 prompts" in d for d in row.detail
    )
    assert any(line.startswith("noise floor: ") for line in row.detail)
    assert row_of(found, "finish_reasons").state is State.PASS


def test_longer_answers_are_found() -> None:
    found = verdict(run(Engine(), 1, 5), run(Engine(longer=1.3), 2, 5))
    row = row_of(found, "completion_tokens")
    assert (found.outcome, row.state) == (Outcome.REGRESSED, State.REGRESSED)
    assert row.change == pytest.approx(0.3, abs=0.05)
    assert "beyond the tolerance of 10 %" in row.reason
    assert row.evidence is not None
    assert (row.evidence.unit, row.evidence.blocks) == ("answers a prompt", 5)
    assert row.evidence.interval is not None
    assert row.evidence.interval[0] > 0.1
    assert "completion tokens rose" in found.headline


def test_half_of_the_answers_empty_is_found_though_the_mean_is_kept() -> None:
    found = verdict(run(Engine(), 1, 5), run(Engine(empty=0.5), 2, 5))
    row = row_of(found, "completion_tokens")
    assert row.state is State.REGRESSED
    assert "% of head's answers are empty (base 0 %)" in row.reason
    assert row.reason in found.headline


def test_answers_cut_short_are_found_by_their_finish_reasons() -> None:
    found = verdict(run(Engine(), 1, 5), run(Engine(limit=60), 2, 5))
    row = row_of(found, "finish_reasons")
    assert (row.state, row.base) == (State.REGRESSED, "stop 100 %")
    assert str(row.head).startswith("length ")
    assert "further apart than answers of one arm" in row.reason


def test_a_check_that_fails_more_often_than_it_did_is_found() -> None:
    checks = ({"prompt": "*", "contains": "yes"},)
    found = verdict(run(Engine(good=0.9), 1, 5), run(Engine(good=0.9), 2, 5), quality=checks)
    assert row_of(found, "quality_lost").state in (State.PASS, State.INCONCLUSIVE)
    found = verdict(run(Engine(good=0.9), 1, 5), run(Engine(good=0.3), 2, 5), quality=checks)
    assert row_of(found, "quality_lost").state is State.REGRESSED


def test_a_change_too_small_to_tell_is_inconclusive_and_says_how_many_answers_would() -> None:
    found = verdict(run(Engine(spread=0.2), 3, 2), run(Engine(spread=0.2), 4, 2))
    row = row_of(found, "completion_tokens")
    assert row.state is State.INCONCLUSIVE
    assert "answers a prompt of each arm would, a higher `repeat`" in row.reason
    assert row.evidence is not None
    needed = row.evidence.blocks_needed
    assert what_would_change_it(row, None) == f"about {needed} answers a prompt of each arm"
    assert found.outcome is Outcome.PASS  # the policy lets what is undecided pass


def test_a_baseline_of_one_round_cannot_tell_and_says_what_to_do() -> None:
    found = verdict(run(Engine(), 1, 1), run(Engine(longer=2), 2, 5))
    row = row_of(found, "completion_tokens")
    assert row.state is State.INCONCLUSIVE
    assert "no prompt was answered at least twice by both arms" in row.reason
    assert "a baseline made with it, or `servegate ab`" in row.reason


def test_with_one_round_each_the_exact_rule_holds_and_says_what_it_does_not_know() -> None:
    found = verdict(run(Engine(), 1, 1), run(Engine(), 2, 1), {"completion_tokens": {"equal": True}})
    assert row_of(found, "completion_tokens").state is State.REGRESSED
    assert ONCE in found.comparison.notes


def test_an_engine_that_repeats_itself_is_held_to_the_exact_rule() -> None:
    def constant(tokens: int) -> RunRecord:
        once = run(Engine(spread=0.0, longer=tokens / 40), 1, 1).workloads[0].rounds[0]
        first = run(Engine(), 1, 1)
        workload = first.workloads[0].model_copy(update={"rounds": (once,) * 3})
        return first.model_copy(update={"workloads": (workload,)})

    assert variation(facts(constant(40)).workloads["behaviour"]) == ()
    found = verdict(constant(40), constant(41), {"completion_tokens": {"equal": True}})
    row = row_of(found, "completion_tokens")
    assert (row.state, row.detail) == (State.REGRESSED, ())


@pytest.mark.parametrize(
    ("base", "head", "state"),
    [
        ((100, 104, 98, 103, 101), (102, 99, 104, 100, 101), State.PASS),
        ((100, 180, 120, 150, 90), (160, 100, 130, 90, 170), State.INCONCLUSIVE),
        ((100, 100, 100, 100, 100), (200, 200, 200, 200, 200), State.REGRESSED),
        ((100, 100, 100, 100, 100), (100, 100, 200, 100, 100), State.INCONCLUSIVE),
    ],
)
def test_counters_of_a_varying_target_regress_only_where_they_repeat_themselves(
    base: tuple[int, ...], head: tuple[int, ...], state: State
) -> None:
    arms = [
        run(Engine(), seed, 5, counters=lambda n, values=values: values[n] - 100)
        for seed, values in ((1, base), (2, head))
    ]
    row = row_of(verdict(*arms, {"steps": {"change": "10%"}}), "steps")
    assert row.state is state
    if state is State.INCONCLUSIVE:
        assert row.reason.startswith("the target does not repeat itself: base ")


def test_what_can_only_be_equal_is_undecided() -> None:
    row = row_of(
        verdict(run(Engine(), 1, 3), run(Engine(), 2, 3), {"token_ids": {"equal": True}}), "token_ids"
    )
    assert row.state is State.INCONCLUSIVE


def test_a_failed_request_stays_a_failure() -> None:
    found = verdict(run(Engine(), 1, 5), run(Engine(failing=("p03",)), 2, 5))
    assert row_of(found, "error_rate").state is State.REGRESSED


def test_a_limit_of_its_own_holds_whatever_varies() -> None:
    policy = {"completion_tokens": {"change": "5%", "max": 100}}
    row = row_of(verdict(run(Engine(), 1, 5), run(Engine(), 2, 5), policy), "completion_tokens")
    assert row.state is State.REGRESSED
    assert "above the limit" in row.reason


def test_the_same_files_give_the_same_verdict() -> None:
    arms = run(Engine(spread=0.5), 1, 4), run(Engine(spread=0.5, longer=1.1), 2, 4)
    assert verdict(*arms) == verdict(*(RunRecord.model_validate_json(arm.model_dump_json()) for arm in arms))
