"""The signed-rank interval against brute force over all sign patterns."""

from itertools import product
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from servegate.stats.signedrank import fewest_pairs, hodges_lehmann, rank_cut, shift_interval, walsh_averages


def all_rank_sums(n: int) -> np.ndarray:
    signs = np.array(list(product((0, 1), repeat=n)))
    return signs @ np.arange(1, n + 1)


@pytest.mark.parametrize("n", range(1, 13))
@pytest.mark.parametrize("level", [0.001, 0.01, 0.025, 0.05, 0.2])
def test_the_cut_is_the_largest_sum_that_is_rare_enough(n: int, level: float) -> None:
    sums = all_rank_sums(n)
    chance = [(sums <= cut).mean() for cut in range(n * (n + 1) // 2 + 1)]
    assert rank_cut(n, level) == sum(p <= level for p in chance) - 1


@pytest.mark.parametrize("level", [0.0005, 0.004, 0.025])
def test_normal_and_exact_cuts_meet(level: float) -> None:
    from servegate.stats import signedrank

    exact, normal = rank_cut(200, level), rank_cut(201, level)
    assert signedrank.EXACT_UP_TO == 200
    assert 0 < normal - exact < 201  # one more pair adds one more rank


def test_the_interval_holds_exactly_the_shifts_that_the_test_does_not_reject() -> None:
    values = np.random.default_rng(5).normal(1, 1, 11)
    level = 0.025
    shift = shift_interval(values, level)
    for centre in np.linspace(-1, 3, 301):
        p = stats.wilcoxon(values - centre, alternative="two-sided", method="exact").pvalue
        if min(abs(centre - shift.low), abs(centre - shift.high)) > 1e-9:
            assert (p > 2 * level) == (shift.low <= centre <= shift.high)


def test_too_few_pairs_give_an_open_interval_and_never_a_guess() -> None:
    shift = shift_interval(np.array([0.1, 0.2, 0.3]), 0.01)
    assert (shift.low, shift.estimate, shift.high) == (-inf, pytest.approx(0.2), inf)


@pytest.mark.parametrize(("level", "n"), [(0.5, 1), (0.25, 2), (0.01, 7), (0.001, 10)])
def test_fewest_pairs_is_where_two_to_the_minus_n_is_rare_enough(level: float, n: int) -> None:
    assert fewest_pairs(level) == n
    assert np.isfinite(shift_interval(np.arange(n, dtype=float), level).low)


def test_no_values_have_no_shift() -> None:
    with pytest.raises(ValueError, match="no differences"):
        shift_interval(np.empty(0), 0.05)


def test_two_poisoned_values_of_ten_do_not_move_the_estimate() -> None:
    clean = np.random.default_rng(3).normal(0, 0.03, 10)
    poisoned = clean.copy()
    poisoned[:2] = np.log(1.8)
    assert abs(hodges_lehmann(poisoned) - hodges_lehmann(clean)) < 0.03
    assert abs(poisoned.mean() - clean.mean()) > 0.1  # the mean would have moved


def test_coverage_is_what_the_level_says_for_symmetric_noise() -> None:
    rng = np.random.default_rng(11)
    misses = 0
    for _ in range(3000):
        noise = rng.standard_t(2, 15)
        misses += shift_interval(noise, 0.05).low > 0
    assert 0.035 < misses / 3000 <= 0.06


VALUES = st.lists(st.floats(-5, 5).map(lambda x: round(x, 6)), min_size=8, max_size=24).map(np.array)


@settings(deadline=None)
@given(VALUES, st.floats(-3, 3), st.floats(0.1, 10))
def test_the_interval_moves_and_scales_with_the_values(values: np.ndarray, move: float, scale: float) -> None:
    shift, moved = shift_interval(values, 0.02), shift_interval(values * scale + move, 0.02)
    for before, after in ((shift.low, moved.low), (shift.estimate, moved.estimate), (shift.high, moved.high)):
        assert after == pytest.approx(before * scale + move, abs=1e-9)


@settings(deadline=None)
@given(VALUES)
def test_the_interval_is_mirrored_with_the_values(values: np.ndarray) -> None:
    shift, mirrored = shift_interval(values, 0.02), shift_interval(-values, 0.02)
    assert (mirrored.low, mirrored.estimate, mirrored.high) == (-shift.high, -shift.estimate, -shift.low)


@settings(deadline=None)
@given(VALUES)
def test_a_stricter_level_gives_a_wider_interval_around_the_same_estimate(values: np.ndarray) -> None:
    strict, loose = shift_interval(values, 0.005), shift_interval(values, 0.05)
    assert strict.low <= loose.low <= loose.estimate <= loose.high <= strict.high
    assert strict.estimate == loose.estimate == float(np.median(walsh_averages(values)))
