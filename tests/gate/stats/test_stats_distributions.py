"""Engines that do not repeat themselves: whole distributions, prompt by prompt, against their own noise."""

from itertools import combinations, product
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servegate.stats.distributions import absolute, compare, location, mean_gap, unequal
from servegate.stats.launches import InvalidSamplesError

Lengths = dict[str, list[float]]
RULE = {"tolerance": 5.0, "alpha": 0.01, "level": 0.01, "seed": 1}


def noisy(
    rng: np.random.Generator, prompts: int, repeats: int, sd: float = 10.0, scale: float = 1.0
) -> Lengths:
    """Lengths around a typical length of each prompt, from 50 to 150 tokens."""
    centre = np.linspace(50, 150, prompts)
    return {f"p{k}": (scale * centre[k] + rng.normal(0, sd, repeats)).tolist() for k in range(prompts)}


def test_an_engine_that_varies_as_before_is_the_same() -> None:
    rng = np.random.default_rng(1)
    result = compare(noisy(rng, 40, 3), noisy(rng, 40, 2), absolute, **RULE)
    assert result.state == "same"
    assert result.floor == pytest.approx(2 * 10 / np.sqrt(np.pi), rel=0.2)
    assert result.p_value > 0.01


def test_half_of_the_answers_empty_with_the_same_mean_is_a_change() -> None:
    """tenstorrent/vllm#354: outputs of either 128 or 0 tokens; the mean hides it."""
    rng = np.random.default_rng(2)
    base = {f"p{k}": (100 + rng.normal(0, 5, 2)).tolist() for k in range(40)}
    head = {f"p{k}": [0.0, 0.0] if k % 2 else [200.0, 200.0] for k in range(40)}
    everything = [length for lengths in head.values() for length in lengths]
    assert np.mean(everything) == 100
    result = compare(base, head, absolute, **RULE)
    assert (result.state, result.p_value) == ("changed", 1e-4)
    assert result.excess == pytest.approx(95, abs=5)


def test_half_of_the_answers_empty_is_seen_through_an_engine_that_varies_a_lot() -> None:
    rng = np.random.default_rng(3)
    base = {f"p{k}": np.maximum(0, 100 + rng.normal(0, 40, 3)).tolist() for k in range(50)}
    head = {f"p{k}": (rng.choice([0.0, 200.0], 2)).tolist() for k in range(50)}
    assert compare(base, head, absolute, **RULE).state == "changed"


def test_prompts_that_swap_their_lengths_are_a_change_although_no_marginal_moved() -> None:
    """Pairing is by prompt, never by position or by pooled values."""
    base = {f"p{k}": [50.0 + k % 3, 51.0] if k % 2 else [150.0 + k % 3, 151.0] for k in range(20)}
    head = {f"p{k}": [151.0, 150.0] if k % 2 else [51.0, 50.0] for k in range(20)}
    assert compare(base, head, absolute, **RULE).state == "changed"


def test_the_order_of_prompts_in_the_log_does_not_matter() -> None:
    rng = np.random.default_rng(4)
    base, head = noisy(rng, 30, 2), noisy(rng, 30, 2)
    assert compare(base, head, absolute, **RULE) == compare(
        dict(reversed(base.items())), dict(sorted(head.items())), absolute, **RULE
    )


def test_an_engine_that_repeats_itself_exactly_is_the_same() -> None:
    same = {f"p{k}": [float(k), float(k)] for k in range(20)}
    result = compare(same, same, absolute, tolerance=1.0, alpha=0.01, level=0.01, seed=1)
    assert (result.state, result.excess, result.floor, result.p_value) == ("same", 0.0, 0.0, 1.0)


def test_finish_reasons_are_compared_as_shares() -> None:
    rng = np.random.default_rng(5)
    rule = {"tolerance": 0.1, "alpha": 0.01, "level": 0.01, "seed": 1}

    def reasons(repeats: int) -> dict[str, list[str]]:
        return {f"p{k}": rng.choice(["stop", "stop", "length"], repeats).tolist() for k in range(60)}

    base = reasons(4)
    assert compare(base, reasons(2), unequal, **rule).state == "same"
    assert compare(base, {p: ["stop", "length"] for p in base}, unequal, **rule).state == "same"


