"""The three-way decision: what decides it, what must not move it, and every reported fault of a gate."""

from dataclasses import replace
from math import expm1, inf, log, log1p, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servegate.stats.aa import noise_floor, under_floor
from servegate.stats.launches import InvalidSamplesError, Launch, log_ratios
from servegate.stats.paired import Decision, Limit, decide
from servegate.stats.sequential import Plan

PLAN = Plan(rows=6)
LIMIT = Limit(tolerance=0.05)


def series(
    change: float,
    *,
    sd: float = 0.05,
    launches: int = 12,
    pairs: int = 8,
    order: float = -0.009,
    seed: int = 1,
) -> list[Launch]:
    """Launches with a true relative change; `order` is what starting second adds to an arm."""
    rng = np.random.default_rng(seed)
    return [
        Launch(
            tuple((rng.normal(log1p(change) + (order if k % 2 else -order), sd, pairs)).tolist()), k % 2 == 0
        )
        for k in range(launches)
    ]


def edited(launches: list[Launch], *changes: tuple[int, int, float]) -> list[Launch]:
    rows = [list(launch.log_ratios) for launch in launches]
    for launch, block, value in changes:
        rows[launch][block] = value
    return [replace(launch, log_ratios=tuple(row)) for launch, row in zip(launches, rows, strict=True)]


# The four answers


@pytest.mark.parametrize(
    ("change", "state"),
    [
        (0.0, "pass"),
        (0.02, "pass"),
        (-0.02, "pass"),
        (0.10, "regressed"),
        (0.20, "regressed"),
        (-0.12, "improved"),
    ],
)
def test_a_clear_change_is_decided(change: float, state: str) -> None:
    decision = decide(series(change), LIMIT, PLAN)
    assert decision.state == state
    assert decision.interval is not None
    assert decision.interval[0] < change < decision.interval[1]
    assert decision.blocks_needed is None


def test_a_change_at_the_tolerance_is_inconclusive_and_says_how_many_blocks_would_decide() -> None:
    decision = decide(series(0.045), LIMIT, PLAN)
    assert decision.state == "inconclusive"
    assert decision.blocks_needed is None or decision.blocks_needed > 500
    assert "both sides of the limit of 5.0%" in decision.reason


def test_noise_too_large_names_the_blocks_that_would_decide_and_they_do() -> None:
    """The promise is 4 times in 5 were the estimate true; the median of many estimates is near the truth."""
    noisy = [decide(series(0.0, sd=0.25, seed=seed), LIMIT, PLAN) for seed in range(21)]
    asked = [decision.blocks_needed for decision in noisy if decision.blocks_needed is not None]
    assert len(asked) > 15
    pairs = round(float(np.median(asked)) / 12)
    assert 200 < 12 * pairs < 800
    decided = sum(
        decide(series(0.0, sd=0.25, pairs=pairs, seed=seed), LIMIT, PLAN).state == "pass"
        for seed in range(40)
    )
    assert decided >= 24


def test_the_smallest_detectable_change_is_found_four_times_in_five() -> None:
    size = decide(series(0.0), LIMIT, PLAN).smallest_detectable
    assert size is not None
    assert 0.05 < size < 0.10
    found = sum(decide(series(size, seed=seed), LIMIT, PLAN).state == "regressed" for seed in range(100))
    assert 65 <= found <= 97


def test_both_the_relative_and_the_absolute_limit_must_be_exceeded() -> None:
    slower = series(0.10)
    assert (
        decide(slower, Limit(0.05, floor=0.5, base=10.0), PLAN).state == "regressed"
    )  # 1.0 ms beyond 0.5 ms
    within = decide(slower, Limit(0.05, floor=2.0, base=10.0), PLAN)  # 1.0 ms is within 2.0 ms
    assert within.state == "pass"
    assert within.limit == 0.2
    assert decide(slower, Limit(0.20, floor=0.1, base=10.0), PLAN).state == "pass"
    assert decide(slower, Limit(0.0, floor=0.5, base=10.0), PLAN).state == "regressed"


