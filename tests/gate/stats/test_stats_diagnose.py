"""Each kind of noise is named when it is there, and hardly ever when it is not."""

from collections.abc import Callable

import numpy as np
import pytest

from servegate.stats.diagnose import Finding, diagnose, disagreement, excess_mass_gap
from servegate.stats.launches import InvalidSamplesError, Launch

Rng = np.random.Generator


def kinds(logs: np.ndarray) -> set[str]:
    return {finding.kind for finding in diagnose(np.exp(logs).tolist())}


def finding(logs: np.ndarray, kind: str) -> Finding:
    return next(found for found in diagnose(np.exp(logs).tolist()) if found.kind == kind)


SILENT: dict[str, Callable[[Rng], np.ndarray]] = {
    "normal": lambda rng: rng.normal(0, 0.05, (12, 8)),
    "launches of their own": lambda rng: rng.normal(0, 0.05, (12, 8)) + rng.normal(0, 0.02, (12, 1)),
    "heavy tails": lambda rng: 0.04 * rng.standard_t(2, (12, 8)),
    "skewed": lambda rng: rng.exponential(0.05, (12, 8)),
    "flat": lambda rng: rng.uniform(0, 0.1, (12, 8)),
    "rounded": lambda rng: np.round(rng.normal(0, 0.05, (12, 8)), 2),
}


@pytest.mark.parametrize("name", SILENT)
def test_independent_noise_of_one_shape_raises_no_alarm(name: str) -> None:
    rng = np.random.default_rng(1)
    alarms = sum(bool(kinds(SILENT[name](rng))) for _ in range(300))
    assert alarms <= 6  # 1 % each for at most two tests; 0 to 2 expected


def test_contention_is_named_with_its_share() -> None:
    rng = np.random.default_rng(2)
    named = 0
    for _ in range(50):
        busy = rng.random((12, 8)) < 0.15
        logs = rng.normal(0, 0.03, (12, 8)) + busy * rng.exponential(0.6, (12, 8))
        named += "contention" in kinds(logs)
    assert named >= 40
    logs = rng.normal(0, 0.02, (12, 8))
    logs[:, :2] += 1.0
    assert finding(logs, "contention").size == pytest.approx(0.25)


def test_outliers_on_both_sides_are_not_contention() -> None:
    logs = np.random.default_rng(3).normal(0, 0.02, (12, 8))
    logs[:, 0] += 1.0
    logs[:, 1] -= 1.0
    assert "contention" not in kinds(logs)


def test_two_modes_are_named_with_their_distance() -> None:
    """msgspec#1110, pleaseai/shunt#629: values from {1.6, 1.8} at random flip base and head."""
    rng = np.random.default_rng(4)
    named = sum(
        "two modes" in kinds(np.log(rng.choice([1.6, 1.8], (12, 16))) + rng.normal(0, 0.015, (12, 16)))
        for _ in range(50)
    )
    assert named >= 45
    logs = np.log(rng.choice([1.6, 1.8], (12, 16))) + rng.normal(0, 0.01, (12, 16))
    assert finding(logs, "two modes").size == pytest.approx(1.8 / 1.6 - 1, abs=0.03)


def test_drift_is_named_and_a_trend_inside_launches_alone_is_not() -> None:
    rng = np.random.default_rng(5)
    noise = rng.normal(0, 0.02, (12, 8))
    assert kinds(noise + np.linspace(0, 0.2, 12)[:, None]) == {"drift"}
    assert finding(noise + np.linspace(0, 0.2, 12)[:, None], "drift").size == pytest.approx(0.16, abs=0.05)
    assert "drift" not in kinds(noise + np.linspace(0, 0.1, 8))


@pytest.mark.parametrize("blocks", [[], [[]], [[1.0]], [[1.0] * 8] * 12, [[1.0, 2.0]] * 3])
def test_too_little_to_say_anything_is_no_finding(blocks: list[list[float]]) -> None:
    assert diagnose(blocks) == ()


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_values_that_are_no_durations_are_refused(bad: float) -> None:
    with pytest.raises(InvalidSamplesError):
        diagnose([[1.0, bad]])


def brute_gap(values: np.ndarray, level: float) -> float:
    """E_2 - E_1 by trying every interval and every pair of disjoint intervals."""
    n, span = values.size, values[-1] - values[0]
    mass = {
        (i, j): (j - i + 1) / n - level * (values[j] - values[i]) / span
        for i in range(n)
        for j in range(i, n)
    }
    one = max(mass.values())
    two = max(a + b for (_, j), a in mass.items() for (k, _), b in mass.items() if j < k)
    return max(two, one) - one


def test_the_excess_mass_gap_agrees_with_brute_force(monkeypatch: pytest.MonkeyPatch) -> None:
    from servegate.stats import diagnose as module

    rng = np.random.default_rng(7)
    for _ in range(20):
        values = np.sort(rng.normal(0, 1, 9))
        for level in (0.5, 1.0, 2.0, 5.0):
            monkeypatch.setattr(module, "_lambdas", lambda level=level: np.array([level]))
            assert excess_mass_gap(values) == pytest.approx(3 * brute_gap(values, level), abs=1e-12)


@pytest.mark.slow
def test_the_limit_of_one_mode_is_the_stated_quantile_of_uniform_values() -> None:
    from servegate.stats.diagnose import MODE_LIMIT

    rng = np.random.default_rng(8)
    for n in (96, 192):
        above = np.mean([excess_mass_gap(np.sort(rng.random(n))) > MODE_LIMIT for _ in range(3000)])
        assert 0.004 < above < 0.016


# Launches


def launched(offsets: np.ndarray, rng: Rng, sd: float = 0.03) -> list[Launch]:
    return [
        Launch(tuple((offset + (0.01 if k % 2 else -0.01) + rng.normal(0, sd, 8)).tolist()), k % 2 == 0)
        for k, offset in enumerate(offsets)
    ]


def test_launches_that_settle_into_modes_are_said_to_disagree() -> None:
    rng = np.random.default_rng(9)
    found = [disagreement(launched(0.12 * rng.integers(-1, 2, 12), rng)) for _ in range(40)]
    assert sum(item is not None for item in found) >= 36


def test_launches_with_the_usual_luck_do_not_disagree() -> None:
    rng = np.random.default_rng(10)
    found = [disagreement(launched(rng.normal(0, 0.009, 12), rng)) for _ in range(300)]
    assert sum(item is not None for item in found) <= 2


def test_few_or_equal_launches_do_not_disagree() -> None:
    rng = np.random.default_rng(11)
    assert disagreement([]) is None
    assert disagreement(launched(np.array([0.0, 0.5]), rng)) is None
    assert disagreement([Launch((0.0,) * 8, k % 2 == 0) for k in range(12)]) is None
