"""`servegate ab` on a target that does not repeat itself: what is measured again, and what runs decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from varying import POLICY, Engine, record, suite, workload

from servegate.ab.again import measure_again
from servegate.ab.judging import judge_ab
from servegate.ab.record import AbRecord, AnswerRun
from servegate.ab.schedule import Role
from servegate.bundle import recompute, save_ab
from servegate.record import WorkloadRecord
from servegate.suite.schema import Suite
from servegate.verdict import Outcome, Row, State, Verdict

SCORED = {**POLICY, "logprob_delta": {"max": 0.01}}
SECOND = 1_000_000_000
NEEDED = 7
"""Runs of each arm under SCORED: three tests of lengths, one of finish reasons, three of logprobs."""


@dataclass
class Lab:
    """Starts arms that answer by drawing, on a clock that only they move."""

    base: Engine
    head: Engine
    rounds: int = 1
    start_ns: int = SECOND
    constant: tuple[Role, ...] = ()
    """Arms whose processes all draw the same numbers: they repeat themselves."""
    scores: bool = True
    counts: bool = False
    """Do the engine's counters vary, whatever the answers do?"""
    now: int = 0
    started: list[Role] = field(default_factory=list)

    def start(self, role: Role) -> Arm:
        self.started.append(role)
        self.now += self.start_ns
        return Arm(self, role, 0 if role in self.constant else len(self.started))

    def clock(self) -> int:
        return self.now

    def measured(self, budget_ns: int = 1000 * SECOND, judged_by: Suite | None = None) -> AbRecord:
        firsts: list[WorkloadRecord] = []
        forced: dict[str, list[int]] = {}
        for role in ("base", "head"):
            arm = self.start(role)
            firsts.append(arm.exact("behaviour", forced))
            if role == "base":
                answers = firsts[0].rounds[0].requests
                forced = {r.id: list(r.token_ids) for r in answers if r.token_ids}
        again = measure_again(
            firsts[:1], firsts[1:], judged_by or suite(SCORED), forced, self.start, self.clock, budget_ns
        )
        return AbRecord(
            base=record(firsts[0]),
            head=record(firsts[1]),
            budget_ns=budget_ns,
            planned_launches=1,
            answers=again.runs,
            ended="nothing is timed",
        )


@dataclass
class Arm:
    lab: Lab
    role: Role
    seed: int

    def exact(self, name: str, forced: dict[str, list[int]]) -> WorkloadRecord:
        engine = self.lab.head if self.role == "head" else self.lab.base
        draw = np.random.default_rng([self.seed, 1])
        counted = [10 * len(self.lab.started) if self.lab.counts else 0] * self.lab.rounds
        rounds = [engine.round(draw, counters=counters) for counters in counted]
        return workload(rounds, engine.scores(draw, forced if self.lab.scores else {}))

    def close(self) -> None:
        self.lab.now += 1


def verdict(
    base: Engine,
    head: Engine,
    policy: dict[str, Any] = SCORED,
    *,
    more: dict[str, Any] | None = None,
    **lab: Any,
) -> Verdict:
    judged_by = suite(policy, **(more or {}))
    return judge_ab(Lab(base, head, **lab).measured(judged_by=judged_by), judged_by)


def row_of(found: Verdict, metric: str) -> Row:
    return next(row for row in found.comparison.rows if row.metric == metric)


def states(found: Verdict, metrics: Sequence[str]) -> list[State]:
    return [row_of(found, metric).state for metric in metrics]


TESTED = ("completion_tokens", "finish_reasons", "logprob_delta")


def test_a_base_that_repeats_itself_is_run_twice_and_held_to_the_exact_rule() -> None:
    lab = Lab(Engine(), Engine(), constant=("base", "again", "head"))
    found = judge_ab(lab.measured(), suite(SCORED))
    assert lab.started == ["base", "head", "again"]
    row = row_of(found, "completion_tokens")
    assert (row.state, row.reason.startswith("unchanged at"), row.detail) == (State.PASS, True, ())
    assert not any("does not repeat itself" in note for note in found.comparison.notes)


def test_a_head_that_differs_from_a_base_that_repeats_itself_is_run_twice_too() -> None:
    lab = Lab(Engine(), Engine(longer=1.1), constant=("base", "again", "head"))
    found = judge_ab(lab.measured(), suite(SCORED))
    assert lab.started == ["base", "head", "again", "head"]
    assert row_of(found, "completion_tokens").state is State.REGRESSED
    assert row_of(found, "completion_tokens").detail == ()


def test_where_base_varies_both_arms_are_run_in_turn_until_the_tests_reach_their_level() -> None:
    lab = Lab(Engine(), Engine())
    measured = lab.measured()
    more = ["head", "again", "again", "head"] * 3
    assert lab.started == ["base", "head", "again", *more]
    assert lab.started.count("head") == NEEDED
    found = judge_ab(measured, suite(SCORED))
    assert states(found, TESTED) == [State.PASS] * 3
    (note,) = [note for note in found.comparison.notes if "does not repeat itself" in note]
    assert "over 8 runs of base and 7 of head" in note


def test_a_head_that_alone_varies_is_not_held_to_the_exact_rule() -> None:
    lab = Lab(Engine(), Engine(), constant=("base", "again"))
    found = judge_ab(
        lab.measured(), suite({"completion_tokens": {"change": "20%"}, "token_ids": {"equal": True}})
    )
    assert lab.started[:4] == ["base", "head", "again", "head"]
    assert states(found, ("completion_tokens", "token_ids")) == [State.PASS, State.INCONCLUSIVE]