@pytest.mark.parametrize("always", ["stop", "length"])
def test_a_head_that_varies_less_than_base_has_changed_too(always: str) -> None:
    """All answers cut at the limit, where half were: no further from base than base from itself."""
    rng = np.random.default_rng(5)
    base = {f"p{k}": rng.choice(["stop", "length"], 4).tolist() for k in range(60)}
    fixed = {prompt: [always] * 2 for prompt in base}
    assert compare(base, fixed, unequal, tolerance=0.1, alpha=0.01, level=0.01, seed=1).state == "changed"


def test_logprobs_are_compared_position_by_position_against_their_floor() -> None:
    rng = np.random.default_rng(6)

    def scores(repeats: int, shift: float) -> dict[str, list[list[float]]]:
        return {
            f"p{k}": [(-2 + shift + rng.normal(0, 1e-3, 20)).tolist() for _ in range(repeats)]
            for k in range(20)
        }

    rule = {"tolerance": 1e-3, "alpha": 0.01, "level": 0.01, "seed": 1}
    assert compare(scores(2, 0), scores(2, 0), mean_gap, **rule).state == "same"
    assert compare(scores(2, 0), scores(2, 0.01), mean_gap, **rule).state == "changed"


def test_positions_that_do_not_correspond_are_refused() -> None:
    with pytest.raises(InvalidSamplesError, match="3 and 2 positions"):
        mean_gap([1.0, 2.0, 3.0], [1.0, 2.0])
    with pytest.raises(InvalidSamplesError):
        mean_gap([], [])


def test_few_prompts_are_inconclusive_and_never_a_pass() -> None:
    base, head = {"a": [1.0, 2.0], "b": [1.0, 2.0]}, {"a": [1.5, 1.6], "b": [1.5, 1.7]}
    result = compare(base, head, absolute, **RULE)
    assert result.state == "inconclusive"
    assert "too few" in result.reason
    far = compare(base, {"a": [900.0, 901.0], "b": [900.0, 901.0]}, absolute, **RULE)
    assert (far.state, far.p_value) == ("inconclusive", pytest.approx(4 / 36))


def test_a_change_near_the_tolerance_is_inconclusive() -> None:
    rng = np.random.default_rng(7)
    base, head = (
        noisy(rng, 40, 2, sd=20),
        {k: [x + 25 for x in v] for k, v in noisy(rng, 40, 2, sd=20).items()},
    )
    excess = compare(base, head, absolute, **RULE).excess
    assert (
        compare(base, head, absolute, tolerance=excess, alpha=0.01, level=0.01, seed=1).state
        == "inconclusive"
    )


def test_prompts_of_one_side_are_named_and_not_compared() -> None:
    rng = np.random.default_rng(8)
    base, head = noisy(rng, 20, 2), noisy(rng, 20, 2)
    base["gone"], base["once"], head["new"] = [1.0, 1.0], [1.0], [1.0, 1.0]
    head["once"], head["empty"], base["empty"] = [1.0, 1.0], [], [1.0, 2.0]
    result = compare(base, head, absolute, **RULE)
    assert (result.prompts, result.unmatched) == (20, ("empty", "gone", "new", "once"))


@pytest.mark.parametrize("head", [{}, {"other": [1.0, 2.0]}, {"a": []}, {"a": [1.0]}])
def test_no_common_prompt_compares_nothing_and_says_so(head: Lengths) -> None:
    with pytest.raises(InvalidSamplesError, match="no prompt"):
        compare({"a": [1.0, 2.0]}, head, absolute, **RULE)


def test_a_distance_that_is_no_number_is_refused() -> None:
    with pytest.raises(InvalidSamplesError, match="distance"):
        compare({"a": [1.0, nan]}, {"a": [1.0, 1.0]}, absolute, **RULE)


def test_the_p_value_of_small_cases_is_the_brute_force_one() -> None:
    rng = np.random.default_rng(9)
    base = {f"p{k}": rng.normal(0, 1, 2).tolist() for k in range(5)}
    head = {f"p{k}": rng.normal(1, 1, 2).tolist() for k in range(5)}

    def excess(answers: list[float], kept: tuple[int, ...]) -> float:
        inside = [answers[i] for i in kept]
        outside = [answers[i] for i in range(4) if i not in kept]
        between = np.mean([abs(x - y) for x in inside for y in outside])
        return float(between - (abs(inside[0] - inside[1]) + abs(outside[0] - outside[1])) / 2)

    tables = [[excess(base[p] + head[p], kept) for kept in combinations(range(4), 2)] for p in base]
    observed = sum(table[0] for table in tables)
    sums = [sum(choice) for choice in product(*tables)]
    expected = np.mean([total >= observed - 1e-9 for total in sums])
    assert compare(base, head, absolute, **RULE).p_value == pytest.approx(expected)


