"""The examples hold here: each suite passes, and its pull request fails for the reason it tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from servegate.pipeline import check
from servegate.verdict import State, Verdict

EXAMPLES = Path(__file__).parent.parent / "examples"
BASELINES = EXAMPLES.parent / "baselines"
STORIES = {
    "quickstart": {"behaviour.completion_tokens", "behaviour.cost_per_request", "behaviour.logprob_delta"},
    "sampling-default": {"behaviour.token_ids"},
    "kv-pool": {"burst.kv_concurrency", "burst.preemptions", "burst.recomputed_tokens"},
    "cheaper-but-worse": {"behaviour.quality_lost", "behaviour.quality_pass_rate"},
    "engine-pin": {"torch"},
    "shared-prefix": {
        "behaviour.cached_tokens",
        "behaviour.prefill_tokens",
        "behaviour.cost_per_request",
    },
}


def judged(suite: Path, out: Path) -> Verdict:
    return check(suite, BASELINES, out, lambda stage, done, total: None).verdict


def regressed(verdict: Verdict) -> set[str]:
    return {
        f"{row.workload}.{row.metric}" if row.workload else row.metric.removeprefix("pin ")
        for row in verdict.comparison.rows
        if row.gating and row.state is State.REGRESSED and row.kind != "timed" and row.workload != "latency"
    }


def test_each_example_is_tested() -> None:
    assert {path.parent.name for path in EXAMPLES.glob("*/pull-request.yaml")} == set(STORIES)


@pytest.mark.slow
@pytest.mark.parametrize("name", STORIES)
def test_the_suite_holds_its_committed_baseline(name: str, tmp_path: Path) -> None:
    """Made on another machine, at another thread count: reference numerics hold everywhere."""
    verdict = judged(EXAMPLES / name / "servegate.yaml", tmp_path)
    assert regressed(verdict) == set()
    delta = [row.head for row in verdict.comparison.rows if row.metric == "logprob_delta"]
    assert delta in ([], [0.0])


@pytest.mark.slow
@pytest.mark.parametrize("name", STORIES)
def test_the_pull_request_fails_for_the_reason_it_tells(name: str, tmp_path: Path) -> None:
    verdict = judged(EXAMPLES / name / "pull-request.yaml", tmp_path)
    assert verdict.exit_code == 1
    assert regressed(verdict) == STORIES[name]
