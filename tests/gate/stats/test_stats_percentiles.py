"""One stated percentile method, and no percentile from too few samples."""

from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servegate.stats.percentiles import min_samples, percentile


@pytest.mark.parametrize(("q", "needed"), [(50, 2), (90, 10), (95, 20), (99, 100), (99.9, 1000), (5, 20)])
def test_a_percentile_needs_one_expected_sample_beyond_it(q: float, needed: int) -> None:
    assert min_samples(q) == needed
    values = [float(i) for i in range(needed)]
    assert percentile(values[:-1], q) is None
    assert percentile(values, q) is not None


@pytest.mark.parametrize("n", [1, 3, 10, 19])
def test_p95_of_few_samples_is_absent_and_not_the_maximum(n: int) -> None:
    assert percentile([1.0] * n, 95) is None


def test_known_values_of_the_linear_method() -> None:
    assert percentile([float(i) for i in range(1, 21)], 95) == pytest.approx(19.05)  # nearest rank says 19
    assert percentile([float(i) for i in range(1, 101)], 99) == pytest.approx(99.01)


def test_a_stall_in_one_gap_of_fifty_is_invisible_to_the_pooled_p95() -> None:
    """Why a stall is a metric of its own: 40 requests, 50 gaps of 10 ms, one of them 200 ms."""
    gaps = ([10.0] * 49 + [200.0]) * 40
    assert percentile(gaps, 95) == 10.0
    assert percentile(gaps, 99) == 200.0


def test_no_samples() -> None:
    assert percentile([], 50) is None


@pytest.mark.parametrize("bad", [nan, inf, -inf])
def test_values_without_meaning_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="NaN or infinite"):
        percentile([1.0] * 20 + [bad], 95)


@pytest.mark.parametrize("q", [0, 100, -1, 101, nan])
def test_percentiles_outside_the_open_range_are_refused(q: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 100"):
        percentile([1.0] * 20, q)


@given(st.lists(st.floats(-1e6, 1e6), min_size=20, max_size=60), st.randoms(use_true_random=False))
def test_order_does_not_matter_and_numpy_agrees(values: list[float], random: object) -> None:
    shuffled = sorted(values, key=lambda _: random.random())  # type: ignore[attr-defined]
    assert percentile(shuffled, 95) == percentile(values, 95) == float(np.percentile(values, 95))
