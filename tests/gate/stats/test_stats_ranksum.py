"""The rank-sum interval: exact for few numbers, and never narrower than stated."""

from itertools import combinations
from math import inf

import numpy as np
import pytest

from servegate.stats.ranksum import EXACT_UP_TO, shift_between, sum_cut


@pytest.mark.parametrize(("base", "head"), [(1, 3), (2, 2), (3, 4), (6, 5)])
@pytest.mark.parametrize("level", [0.0001, 0.002, 0.01, 0.1, 0.3])
def test_the_cut_is_that_of_counting_every_choice_of_ranks(base: int, head: int, level: float) -> None:
    counts = []
    for chosen in combinations(range(base + head), head):
        others = set(range(base + head)) - set(chosen)
        counts.append(sum(above > below for above in chosen for below in others))
    allowed = [c for c in range(base * head + 1) if np.mean(np.array(counts) <= c) <= level]
    assert sum_cut(base, head, level) == max(allowed, default=-1)


def test_many_numbers_follow_the_normal_distribution() -> None:
    exact = sum_cut(EXACT_UP_TO // 2, EXACT_UP_TO // 2, 0.001)
    assert sum_cut(EXACT_UP_TO // 2, EXACT_UP_TO // 2 + 1, 0.001) == pytest.approx(exact, abs=25)


def test_the_ends_of_few_numbers_are_infinite() -> None:
    shift = shift_between(np.array([1.0, 2.0]), np.array([5.0, 6.0]), 0.01)
    assert (shift.estimate, shift.low, shift.high) == (4.0, -inf, inf)
    with pytest.raises(ValueError):
        shift_between(np.array([]), np.array([1.0]), 0.01)


def test_the_interval_holds_the_shift_as_often_as_stated() -> None:
    rng = np.random.default_rng(1)
    missed = 0
    for _ in range(2_000):
        shift = shift_between(rng.standard_t(2, 7), 3 + rng.standard_t(2, 6), 0.02)
        missed += not shift.low <= 3 <= shift.high
    assert missed <= 95  # 80 expected at most
