"""Records of `ab` runs whose blocks are drawn, and their verdicts."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from paired_fakes import FINGERPRINT, launches, round_of, workload_of

from servegate.ab.judging import judge_ab
from servegate.ab.record import AbRecord, LaunchRecord
from servegate.ab.schedule import Role
from servegate.fingerprint import Fingerprint
from servegate.record import RoundRecord, RunRecord
from servegate.suite.schema import Suite
from servegate.verdict import Row, Verdict

Rounds = Callable[[int, int, Role], RoundRecord]


def suite(policy: dict[str, Any] | None = None, **more: Any) -> Suite:
    return Suite.model_validate(
        {
            "version": 1,
            "name": "support",
            "target": {"kind": "embedded", "model": "m"},
            "prompts": {"set": "prompts.yaml"},
            "workloads": {"latency": {"kind": "closed", "numerics": "native"}},
            "policy": {"decode_p95": {"change": "5%"}} if policy is None else policy,
            **more,
        }
    )


def run_record(fingerprint: Fingerprint = FINGERPRINT) -> RunRecord:
    return RunRecord(
        suite="support",
        suite_digest="s",
        prompt_set_digest="p",
        created="2026-11-30T00:00:00Z",
        fingerprint=fingerprint,
        workloads=(workload_of(),),
    )


def ab_record(measured: Sequence[LaunchRecord], **more: Any) -> AbRecord:
    return AbRecord.model_validate(
        {
            "base": run_record(),
            "head": run_record(),
            "budget_ns": 1,
            "planned_launches": max(len(measured), 6),
            "launches": tuple(measured),
            "ended": "decided",
            **more,
        }
    )


def noisy(head_factor: float = 1.0, sd: float = 0.03, **round_settings: Any) -> Rounds:
    """Gaps of 10 ms with log-normal noise of each block, and the head's slower by a factor."""
    draw = random.Random(0)

    def rounds(launch: int, block: int, role: Role) -> RoundRecord:
        factor = head_factor if role == "head" else 1.0
        return round_of(10 * factor * draw.lognormvariate(0, sd), **round_settings)

    return rounds


def verdict(
    rounds: Rounds, policy: dict[str, Any] | None = None, number: int = 6, blocks: int = 6, **more: Any
) -> Verdict:
    return judge_ab(ab_record(launches(number, blocks, rounds), **more), suite(policy))


def row_of(result: Verdict, metric: str = "decode_p95") -> Row:
    return next(row for row in result.comparison.rows if row.metric == metric)
