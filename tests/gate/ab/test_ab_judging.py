"""Record -> verdict: what the blocks say, and when they say nothing."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from judging_fakes import ab_record, noisy, row_of, run_record, suite, verdict
from paired_fakes import BUSY, FINGERPRINT, QUIET, launches, round_of, workload_of

from servegate.ab.judging import is_decided, judge_ab
from servegate.ab.lengths import kept_lengths
from servegate.ab.record import MachineLoad, read_ab_record
from servegate.ab.schedule import Role
from servegate.bundle import recompute, save_ab
from servegate.explain import rule_of, what_would_change_it
from servegate.record import RoundRecord
from servegate.verdict import Outcome, State, Verdict


def test_equal_arms_pass_and_say_on_what_evidence() -> None:
    result = verdict(noisy())
    row = row_of(result)
    assert (result.outcome, row.state) == (Outcome.PASS, State.PASS)
    assert row.evidence is not None
    assert row.evidence.interval is not None
    assert row.evidence.interval[0] < 0 < row.evidence.interval[1]
    assert (row.evidence.blocks, row.evidence.launches) == (36, 6)
    assert row.evidence.noise_floor is not None
    assert 0 < row.evidence.noise_floor < 0.05
    assert row.evidence.smallest_detectable is not None
    assert any("noise floor" in line for line in row.detail)


def test_what_is_shown_goes_the_way_of_the_paired_change() -> None:
    """One burst in base makes its pooled p95 the larger one, while head is slower in every other pair."""

    def rounds(launch: int, block: int, role: Role) -> RoundRecord:
        if role == "base" and launch == 0:
            return round_of(100)
        return round_of(13 if role == "head" else 10)

    row = row_of(verdict(rounds, number=12))
    assert isinstance(row.base, float)
    assert isinstance(row.head, float)
    assert row.head > row.base == 10
    assert "all rounds together: base 100 ms, head 13 ms" in row.detail


@pytest.mark.parametrize("factor", [1.10, 1.20])
def test_a_slower_head_is_found(factor: float) -> None:
    result = verdict(noisy(factor))
    assert (result.outcome, row_of(result).state) == (Outcome.REGRESSED, State.REGRESSED)
    assert row_of(result).change == pytest.approx(factor - 1, abs=0.02)


def test_a_faster_head_is_an_improvement_and_beyond_a_factor_of_three_not_believed() -> None:
    assert row_of(verdict(noisy(0.7))).state is State.IMPROVED
    row = row_of(verdict(noisy(0.2)))
    assert "beyond belief" in row.reason


def test_noise_too_large_to_decide_is_inconclusive_and_says_how_many_blocks_would() -> None:
    result = verdict(noisy(sd=0.6), number=4)
    row = row_of(result)
    assert (row.state, result.outcome) == (State.INCONCLUSIVE, Outcome.INCONCLUSIVE)
    assert row.evidence is not None
    assert row.evidence.blocks_needed is not None
    assert row.evidence.blocks_needed > row.evidence.blocks
    assert any("would decide" in line for line in row.detail)


def test_one_launch_decides_nothing() -> None:
    assert row_of(verdict(noisy(1.5), number=1)).state is State.INCONCLUSIVE


def test_timed_rows_are_inconclusive_where_base_against_base_fails() -> None:
    quiet = noisy()

    def rounds(launch: int, block: int, role: Role) -> RoundRecord:
        slow = 1.3 if role != "base" else 1.0  # the second base process, like head, is slower
        return round_of(10 * slow) if slow > 1 else quiet(launch, block, role)

    row = row_of(verdict(rounds))
    assert row.state is State.INCONCLUSIVE
    assert "base against base would fail too" in row.reason


def test_a_late_client_is_named_and_judges_nothing() -> None:
    row = row_of(verdict(noisy(1.3, late_ms=5.0)))
    assert row.state is State.INCONCLUSIVE
    assert row.reason.startswith("client too slow")


def held_machine(launch: int, block: int, role: Role) -> MachineLoad:
    """Something else runs during every third block."""
    return BUSY if block % 3 == 2 else QUIET


def test_contended_blocks_are_left_out() -> None:
    clean = noisy()

    def rounds(launch: int, block: int, role: Role) -> RoundRecord:
        if held_machine(launch, block, role) is QUIET:
            return clean(launch, block, role)
        return round_of(20 if (role == "head") == (launch % 2 == 0) else 10)

    row = row_of(judge_ab(ab_record(launches(6, 6, rounds, load=held_machine)), suite()))
    assert row.evidence is not None
    assert row.evidence.blocks == 24
    assert row.state is State.PASS
    assert "12 block pairs ran while others held the machine: left out" in row.detail


def test_an_arm_that_is_slow_whenever_the_machine_is_held_is_not_excused() -> None:
    clean = noisy()

    def rounds(launch: int, block: int, role: Role) -> RoundRecord:
        if held_machine(launch, block, role) is QUIET:
            return clean(launch, block, role)
        return round_of(20 if role == "head" else 10)

    row = row_of(judge_ab(ab_record(launches(6, 6, rounds, load=held_machine)), suite()))
    assert row.evidence is not None
    assert row.evidence.blocks == 36
    assert any("would not be fair" in line for line in row.detail)


def test_a_percentile_of_few_prompts_is_taken_over_several_rounds() -> None:
    """Eight prompts a round are too few for a p95: three rounds make a block."""
    draw = random.Random(0)

    def rounds(launch: int, block: int, role: Role) -> RoundRecord:
        return round_of(lengths=(30,) * 8, ttft_ms=20 * draw.lognormvariate(0, 0.02))

    row = row_of(verdict(rounds, {"ttft_p95": {"change": "10%"}}), "ttft_p95")
    assert row.evidence is not None
    assert row.evidence.blocks == 6 * (6 // 3)
    assert row.state is State.PASS


def test_a_metric_that_no_launch_has_rounds_enough_for_is_inconclusive() -> None:
    row = row_of(verdict(noisy(), {"ttft_p99": {"change": "10%"}}, blocks=2), "ttft_p99")
    assert row.state is State.INCONCLUSIVE
    assert "needs 100 values" in row.reason


def test_the_absolute_floor_counts_as_well_as_the_tolerance() -> None:
    policy = {"decode_p95": {"change": "5%", "floor": "5ms"}}
    assert row_of(verdict(noisy(1.2), policy)).state is State.PASS


def test_an_absolute_limit_needs_no_pairs() -> None:
    result = verdict(noisy(), {"decode_p95": {"max": "5ms"}})
    assert row_of(result).state is State.REGRESSED
    both = verdict(noisy(), {"decode_p95": {"max": "5ms", "change": "50%"}})
    assert "above the limit" in row_of(both).reason


@pytest.mark.parametrize(
    ("rule", "factor", "state"),
    [
        ({"change": "0%"}, 1.2, State.REGRESSED),
        ({"change": "0%"}, 1.0, State.INCONCLUSIVE),
        ({"change": "300%"}, 1.2, State.PASS),
    ],
)
def test_a_rate_may_have_any_tolerance(rule: dict[str, str], factor: float, state: State) -> None:
    assert row_of(verdict(noisy(factor), {"throughput": rule}), "throughput").state is state


def test_rows_without_a_rule_are_shown_and_fail_nothing() -> None:
    result = verdict(noisy(2.0), {"ttft_p50": {"change": "10%"}, "itl_p50": {"change": "300%"}})
    row = row_of(result)
    assert (row.state, row.gating, result.outcome) == (State.PASS, False, Outcome.PASS)
    assert row.evidence is not None


def test_shorter_answers_are_not_a_faster_engine() -> None:
    """Half of the completions are cut short: end-to-end improves, and at matched length it got worse."""

    def rounds(launch: int, block: int, role: Role) -> RoundRecord:
        if role == "head":
            return round_of(12, lengths=(30, 30, 6, 6))
        return round_of(10, lengths=(30, 30, 30, 30))

    policy = {"e2e_p50": {"change": "10%"}, "completion_tokens": {"change": "5%"}}
    result = verdict(rounds, policy)
    assert row_of(result, "e2e_p50").state is State.IMPROVED
    at_length = row_of(result, "e2e_p50 at matched length")
    assert at_length.state is State.REGRESSED
    assert at_length.detail[0] == "over 2 prompts of 4: those whose completions kept their length"
    assert "faster because shorter" in result.headline


PRICES: dict[str, Any] = {"per": 1000, "prompt": 1.0, "cached": 0.1, "completion": 2.0}
PRICES |= {"currency": "USD", "source": "made up", "date": "2026-11-30"}


def priced(head: RoundRecord, base: RoundRecord, rule: dict[str, str]) -> Verdict:
    """One exact workload at prices of tokens, and nothing timed."""
    arms = {
        name: run_record().model_copy(
            update={"workloads": (workload_of(round_).model_copy(update={"numerics": "reference"}),)}
        )
        for name, round_ in (("base", base), ("head", head))
    }
    return judge_ab(ab_record((), **arms), suite({"cost_per_request": rule}, prices=PRICES))


def dearer(round_: RoundRecord, prompt_tokens: int) -> RoundRecord:
    requests = tuple(
        r.model_copy(update={"usage": r.usage.model_copy(update={"prompt_tokens": prompt_tokens})})
        for r in round_.requests
        if r.usage is not None
    )
    return round_.model_copy(update={"requests": requests})


def test_a_cost_that_rose_with_length_alone_passes_at_matched_length() -> None:
    result = priced(round_of(lengths=(30, 30, 60, 60)), round_of(), {"change": "3%"})
    assert row_of(result, "cost_per_request").state is State.REGRESSED
    row = row_of(result, "cost_per_request at matched length")
    assert (row.state, row.base, row.head, row.n_base) == (State.PASS, 0.065, 0.065, 2)
    assert (row.kind, row.gating, row.unit) == ("cost", True, "USD per request")
    assert row.detail == ("over 2 prompts of 4: those whose completions kept their length",)


def test_a_longer_prompt_is_not_hidden_by_shorter_answers() -> None:
    head = dearer(round_of(lengths=(30, 30, 6, 6)), 15)
    result = priced(head, round_of(), {"change": "3%", "max": "1"})
    assert row_of(result, "cost_per_request").state is State.IMPROVED
    row = row_of(result, "cost_per_request at matched length")
    assert (row.state, row.base, row.head) == (State.REGRESSED, 0.065, 0.075)
    assert row.tolerance == "+3 %"
    assert result.outcome is Outcome.REGRESSED
    explained = what_would_change_it(row, rule_of(row, suite({"cost_per_request": {"change": "3%"}}).policy))
    assert explained == "a head of at most 66.95 USD per 1,000 requests"


def test_cost_has_no_second_row_without_a_change_of_length_or_a_rule_about_change() -> None:
    def has_row(result: Verdict) -> bool:
        return any(row.metric.endswith("at matched length") for row in result.comparison.rows)

    longer = round_of(lengths=(30, 30, 60, 60))
    assert not has_row(priced(dearer(round_of(), 15), round_of(), {"change": "3%"}))
    assert not has_row(priced(longer, round_of(), {"max": "1"}))
    assert has_row(priced(longer, round_of(), {"change": "3%"}))
    none_kept = row_of(
        priced(round_of(lengths=(31,) * 4), round_of(), {"change": "3%"}),
        "cost_per_request at matched length",
    )
    assert (none_kept.state, none_kept.change) == (State.INCONCLUSIVE, None)
    assert "cost cannot be told from length" in none_kept.reason


def test_a_prompt_that_failed_in_one_arm_is_not_at_matched_length() -> None:
    head = round_of(lengths=(30, 30, 30, 60))
    failed = head.requests[0].model_copy(update={"error": "timed out"})
    head = head.model_copy(update={"requests": (failed, *head.requests[1:])})
    kept = kept_lengths([round_of(), head])
    assert kept is not None
    assert kept.ids == {"p1", "p2"}
    assert kept_lengths([round_of(), head.model_copy(update={"requests": (failed,)})]) is None


def test_the_run_goes_on_until_rows_at_matched_length_are_decided_too() -> None:
    """All prompts together are far slower for their length; those that kept theirs are too noisy to tell."""
    draw = random.Random(0)

    def rounds(launch: int, block: int, role: Role) -> RoundRecord:
        gap = 10 * draw.lognormvariate(0, 0.3)
        lengths = (8, 8, 3000, 3000, 3000) if role == "head" else (8, 8, 30, 30, 30)
        return round_of(gap, lengths=lengths)

    policy = suite({"e2e_p50": {"change": "5%"}})
    measured = launches(6, 6, rounds)
    result = judge_ab(ab_record(measured), policy)
    assert row_of(result, "e2e_p50").state is State.REGRESSED
    assert row_of(result, "e2e_p50 at matched length").state is State.INCONCLUSIVE
    assert not is_decided(measured, 6, policy, ["latency"])


def test_nothing_is_said_at_matched_length_where_no_completion_kept_its_own() -> None:
    def rounds(launch: int, block: int, role: Role) -> RoundRecord:
        return round_of(10, lengths=(20,) * 4 if role == "head" else (30,) * 4)

    result = verdict(rounds, {"throughput": {"change": "5%"}, "e2e_p50": {"max": "10s"}})
    assert not [r for r in result.comparison.rows if r.metric == "e2e_p50 at matched length"]
    row = row_of(result, "throughput at matched length")
    assert row.state is State.INCONCLUSIVE
    assert "every completion changed its length" in row.reason


def test_a_trade_of_prefill_for_decode_is_named() -> None:
    """vllm#44594: decode got faster and the first token slower."""

    def rounds(launch: int, block: int, role: Role) -> RoundRecord:
        lengths = (30,) * 24
        return round_of(4, ttft_ms=90, lengths=lengths) if role == "head" else round_of(10, lengths=lengths)

    result = verdict(rounds, {"ttft_p95": {"change": "10%"}, "decode_p95": {"change": "5%"}})
    assert row_of(result, "ttft_p95").state is State.REGRESSED
    assert row_of(result).state is State.IMPROVED
    assert "trade-off" in result.headline


