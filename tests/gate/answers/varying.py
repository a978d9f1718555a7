"""Runs whose answers vary as an engine's do that batches in another order each time; drawn, so repeatable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from servegate.fingerprint import Fingerprint
from servegate.record import ForcedScore, RequestRecord, RoundRecord, RunRecord, Usage, WorkloadRecord
from servegate.suite.schema import Suite

MS = 1_000_000
PROMPTS = 20
POLICY: dict[str, Any] = {
    "completion_tokens": {"change": "10%"},
    "finish_reasons": {"equal": True},
    "error_rate": {"change": "0%"},
}


@dataclass(frozen=True)
class Engine:
    """Draws each answer anew. Lengths vary by ``spread``; a length at ``limit`` or above is cut there."""

    spread: float = 0.1
    longer: float = 1.0
    empty: float = 0.0
    """Share of answers without a token, the others being longer to keep the mean."""
    limit: int = 10_000
    logprob_noise: float = 1e-3
    logprob_shift: float = 0.0
    good: float = 1.0
    """Share of answers that hold what they must."""
    failing: tuple[str, ...] = ()
    failure_share: float = 1.0

    def round(self, draw: np.random.Generator, prompts: int = PROMPTS, counters: int = 0) -> RoundRecord:
        requests = tuple(self._request(draw, f"p{number:02}", number) for number in range(prompts))
        return RoundRecord(wall_ns=MS, requests=requests, counters={"steps": 100 + counters})

    def scores(
        self, draw: np.random.Generator, completions: Mapping[str, Sequence[int]]
    ) -> tuple[ForcedScore, ...]:
        return tuple(
            ForcedScore(prompt_id=name, completion_ids=ids, logprobs=self._logprobs(draw, len(ids)))
            for name, ids in completions.items()
        )

    def _logprobs(self, draw: np.random.Generator, tokens: int) -> tuple[float, ...]:
        return tuple((-1.0 + self.logprob_shift + draw.normal(0, self.logprob_noise, tokens)).tolist())

    def _request(self, draw: np.random.Generator, name: str, number: int) -> RequestRecord:
        typical = 40 + 4 * number
        length = typical * self.longer * draw.lognormal(0, self.spread)
        if self.empty:
            length = 0 if draw.random() < self.empty else length / (1 - self.empty)
        tokens = min(round(length), self.limit)
        failed = name in self.failing and draw.random() < self.failure_share
        return RequestRecord(
            id=name,
            prompt_id=name,
            prompt_digest=name,
            scheduled_ns=0,
            sent_ns=0,
            arrivals_ns=() if failed else tuple(range(MS, MS + tokens)),
            ended_ns=2 * MS,
            finish_reason=None if failed else "length" if tokens == self.limit else "stop",
            error="HTTP 500" if failed else None,
            token_ids=None if failed else tuple(draw.integers(0, 1000, tokens)),
            logprobs=None if failed else self._logprobs(draw, tokens),
            text="yes" if draw.random() < self.good else "no",
            usage=None if failed else Usage(prompt_tokens=5, cached_tokens=0, completion_tokens=tokens),
        )


def workload(rounds: Sequence[RoundRecord], forced: Sequence[ForcedScore] = ()) -> WorkloadRecord:
    return WorkloadRecord(
        name="behaviour",
        kind="closed",
        numerics="reference",
        offered={"kind": "closed", "concurrency": "4"},
        rounds=tuple(rounds),
        forced=tuple(forced),
    )


def run(
    engine: Engine,
    seed: int,
    rounds: int,
    *,
    prompts: int = PROMPTS,
    counters: Callable[[int], int] = lambda number: 0,
) -> RunRecord:
    """One process that answers every prompt in each of ``rounds``."""
    draw = np.random.default_rng(seed)
    return record(workload([engine.round(draw, prompts, counters(number)) for number in range(rounds)]))


def record(*workloads: WorkloadRecord) -> RunRecord:
    return RunRecord(
        suite="support",
        suite_digest="s",
        prompt_set_digest="p",
        created="2026-11-30T00:00:00Z",
        fingerprint=Fingerprint(machine={"cpu": "a"}, software={"engine": "fake 1"}, served={}),
        workloads=workloads,
    )


def suite(policy: dict[str, Any] | None = None, **more: Any) -> Suite:
    return Suite.model_validate(
        {
            "version": 1,
            "name": "support",
            "target": {"kind": "embedded", "model": "m"},
            "prompts": {"set": "prompts.yaml"},
            "workloads": {"behaviour": {"kind": "closed"}},
            "policy": POLICY if policy is None else policy,
            **more,
        }
    )
