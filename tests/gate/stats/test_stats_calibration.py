"""The calibration benchmark, reduced: false alarms and power of the real rule on simulated noise.

Everything is seeded, so these tests give the same answer each time. The inverse tests break the rule on
purpose and see the same check fail.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from servegate.stats import interval, sequential
from servegate.stats.launches import Launch
from servegate.stats.paired import Limit, decide
from servegate.stats.sequential import Plan

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "calibrate.py"


@pytest.fixture(scope="module")
def calibrate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("calibrate", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["calibrate"] = module
    spec.loader.exec_module(module)
    return module


def model(calibrate: ModuleType, start: str):  # type: ignore[no-untyped-def]
    return next(noise for noise in calibrate.MODELS if noise.name.startswith(start))


MODELS = [
    "independent log-normal, sd 0.05",
    "bursty contention, unmarked",
    "bursty contention, 80 %",
    "drift",
    "bistable blocks",
    "heavy tails",
    "autocorrelated machine",
    "autocorrelated arms",
    "a p95",
    "bistable launches",
]


@pytest.mark.parametrize("name", MODELS)
def test_no_change_is_not_called_regressed_and_ten_percent_does_not_pass(
    calibrate: ModuleType, name: str
) -> None:
    noise = model(calibrate, name)
    assert calibrate.ours(noise, 1, 120, 0.0).suites("regressed") == 0
    if name != "bistable launches":
        assert calibrate.ours(noise, 1, 60, 0.10).share("pass", "improved") == 0


def test_quiet_machines_are_decided_early(calibrate: ModuleType) -> None:
    for name in calibrate.QUIET:
        same, slower = (calibrate.ours(model(calibrate, name), 1, 90, change) for change in (0.0, 0.10))
        assert same.share("pass") == 1
        assert same.blocks.mean() < 50
        assert slower.share("regressed") >= 0.95


def at_the_limit(plan: Plan, rows: int, launch_sd: float = 0.007, seed: int = 3) -> float:
    """The share of rows called regressed at any look, where the true change is exactly the tolerance."""
    rng = np.random.default_rng(seed)
    called = 0
    for _ in range(rows):
        series = [
            Launch(
                tuple((np.log(1.05) + rng.normal(0, launch_sd) + rng.normal(0, 0.05, 8)).tolist()), k % 2 == 0
            )
            for k in range(plan.launches)
        ]
        looks = range(plan.first_claim, plan.launches + 1)
        called += any(decide(series[:k], Limit(0.05), plan).state == "regressed" for k in looks)
    return called / rows


LOOSE = Plan(rows=1, launches=12, alpha=0.2)  # a large alpha shows in few simulations


def test_the_error_at_the_limit_is_what_the_plan_spends(calibrate: ModuleType) -> None:
    assert at_the_limit(LOOSE, 250) <= 0.2 + 2 * np.sqrt(0.2 * 0.8 / 250)


def test_without_the_correction_for_looks_the_error_is_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequential, "nominal_levels", lambda fractions, alpha: (alpha,) * len(fractions))
    assert at_the_limit(LOOSE, 250) > 0.2 + 2 * np.sqrt(0.2 * 0.8 / 250)


def test_without_the_launch_as_a_level_the_error_is_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = at_the_limit(LOOSE, 250, launch_sd=0.018)
    monkeypatch.setattr(interval, "PRIOR_LAUNCH_SD", 0.0)
    monkeypatch.setattr(interval, "_between", lambda residual, sd, layout: (np.zeros_like(sd), 10))
    assert at_the_limit(LOOSE, 250, launch_sd=0.018) > 0.2 + 2 * np.sqrt(0.2 * 0.8 / 250) > kept


@pytest.mark.slow
def test_six_rows_at_the_limit_are_called_no_more_often_than_the_suite_allows() -> None:
    plan = Plan(rows=6)
    assert at_the_limit(plan, 3000) * 6 <= plan.alpha * 1.35  # sampling error of 25 expected events


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_thousand_suites_a_model(calibrate: ModuleType, name: str) -> None:
    assert calibrate.ours(model(calibrate, name), 2, 6_000, 0.0).suites("regressed") <= 0.006


def test_the_benchmark_prints_its_tables(calibrate: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    noise = model(calibrate, "independent log-normal, sd 0.07")
    rows = calibrate.ours(noise, 1, 12, 0.0)
    assert calibrate.no_change({noise.name: rows}).count("\n") == 2
    flags = calibrate.peers(noise, 1, 12, 0.10)
    assert set(flags) == set(calibrate.PEERS)
    assert all(flag.shape == (12,) for flag in flags.values())
    assert flags["Mann-Whitney, 0.2 %"].mean() > 0.9


def test_the_same_seed_gives_the_same_rows(calibrate: ModuleType) -> None:
    noise = model(calibrate, "bistable blocks")
    first, second = (next(calibrate.chunks(noise, 5, 6, 0.1)).times for _ in range(2))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, next(calibrate.chunks(noise, 6, 6, 0.1)).times)