def test_a_setting_that_the_change_made_does_not_make_it_another_machine() -> None:
    threads = FINGERPRINT.model_copy(update={"machine": {**FINGERPRINT.machine, "threads": "1"}})
    result = verdict(noisy(), head=run_record(threads))
    assert row_of(result).state is State.PASS
    assert ("served", "machine.threads") in {(c.group, c.name) for c in result.comparison.environment}


def test_a_timed_workload_that_head_no_longer_has_is_missing() -> None:
    base = run_record().model_copy(update={"workloads": (workload_of(), workload_of(name="burst"))})
    result = verdict(noisy(), base=base)
    row = next(row for row in result.comparison.rows if row.workload == "burst")
    assert (row.state, result.outcome) == (State.MISSING, Outcome.NO_DATA)


def test_explain_says_what_would_decide_and_what_would_change_it() -> None:
    policy = {"decode_p95": {"change": "5%"}}
    says = {
        factor: what_would_change_it(
            row_of(verdict(noisy(factor, sd), policy)), suite(policy).policy.rules["decode_p95"]
        )
        for factor, sd in ((1.0, 0.03), (1.2, 0.03), (1.02, 0.6))
    }
    assert says[1.0] == "an interval that lies wholly beyond the tolerance"
    assert says[1.2] == "an interval that reaches into the tolerance"
    assert says[1.02].endswith("block pairs in all: a larger `--budget`")