def test_where_higher_is_better_a_fall_regresses() -> None:
    throughput = Limit(tolerance=0.05, higher_is_better=True)
    assert decide(series(-0.10), throughput, PLAN).state == "regressed"
    assert decide(series(0.12), throughput, PLAN).state == "improved"
    fallen = decide(series(0.0), throughput, PLAN)
    assert fallen.state == "pass"
    assert fallen.smallest_detectable is not None
    assert fallen.smallest_detectable < -0.05


def test_an_improvement_beyond_belief_is_flagged() -> None:
    assert decide(series(-0.75), LIMIT, PLAN).beyond_belief
    assert not decide(series(-0.60), LIMIT, PLAN).beyond_belief
    assert decide(series(3.0), Limit(0.05, higher_is_better=True), PLAN).beyond_belief


# Launches and looks


def test_the_bias_of_the_start_order_cancels_and_is_reported() -> None:
    biased, fair = decide(series(0.0, order=-0.06), LIMIT, PLAN), decide(series(0.0, order=0.0), LIMIT, PLAN)
    assert biased.state == fair.state == "pass"
    assert biased.estimate == pytest.approx(fair.estimate, abs=1e-9)
    assert biased.order_effect == pytest.approx(-0.06, abs=0.01)


def test_a_start_order_that_was_never_swapped_is_not_reported_as_known() -> None:
    one_order = [replace(launch, head_first=True) for launch in series(0.0)]
    assert decide(one_order, LIMIT, PLAN).order_effect is None


def test_launches_that_differ_widen_the_interval() -> None:
    rng = np.random.default_rng(4)
    steady = series(0.0)
    shaken = [
        replace(launch, log_ratios=tuple(r + offset for r in launch.log_ratios))
        for launch, offset in zip(steady, rng.normal(0, 0.08, 12), strict=True)
    ]
    narrow, wide = decide(steady, LIMIT, PLAN), decide(shaken, LIMIT, PLAN)
    assert narrow.launch_sd is not None
    assert wide.launch_sd is not None
    assert narrow.launch_sd < 0.015 < 0.04 < wide.launch_sd
    assert wide.interval is not None
    assert narrow.interval is not None
    assert wide.interval[1] - wide.interval[0] > 2 * (narrow.interval[1] - narrow.interval[0])


def test_launch_noise_seen_in_the_base_series_counts() -> None:
    offsets = np.random.default_rng(4).normal(0, 0.08, 12)
    same = [
        replace(launch, log_ratios=tuple(r + offset for r in launch.log_ratios))
        for launch, offset in zip(series(0.0, seed=9), offsets, strict=True)
    ]
    alone, warned = decide(series(0.08), LIMIT, PLAN), decide(series(0.08), LIMIT, PLAN, same)
    assert alone.launch_sd is not None
    assert warned.launch_sd is not None
    assert warned.launch_sd > 3 * alone.launch_sd


def test_no_look_before_four_launches_and_no_claim_before_six() -> None:
    states = [decide(series(0.30, launches=k), LIMIT, PLAN).state for k in range(1, 13)]
    assert states == ["inconclusive"] * 5 + ["regressed"] * 7
    assert decide(series(0.0, launches=3), LIMIT, PLAN).interval is None
    assert decide(series(0.0, launches=4), LIMIT, PLAN).state == "pass"


def test_four_launches_that_agree_by_luck_are_no_regression() -> None:
    lucky = [Launch(tuple(0.12 + r for r in launch.log_ratios), launch.head_first) for launch in series(0.0)]
    assert decide(lucky[:4], LIMIT, PLAN).state == "inconclusive"
    assert "6 launches" in decide(lucky[:4], LIMIT, PLAN).reason


def test_arms_that_cannot_be_relaunched_can_still_be_judged() -> None:
    once = Plan(rows=6, launches=1)
    loose = Limit(tolerance=0.10)
    assert decide(series(0.0, launches=1, pairs=60, order=0.0), loose, once).state == "pass"
    assert decide(series(0.3, launches=1, pairs=60, order=0.0), loose, once).state == "regressed"
    assert (
        decide(series(0.0, launches=1, pairs=60, order=0.0), LIMIT, once).state == "inconclusive"
    )  # a launch's luck


def test_more_launches_than_planned_have_no_error_left_to_spend() -> None:
    with pytest.raises(ValueError, match="only 12 were planned"):
        decide(series(0.0, launches=13), LIMIT, PLAN)


