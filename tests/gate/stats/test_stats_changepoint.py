"""Slow drift after merge: found, dated, and not confused with outliers or with accepted steps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servegate.stats.changepoint import change_points
from servegate.stats.launches import InvalidSamplesError


def steps(*levels: tuple[float, int], sd: float = 0.02, seed: int = 1) -> list[float]:
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(level, sd * level, n) for level, n in levels]).tolist()


def test_a_step_is_dated() -> None:
    (found,) = change_points(steps((10.0, 20), (10.8, 20)))
    assert abs(found.index - 20) <= 1
    assert found.before == pytest.approx(10.0, rel=0.01)
    assert found.after == pytest.approx(10.8, rel=0.01)
    assert found.p_value < 0.001


def test_two_steps_are_both_dated_oldest_first() -> None:
    found = change_points(steps((10.0, 25), (11.0, 25), (10.2, 25)))
    assert [abs(point.index - at) <= 2 for point, at in zip(found, (25, 50), strict=True)] == [True, True]


def test_a_slow_drift_below_every_tolerance_is_found() -> None:
    drift = np.array(steps((10.0, 60))) * np.linspace(1.0, 1.06, 60)  # 0.1 % a commit
    found = change_points(drift.tolist())
    assert found
    assert found[0].after > found[0].before


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 39), st.sampled_from([0.001, 5.0, 1e6]))
def test_one_outlier_is_no_change(at: int, factor: float) -> None:
    history = steps((10.0, 40), seed=5)
    history[at] *= factor
    assert change_points(history) == ()


def test_one_outlier_does_not_hide_a_change() -> None:
    history = steps((10.0, 20), (11.0, 20))
    history[30] = 0.1
    (found,) = change_points(history)
    assert abs(found.index - 20) <= 1


def test_an_accepted_step_starts_a_new_stretch() -> None:
    """conbench#383, #473: a step of 30 %, then 5 %: the first, accepted, must not hide the second."""
    history = steps((10.0, 20), (13.0, 20), (13.65, 20), sd=0.01)
    assert [point.index for point in change_points(history, accepted=[20, 40])] == []
    (found,) = change_points(history, accepted=[20])
    assert abs(found.index - 40) <= 1
    assert found.before == pytest.approx(13.0, rel=0.01)


def test_histories_without_change_raise_few_alarms() -> None:
    rng = np.random.default_rng(6)
    noises = (rng.standard_normal, lambda n: rng.standard_t(2, n), lambda n: rng.choice([1.6, 1.8], n))
    alarms = sum(
        bool(change_points((10 + noise(40)).tolist(), seed=k)) for noise in noises for k in range(25)
    )
    assert alarms <= 1  # 0.1 expected


@pytest.mark.parametrize("history", [[], [1.0], [1.0, 9.0] * 3, [5.0] * 40, [0.0] * 40])
def test_short_or_constant_histories_have_no_change(history: list[float]) -> None:
    assert change_points(history) == ()


def test_the_newest_points_need_to_agree_before_they_count() -> None:
    history = steps((10.0, 40), seed=7)
    assert change_points([*history, 20.0, 20.0, 20.0]) == ()
    assert change_points([*history, *[20.0] * 5]) == ()
    (found,) = change_points([*history, *[20.0] * 8])
    assert found.index == 40


def test_the_same_history_and_seed_give_the_same_answer() -> None:
    history = steps((10.0, 20), (10.8, 20))
    assert change_points(history, seed=3) == change_points(history, seed=3)


@settings(deadline=None, max_examples=20)
@given(st.floats(0.001, 1000), st.floats(0, 100))
def test_units_do_not_matter(scale: float, move: float) -> None:
    history = np.array(steps((10.0, 20), (11.0, 20)))
    assert [point.index for point in change_points((history * scale + move).tolist())] == [20]


def test_bad_histories_are_refused() -> None:
    with pytest.raises(InvalidSamplesError):
        change_points([1.0, float("nan")])
    with pytest.raises(ValueError, match="outside the history"):
        change_points([1.0, 2.0], accepted=[3])