def test_equal_engines_are_called_changed_no_more_often_than_stated() -> None:
    rng = np.random.default_rng(10)
    called = 0
    for seed in range(150):
        base, head = noisy(rng, 12, 2, sd=30), noisy(rng, 12, 2, sd=30)
        called += (
            compare(base, head, absolute, tolerance=1e-9, alpha=0.05, level=0.05, seed=seed).p_value <= 0.05
        )
    assert called <= 15  # 7.5 expected


@settings(deadline=None, max_examples=25)
@given(st.floats(0.01, 100), st.floats(-50, 50), st.integers(0, 100))
def test_units_and_offsets_of_a_length_do_not_matter(scale: float, move: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    base, head = noisy(rng, 10, 2), noisy(rng, 10, 2)
    change = lambda side: {k: [x * scale + move for x in v] for k, v in side.items()}  # noqa: E731
    before = compare(base, head, absolute, **RULE)
    after = compare(change(base), change(head), absolute, tolerance=5 * scale, alpha=0.01, level=0.01, seed=1)
    assert after.state == before.state
    assert after.excess == pytest.approx(scale * before.excess, abs=1e-6 * scale)


def test_a_small_shift_of_every_answer_is_left_to_the_location() -> None:
    rng = np.random.default_rng(12)
    base = noisy(rng, 60, 2, sd=30)
    head = {k: [x + 18 for x in v] for k, v in noisy(rng, 60, 2, sd=30).items()}
    shift = location(base, head, alpha=0.01, seed=1)
    assert 0 < shift.low < 18 < shift.high
    for wrong in ({}, {"p1": [nan]}):
        with pytest.raises(InvalidSamplesError):
            location(base, wrong, alpha=0.01, seed=1)


def test_the_location_is_of_the_mean_so_a_few_prompts_that_grew_a_lot_count() -> None:
    rng = np.random.default_rng(13)
    base, head = noisy(rng, 40, 5, sd=5), noisy(rng, 40, 5, sd=5)
    for prompt in list(head)[::8]:
        head[prompt] = [length + 400 for length in head[prompt]]
    shift = location(base, head, alpha=0.001, seed=1)
    assert shift.estimate == pytest.approx(50, abs=5)
    assert shift.low > 10


def test_the_location_of_equal_engines_is_off_no_more_often_than_stated() -> None:
    rng = np.random.default_rng(14)
    off = 0
    for seed in range(200):
        base, head = noisy(rng, 12, 2, sd=30), noisy(rng, 12, 2, sd=30)
        off += location(base, head, alpha=0.05, seed=seed).low > 0
    assert off <= 18  # 10 expected


def test_two_answers_of_one_prompt_give_no_end() -> None:
    shift = location({"a": [1.0, 2.0]}, {"a": [11.0, 12.0]}, alpha=0.01, seed=1)
    assert (shift.estimate, shift.low, shift.high) == (10.0, -inf, inf)


def test_many_answers_of_a_prompt_are_relabelled_by_draws() -> None:
    """20 answers an arm have 10^11 labellings."""
    rng = np.random.default_rng(15)
    assert compare(noisy(rng, 8, 20), noisy(rng, 8, 20), absolute, **RULE).state == "same"
    far = compare(noisy(rng, 8, 20), noisy(rng, 8, 20, scale=1.5), absolute, **RULE)
    assert (far.state, far.p_value) == ("changed", pytest.approx(1e-4))


def test_without_a_tolerance_arms_are_the_same_where_less_apart_than_base_from_itself() -> None:
    rng = np.random.default_rng(16)
    reasons = [{f"p{k}": rng.choice(["stop", "length"], 6).tolist() for k in range(30)} for _ in range(2)]
    result = compare(*reasons, unequal, tolerance=0.0, alpha=0.001, level=0.001, seed=1)
    assert (result.state, result.floor) == ("same", pytest.approx(0.5, abs=0.05))
    assert result.interval[1] < result.floor