def test_too_few_blocks_are_said_to_be_too_few() -> None:
    decision = decide(series(0.5, launches=4, pairs=1), LIMIT, PLAN)
    assert decision.state == "inconclusive"
    assert decision.interval is None
    assert decision.smallest_detectable is None
    assert decision.blocks_needed is not None
    assert decision.blocks_needed >= 8


# Poison and contention


def test_two_poisoned_samples_of_ten_do_not_move_the_verdict() -> None:
    """lodgvideon/poseidon-http-server#129: two of ten at 1.8 times, on either side."""
    quiet, slower = series(0.0, pairs=10, sd=0.02), series(0.10, pairs=10, sd=0.02)
    poison = [(launch, block, sign * log(1.8)) for launch, sign in enumerate((1, -1) * 6) for block in (3, 7)]
    assert decide(edited(quiet, *poison), LIMIT, PLAN).state == "pass"
    assert decide(edited(slower, *poison), LIMIT, PLAN).state == "regressed"


def test_one_side_poisoned_throughout_still_passes() -> None:
    quiet = series(0.0, pairs=10, sd=0.02)
    poison = [(launch, block, log(1.8)) for launch in range(12) for block in (0, 5)]
    assert decide(edited(quiet, *poison), LIMIT, PLAN).state == "pass"


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 11), st.integers(0, 7), st.sampled_from([-50.0, -5.0, 5.0, 50.0]))
def test_a_single_wild_block_changes_nothing(launch: int, block: int, value: float) -> None:
    assert decide(edited(series(0.0), (launch, block, value)), LIMIT, PLAN).state == "pass"
    assert decide(edited(series(0.12), (launch, block, value)), LIMIT, PLAN).state == "regressed"


def with_marks(launches: list[Launch], rng: np.random.Generator, share: float, size: float) -> list[Launch]:
    out = []
    for launch in launches:
        marks = rng.random(len(launch.log_ratios)) < share
        hit = np.array(launch.log_ratios) + marks * size * rng.choice([-1, 1], marks.size)
        out.append(Launch(tuple(hit.tolist()), launch.head_first, tuple(marks.tolist())))
    return out


def test_contended_blocks_are_left_out() -> None:
    marked = with_marks(series(0.0), np.random.default_rng(1), 0.35, 0.7)
    unmarked = [replace(launch, contended=()) for launch in marked]
    with_them, without = decide(unmarked, LIMIT, PLAN), decide(marked, LIMIT, PLAN)
    assert without.contended_left_out
    assert without.state == "pass"
    assert without.blocks + without.contended == with_them.blocks == 96
    assert without.interval is not None
    assert with_them.interval is not None
    assert without.interval[1] < with_them.interval[1]


def test_contention_that_follows_one_arm_is_evidence_and_stays() -> None:
    """A head that loads the machine marks its own blocks: dropping them would hide the regression."""
    rng = np.random.default_rng(6)
    launches = []
    for launch in series(0.0):
        marks = rng.random(8) < 0.4
        launches.append(
            Launch(
                tuple((np.array(launch.log_ratios) + 0.4 * marks).tolist()), launch.head_first, tuple(marks)
            )
        )
    decision = decide(launches, LIMIT, PLAN)
    assert not decision.contended_left_out
    assert decision.blocks == 96
    assert decision.state != "pass"


def test_marks_on_most_blocks_are_no_excuse_to_drop_them() -> None:
    all_marked = [replace(launch, contended=(True,) * 8) for launch in series(0.10)]
    decision = decide(all_marked, LIMIT, PLAN)
    assert (decision.contended, decision.contended_left_out, decision.state) == (96, False, "regressed")


# Bad input


@pytest.mark.parametrize("bad", [0.0, -1.0, nan, inf])
@pytest.mark.parametrize("arm", ["base", "head"])
def test_a_value_that_no_ratio_can_be_taken_of_is_named(bad: float, arm: str) -> None:
    good, poisoned = [1.0, 2.0, 3.0], [1.0, bad, 3.0]
    with pytest.raises(InvalidSamplesError, match=f"{arm} block 1 is"):
        log_ratios(*((poisoned, good) if arm == "base" else (good, poisoned)))