def test_an_interrupted_run_never_passes() -> None:
    assert verdict(noisy(), ended="interrupted").outcome is Outcome.FAILED


def test_how_the_measuring_ended_is_noted() -> None:
    notes = verdict(noisy()).comparison.notes
    assert any("ended: decided" in note for note in notes)


def test_the_run_goes_on_until_every_gating_row_is_decided() -> None:
    both = suite({"decode_p95": {"change": "5%"}, "itl_p50": {"change": "10%"}})
    measured = launches(6, 6, noisy())
    assert is_decided(measured, 6, both, ["latency"])
    assert not is_decided(measured[:2], 6, both, ["latency"])
    assert is_decided(measured[:2], 6, suite({"error_rate": {"max": 0}}), ["latency"])


def test_a_metric_that_more_launches_would_not_help_does_not_hold_the_run() -> None:
    assert is_decided(launches(4, 2, noisy()), 6, suite({"ttft_p99": {"change": "5%"}}), ["latency"])


def test_the_saved_record_gives_the_same_verdict_bit_for_bit(tmp_path: Path) -> None:
    record = ab_record(launches(6, 2, noisy(1.1)))
    saved = save_ab(judge_ab(record, suite()), record, suite(), tmp_path)
    assert read_ab_record(tmp_path / "ab.json") == record
    again = recompute(tmp_path / "verdict.json")
    assert again.holds
    assert again.again == saved

    (tmp_path / "ab.json").write_text(
        (tmp_path / "ab.json").read_text().replace('"decided"', '"launches done"')
    )
    assert recompute(tmp_path / "verdict.json").tampered == ("ab.json",)
