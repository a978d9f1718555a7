"""The calibration benchmark, reduced: false alarms and power of the real rule on simulated noise.

Everything is seeded, so these tests give the same answer each time. The inverse tests break the rule on
purpose and see the same check fail.
"""

from dataclasses import replace

import numpy as np
import pytest
from calibration import noise, paired, peers, servers, stored, stored_noise, tables

from servegate.stats import interval, sequential, unpaired
from servegate.stats.launches import Launch
from servegate.stats.paired import Limit, decide
from servegate.stats.sequential import Plan


def model(start: str) -> noise.Noise:
    return next(found for found in noise.MODELS if found.name.startswith(start))


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
def test_no_change_is_not_called_regressed_and_ten_percent_does_not_pass(name: str) -> None:
    assert paired.ours(model(name), 1, 120, 0.0).suites("regressed") == 0
    if name != "bistable launches":
        assert paired.ours(model(name), 1, 60, 0.10).share("pass", "improved") == 0


def test_quiet_machines_are_decided_early() -> None:
    for name in noise.QUIET:
        same, slower = (paired.ours(model(name), 1, 90, change) for change in (0.0, 0.10))
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


def test_the_error_at_the_limit_is_what_the_plan_spends() -> None:
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
def test_a_thousand_suites_a_model(name: str) -> None:
    assert paired.ours(model(name), 2, 6_000, 0.0).suites("regressed") <= 0.006


def test_the_benchmark_prints_its_tables() -> None:
    quiet = model("independent log-normal, sd 0.07")
    rows = paired.ours(quiet, 1, 12, 0.0)
    assert tables.no_change({quiet.name: rows}).count("\n") == 2
    flags = peers.peers(quiet, 1, 12, 0.10)
    assert set(flags) == set(peers.PEERS)
    assert all(flag.shape == (12,) for flag in flags.values())
    assert flags["Mann-Whitney, 0.2 %"].mean() > 0.9


def test_the_same_seed_gives_the_same_rows() -> None:
    bistable = model("bistable blocks")
    first, second = (next(noise.chunks(bistable, 5, 6, 0.1)).times for _ in range(2))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, next(noise.chunks(bistable, 6, 6, 0.1)).times)


@pytest.mark.parametrize("of", servers.MODELS, ids=[of.name.partition(",")[0] for of in servers.MODELS])
def test_two_servers_that_nobody_restarts(of: servers.Servers) -> None:
    """A start that picks a mode of its own cannot be told from a change: it is not restarted."""
    alarms = servers.Judged(servers.judged(of, 3, 120, 0.0), {}).alarms
    found = (servers.judged(of, 3, 60, 0.20) == "regressed").mean()
    if of.start is servers.modes:
        assert alarms > 0.05
    else:
        assert alarms == 0
        assert found >= 0.9


def test_without_the_assumed_luck_a_start_counts_as_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    a_p95 = next(of for of in servers.MODELS if of.name.startswith("a p95"))
    at_the_limit = servers.judged(a_p95, 3, 300, 0.05)
    monkeypatch.setattr(interval, "PRIOR_LAUNCH_SD", 0.0)
    trusting = servers.judged(a_p95, 3, 300, 0.05)
    assert (at_the_limit == "regressed").mean() <= 0.03 < (trusting == "regressed").mean()


SEEN = [model for model in stored_noise.MODELS if model.name != stored_noise.UNSEEN]


@pytest.mark.parametrize("of", SEEN, ids=[model.name.partition(":")[0] for model in SEEN])
def test_stored_runs_without_a_change_are_not_called_regressed(of: stored_noise.StoredNoise) -> None:
    found = stored.judged(of, 3, 6_000, 5)
    assert found.false_suites(0.05) <= 0.01
    assert found.passed(0.20, 0.10).mean() <= 0.01


def test_a_slowdown_by_half_is_found_from_stored_runs() -> None:
    cores = next(of for of in stored_noise.MODELS if of.name.startswith("the same, round 3 %"))
    assert stored.judged(cores, 3, 6_000, 5).regressed(0.50, 0.10).mean() > 0.6


def test_without_the_luck_of_the_run_stored_runs_cry_wolf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpaired, "RUN_SHARE_OF_ROUND_SD", 0.0)
    cores = next(of for of in stored_noise.MODELS if of.name.startswith("the same, round 3 %"))
    assert stored.judged(replace(cores, assumed=0.0), 3, 6_000, 10).false_suites(0.05) > 0.3


def test_stored_runs_are_told_in_tables() -> None:
    results = {of.name: stored.measure(number, 1, 10) for number, of in enumerate(stored_noise.MODELS)}
    text = stored.report(results, 10)
    assert text.count("## ") == 4
    assert text.count(f"| {stored_noise.UNSEEN} |") == 1 + len(stored.TOLERANCES) + 1