def test_absurd_but_finite_ratios_are_judged_and_do_not_overflow() -> None:
    absurd = [Launch(log_ratios([5e-324] * 8, [1e308] * 8), k % 2 == 0) for k in range(12)]
    assert decide(absurd, LIMIT, PLAN).state == "regressed"
    assert decide(series(0.0, sd=2000.0), LIMIT, PLAN).state == "inconclusive"


def test_unequal_or_empty_arms_cannot_be_paired() -> None:
    with pytest.raises(InvalidSamplesError, match="2 base blocks cannot be paired with 1"):
        log_ratios([1.0, 2.0], [1.0])
    with pytest.raises(InvalidSamplesError, match="no blocks"):
        log_ratios([], [])


@pytest.mark.parametrize("ratios", [(), (nan,), (0.1, inf)])
def test_a_launch_without_numbers_is_refused(ratios: tuple[float, ...]) -> None:
    with pytest.raises(InvalidSamplesError):
        Launch(ratios, head_first=True)


def test_marks_must_match_the_blocks() -> None:
    with pytest.raises(InvalidSamplesError, match="one contention mark"):
        Launch((0.1, 0.2), True, (True,))


def test_nothing_measured_is_never_a_pass() -> None:
    with pytest.raises(InvalidSamplesError, match="no launches"):
        decide([], LIMIT, PLAN)


def test_the_same_data_on_both_sides_is_not_a_pass() -> None:
    """paiml/aprender#956: a commit compared with itself. Two real clocks never agree in every block."""
    decision = decide([Launch((0.0,) * 8, k % 2 == 0) for k in range(12)], LIMIT, PLAN)
    assert decision.state == "inconclusive"
    assert "same data" in decision.reason


def test_a_tiny_change_is_not_rounded_away() -> None:
    """oferchen/rsync#3574: rounded to 0.00, then inverted. Rounding belongs to the display."""
    decision = decide(series(0.004, sd=0.0005), Limit(0.001), PLAN)
    assert decision.state == "regressed"
    assert decision.estimate == pytest.approx(0.004, abs=3e-4)


@pytest.mark.parametrize(
    "arguments",
    [
        {"tolerance": 0.0},
        {"tolerance": -0.1},
        {"tolerance": nan},
        {"tolerance": 0.1, "floor": -1.0},
        {"tolerance": 0.1, "floor": 1.0, "base": 0.0},
        {"tolerance": 0.1, "floor": 1.0, "base": inf},
        {"tolerance": 1.0, "higher_is_better": True},
    ],
)
def test_limits_without_meaning_are_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        Limit(**arguments)  # type: ignore[arg-type]


# Properties

CHANGES = st.floats(-0.3, 0.3)
SEEDS = st.integers(0, 10_000)
SPREADS = st.floats(0.005, 0.3)
MIRROR = {"regressed": "improved", "improved": "regressed", "pass": "pass", "inconclusive": "inconclusive"}


@settings(deadline=None, max_examples=60)
@given(CHANGES, SPREADS, SEEDS)
def test_swapping_the_arms_mirrors_the_decision(change: float, sd: float, seed: int) -> None:
    launches = series(change, sd=sd, seed=seed)
    swapped = [
        Launch(tuple(-r for r in launch.log_ratios), not launch.head_first, launch.contended)
        for launch in launches
    ]
    there, back = decide(launches, LIMIT, PLAN), decide(swapped, LIMIT, PLAN)
    assert log1p(back.estimate) == pytest.approx(-log1p(there.estimate), abs=1e-12)
    assert there.interval is not None
    assert back.interval is not None
    assert log1p(back.interval[0]) == pytest.approx(-log1p(there.interval[1]), abs=1e-12)
    if there.state in ("regressed", "improved"):
        assert back.state == MIRROR[there.state]
    elif there.state == "pass":
        assert back.state in ("pass", "inconclusive")  # a pass is one-sided: it promises no slowdown only


