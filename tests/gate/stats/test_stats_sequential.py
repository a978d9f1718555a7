"""Error spent over looks and rows: known tables, and simulation of the walk itself."""

from math import inf

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import multivariate_normal

from servegate.stats.sequential import Plan, nominal_levels


def test_one_look_spends_everything() -> None:
    assert nominal_levels((1.0,), 0.01) == pytest.approx((0.01,))


@pytest.mark.parametrize("first", [0.2, 0.5, 0.8])
def test_two_looks_agree_with_the_bivariate_normal(first: float) -> None:
    alpha = 0.025
    limits = -ndtri(np.array(nominal_levels((first, 1.0), alpha)))
    assert limits[0] == pytest.approx(-ndtri(alpha * first**2))
    together = multivariate_normal(cov=[[1, np.sqrt(first)], [np.sqrt(first), 1]])
    assert together.cdf(limits) == pytest.approx(1 - alpha, abs=2e-5)


def test_a_walk_crosses_as_often_as_was_spent() -> None:
    fractions, alpha = (1 / 3, 0.5, 2 / 3, 5 / 6, 1.0), 0.05
    rng = np.random.default_rng(2)
    steps = np.sqrt(np.diff([0, *fractions]))
    walk = np.cumsum(rng.normal(0, steps, (400_000, 5)), axis=1) / np.sqrt(fractions)
    crossed = np.logical_or.accumulate(walk > -ndtri(np.array(nominal_levels(fractions, alpha))), axis=1)
    for t, share in zip(fractions, crossed.mean(axis=0), strict=True):
        assert share == pytest.approx(alpha * t**2, abs=5 * np.sqrt(alpha / 400_000))


@pytest.mark.parametrize("fractions", [(), (0.0, 1.0), (0.5, 0.5), (0.6, 0.4), (0.5, 1.1)])
def test_shares_that_do_not_rise_are_refused(fractions: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="rising"):
        nominal_levels(fractions, 0.05)


def test_a_plan_is_silent_before_its_first_look_and_ends_where_planned() -> None:
    plan = Plan(rows=6)
    assert [plan.level(k) for k in range(1, 4)] == [None, None, None]
    assert plan.level(4) == pytest.approx(0.05 / 6 / 9)
    assert plan.level(12) == plan.final_level < 0.05 / 6
    with pytest.raises(ValueError, match="13 launches, but only 12"):
        plan.level(13)


def test_more_rows_make_every_look_stricter() -> None:
    one, six = Plan(rows=1), Plan(rows=6)
    for launches in range(4, 13):
        few, many = one.level(launches), six.level(launches)
        assert few is not None
        assert many is not None
        assert many < few


@pytest.mark.parametrize("launches", [1, 2, 3])
def test_a_plan_of_few_launches_has_one_look_at_its_end(launches: int) -> None:
    plan = Plan(rows=2, launches=launches)
    assert plan.level(launches) == pytest.approx(0.025)
    assert plan.first_look == plan.first_claim == launches


@pytest.mark.parametrize(
    ("rows", "launches", "alpha"), [(0, 12, 0.05), (1, 0, 0.05), (1, 1, 0.0), (1, 1, 0.5), (1, 1, inf)]
)
def test_plans_without_meaning_are_refused(rows: int, launches: int, alpha: float) -> None:
    with pytest.raises(ValueError):
        Plan(rows, launches, alpha)