def test_longer_answers_are_found() -> None:
    found = verdict(Engine(), Engine(longer=1.3))
    row = row_of(found, "completion_tokens")
    assert (found.outcome, row.state) == (Outcome.REGRESSED, State.REGRESSED)
    assert row.change == pytest.approx(0.3, abs=0.04)
    assert any(line == "20 prompts, 8 runs of base and 7 of head" for line in row.detail)


def test_half_of_the_answers_empty_is_found_though_the_mean_is_kept() -> None:
    found = verdict(Engine(), Engine(empty=0.5))
    row = row_of(found, "completion_tokens")
    assert (row.state, row.change) == (State.REGRESSED, None)
    assert "% of head's answers are empty (base 0 %)" in row.reason
    assert "% of head's answers are empty" in found.headline


def test_answers_cut_short_are_found_by_their_finish_reasons() -> None:
    assert row_of(verdict(Engine(), Engine(limit=80)), "finish_reasons").state is State.REGRESSED


def test_scores_are_held_against_those_of_base_and_its_noise_is_named() -> None:
    assert row_of(verdict(Engine(), Engine(logprob_shift=-0.05)), "logprob_delta").state is State.REGRESSED
    found = verdict(Engine(), Engine(), {"logprob_delta": {"max": "1e-6"}})
    row = row_of(found, "logprob_delta")
    assert row.state is State.INCONCLUSIVE
    assert "does not decide about the tolerance of 1e-06 nat" in row.reason
    assert any(line.startswith("noise floor: two answers of base") for line in row.detail)


def test_without_scores_logprobs_of_other_answers_are_not_compared() -> None:
    found = verdict(Engine(), Engine(logprob_shift=-0.05), scores=False)
    assert row_of(found, "completion_tokens").state is State.PASS
    assert all(row.state is not State.REGRESSED for row in found.comparison.rows if row.gating)


def test_a_check_that_fails_more_often_is_found_and_one_that_always_did_now_and_then_is_not() -> None:
    checks = {"quality": ({"prompt": "*", "contains": "yes"},)}
    equal = verdict(Engine(good=0.8), Engine(good=0.8), POLICY, more=checks)
    assert row_of(equal, "quality_lost").state is State.PASS
    worse = verdict(Engine(good=0.8), Engine(good=0.3), POLICY, more=checks)
    assert row_of(worse, "quality_lost").state is State.REGRESSED


def test_several_rounds_of_one_process_are_one_run() -> None:
    found = verdict(Engine(), Engine(), rounds=3)
    row = row_of(found, "completion_tokens")
    assert any(line == "20 prompts, 8 runs of base and 7 of head" for line in row.detail)
    assert row.state is State.PASS


def test_a_budget_that_holds_too_few_runs_is_inconclusive_and_says_how_many_there_must_be() -> None:
    lab = Lab(Engine(), Engine(longer=1.5))
    measured = lab.measured(budget_ns=5 * SECOND)
    assert lab.started == ["base", "head", "again", *["head", "again", "again", "head"]]
    found = judge_ab(measured, suite(SCORED))
    row = row_of(found, "completion_tokens")
    assert row.state is State.INCONCLUSIVE
    assert f"3 runs of each arm are too few: {NEEDED} are needed, a larger --budget" in row.reason
    assert any(f"3 of head, where {NEEDED} are needed" in note for note in found.comparison.notes)


def test_what_a_prompt_lacks_in_one_run_leaves_it_out_and_says_so() -> None:
    found = verdict(Engine(), Engine(failing=tuple(f"p{n:02}" for n in range(9)), failure_share=0.1))
    row = row_of(found, "completion_tokens")
    assert any(line.startswith("not compared, since not answered often enough: ") for line in row.detail)
    assert row_of(found, "error_rate").state is State.REGRESSED


def test_the_saved_files_give_the_same_verdict(tmp_path: Path) -> None:
    judged_by = suite(SCORED)
    measured = Lab(Engine(), Engine(longer=1.1)).measured()
    saved = save_ab(judge_ab(measured, judged_by), measured, judged_by, tmp_path)
    again = recompute(tmp_path / "verdict.json")
    assert again.holds
    assert again.again == saved


def test_a_record_of_before_loads_and_is_held_to_the_exact_rule() -> None:
    measured = Lab(Engine(), Engine()).measured().model_dump(exclude={"answers"})
    old = AbRecord.model_validate(measured)
    assert old.answers == ()
    found = judge_ab(old, suite({"completion_tokens": {"equal": True}}))
    assert row_of(found, "completion_tokens").state is State.REGRESSED


def test_runs_of_a_workload_that_head_no_longer_has_are_not_judged() -> None:
    measured = Lab(Engine(), Engine()).measured()
    other = measured.head.workloads[0].model_copy(update={"name": "other"})
    changed = measured.model_copy(
        update={
            "head": record(other),
            "answers": tuple(
                AnswerRun(role=run.role, workload=run.workload)
                for run in measured.answers
                if run.role == "again"
            ),
        }
    )
    assert judge_ab(changed, suite(SCORED)).outcome is not Outcome.REGRESSED


def test_counters_that_vary_although_the_answers_do_not_are_inconclusive_and_no_other_row_is() -> None:
    lab = Lab(Engine(), Engine(), constant=("base", "again", "head"), counts=True)
    policy = {"completion_tokens": {"equal": True}, "steps": {"equal": True}}
    found = judge_ab(lab.measured(judged_by=suite(policy)), suite(policy))
    assert lab.started == ["base", "head", "again"]
    assert states(found, ("completion_tokens", "steps")) == [State.PASS, State.INCONCLUSIVE]
    assert (
        row_of(found, "steps").reason == "the target does not repeat itself: base 110 to 130, head 120 steps"
    )