@settings(deadline=None, max_examples=40)
@given(CHANGES, SPREADS, SEEDS, st.floats(1e-6, 1e6))
def test_the_unit_of_the_metric_does_not_matter(change: float, sd: float, seed: int, unit: float) -> None:
    rng = np.random.default_rng(seed)
    base = np.exp(rng.normal(0, sd, (6, 8)))
    head = np.exp(rng.normal(log1p(change), sd, (6, 8)))

    def judged(scale: float) -> Decision:
        launches = [Launch(log_ratios(base[k] * scale, head[k] * scale), k % 2 == 0) for k in range(6)]
        return decide(launches, Limit(0.05, floor=0.01 * scale, base=scale), PLAN)

    assert judged(unit).estimate == pytest.approx(judged(1.0).estimate, abs=1e-9)
    assert judged(unit).blocks_needed == judged(1.0).blocks_needed or judged(unit).state == judged(1.0).state


@settings(deadline=None, max_examples=40)
@given(CHANGES, SPREADS, SEEDS, st.randoms(use_true_random=False))
def test_the_order_of_blocks_and_of_launches_does_not_matter(
    change: float, sd: float, seed: int, random
) -> None:  # type: ignore[no-untyped-def]
    launches = series(change, sd=sd, seed=seed)
    shuffled = [
        replace(launch, log_ratios=tuple(random.sample(launch.log_ratios, len(launch.log_ratios))))
        for launch in random.sample(launches, len(launches))
    ]
    there, again = decide(launches, LIMIT, PLAN), decide(shuffled, LIMIT, PLAN)
    assert again.state == there.state
    assert again.interval == pytest.approx(there.interval, abs=1e-9)


@settings(deadline=None, max_examples=60)
@given(CHANGES, SPREADS, SEEDS, st.floats(0.01, 0.3), st.floats(0.0, 0.3))
def test_a_wider_tolerance_never_turns_a_verdict_for_the_worse(
    change: float, sd: float, seed: int, tolerance: float, more: float
) -> None:
    launches = series(change, sd=sd, seed=seed)
    strict, loose = (decide(launches, Limit(limit), PLAN).state for limit in (tolerance, tolerance + more))
    rank = {"regressed": 0, "inconclusive": 1, "pass": 2, "improved": 2}
    assert rank[loose] >= rank[strict]


@settings(deadline=None, max_examples=40)
@given(CHANGES, SPREADS, SEEDS)
def test_more_gating_rows_never_make_a_claim_easier(change: float, sd: float, seed: int) -> None:
    launches = series(change, sd=sd, seed=seed)
    many, one = decide(launches, LIMIT, Plan(rows=20)), decide(launches, LIMIT, Plan(rows=1))
    assert many.state in (one.state, "inconclusive") or (many.state, one.state) == ("pass", "improved")


def test_the_same_launches_give_the_same_decision_bit_for_bit() -> None:
    assert decide(series(0.03), LIMIT, PLAN, series(0.0, seed=2)) == decide(
        series(0.03), LIMIT, PLAN, series(0.0, seed=2)
    )


# A/A


def test_equal_arms_show_the_noise_floor_and_do_not_fail() -> None:
    floor = noise_floor(series(0.0), LIMIT, PLAN)
    assert not floor.fails
    assert floor.largest is not None
    assert 0.005 < floor.largest < 0.05
    decision = decide(series(0.1), LIMIT, PLAN)
    assert under_floor(decision, floor) is decision


@pytest.mark.parametrize("bias", [0.2, -0.2])
def test_where_equal_arms_differ_no_claim_about_head_stands(bias: float) -> None:
    floor = noise_floor(series(bias), LIMIT, PLAN)
    assert floor.fails
    for change in (0.0, 0.3, -0.8):
        decision = under_floor(decide(series(change), LIMIT, PLAN), floor)
        assert decision.state == "inconclusive"
        assert decision.reason.startswith("base against base would fail too")
        assert not decision.beyond_belief
        assert decision.estimate == pytest.approx(change, abs=0.05)


def test_before_the_first_look_there_is_no_floor() -> None:
    assert noise_floor(series(0.0, launches=2), LIMIT, PLAN).largest is None


def test_identical_source_is_not_called_nine_percent_slower() -> None:
    """ohdearquant/lattice#1137: +8.95 %, interval [+7.16, +10.74] in one run: the run was the noise."""
    one_run = series(expm1(0.0857), sd=0.03, launches=1, pairs=40, order=0.0)
    assert decide(one_run, LIMIT, PLAN).state == "inconclusive"
