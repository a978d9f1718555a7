"""Folders as `servegate check --out` leaves them, made without an engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from servegate.ab.judging import judge_ab
from servegate.ab.record import AbRecord, BlockRecord, LaunchRecord, MachineLoad
from servegate.ab.schedule import block_order, start_order
from servegate.baseline import write_baseline
from servegate.bundle import judge, save, save_ab
from servegate.extract import facts
from servegate.fingerprint import Fingerprint
from servegate.record import ForcedScore, RequestRecord, RoundRecord, RunRecord, Usage, WorkloadRecord
from servegate.series import Series
from servegate.suite.schema import Suite

MS = 1_000_000
QUIET = MachineLoad(cpus=2, arm=1.0, others=0.0, stolen=0.0, idle=1.0)
SUITE = Suite.model_validate(
    {
        "version": 1,
        "name": "quickstart",
        "target": {"kind": "embedded", "model": "smollm2-135m"},
        "prompts": {"set": "prompts.yaml"},
        "workloads": {
            "behaviour": {"kind": "closed", "concurrency": 4, "numerics": "reference"},
            "latency": {"kind": "closed", "concurrency": 4, "numerics": "native", "repeat": 2},
        },
        "prices": {
            "prompt": 0.15,
            "cached": 0.075,
            "completion": 0.6,
            "currency": "USD",
            "source": "made up",
            "date": "2026-11-30",
        },
        "quality": [{"prompt": "*", "contains": "day"}],
        "policy": {
            "completion_tokens": {"change": "5%"},
            "ttft_p95": {"change": "10%", "floor": "20ms"},
            "logprob_delta": {"max": "0.000001"},
        },
    }
)


def bundle(
    folder: Path, *, requests: int = 24, tokens: int = 12, said: str = "30 days", mark: str = ""
) -> Path:
    """Head says two tokens more than base and ``said``; ``mark`` is part of every name from outside."""
    base = record(requests, tokens, "30 days", mark)
    write_baseline(folder / "stored", facts(base, SUITE), "first baseline", in_ci=True)
    head = record(requests, tokens + 2, said, mark, slower=1.5)
    save(judge(head, SUITE, folder / "stored"), head, SUITE, folder / "stored", folder / "out")
    return folder / "out"


def paired_bundle(folder: Path) -> Path:
    """As `servegate ab --out` leaves it: two launches of four blocks, head slower by half."""
    arms = {"base": record(24, 12, "30 days", ""), "head": record(24, 12, "30 days", "", slower=1.5)}
    arms["again"] = arms["base"]
    blocks = [
        BlockRecord(
            block=block, role=role, workload="latency", round=arms[role].workloads[1].rounds[0], load=QUIET
        )
        for block in range(4)
        for role in block_order(block)
    ]
    base, head = (_without_timed_rounds(arms[role]) for role in ("base", "head"))
    paired = AbRecord(
        base=base,
        head=head,
        budget_ns=10**9,
        planned_launches=2,
        launches=tuple(LaunchRecord(started=start_order(n), blocks=tuple(blocks)) for n in range(2)),
        ended="launches done",
    )
    save_ab(judge_ab(paired, SUITE), paired, SUITE, folder / "out")
    return folder / "out"


def _without_timed_rounds(run: RunRecord) -> RunRecord:
    behaviour, latency = run.workloads
    return run.model_copy(update={"workloads": (behaviour, latency.model_copy(update={"rounds": ()}))})


def record(requests: int, tokens: int, said: str, mark: str, slower: float = 1.0) -> RunRecord:
    rounds = tuple(_round(requests, tokens, said, mark, slower * (1 + n / 10)) for n in range(2))
    behaviour, native = (
        WorkloadRecord(
            name=name,
            kind="closed",
            numerics=numerics,
            offered={"concurrency": "4", "requests": str(requests)},
            rounds=found,
            forced=forced,
        )
        for name, numerics, found, forced in (
            ("behaviour", "reference", rounds[:1], _forced(requests, mark, slower)),
            ("latency", "native", rounds, ()),
        )
    )
    fingerprint = Fingerprint(
        machine={"cpu": "a" + mark, "gpu": "none"},
        software={"engine": f"fake {slower}{mark}"},
        served={"model": "m", "engine.block_size": "16", "engine.num_blocks": "64"},
    )
    return RunRecord(
        suite="quickstart",
        suite_digest="s",
        prompt_set_digest="p",
        created="2026-11-30T12:00:00Z",
        fingerprint=fingerprint,
        workloads=(behaviour, native),
    )


def _round(requests: int, tokens: int, said: str, mark: str, pace: float) -> RoundRecord:
    made = tuple(_request(number, tokens, said, mark, pace) for number in range(requests))
    return RoundRecord(
        wall_ns=made[-1].ended_ns, requests=made, counters={"steps": requests * tokens, "shed" + mark: 0}
    )


def _request(number: int, tokens: int, said: str, mark: str, pace: float) -> RequestRecord:
    sent = number * 7 * MS
    stamps = sent + (pace * MS * (20 + number % 13 + 5 * np.arange(tokens))).astype(np.int64)
    ids = np.arange(tokens, dtype=np.uint32)
    return RequestRecord(
        id=f"p{number}{mark}",
        prompt_id=f"p{number}{mark}",
        prompt_digest=f"digest {number}",
        scheduled_ns=sent,
        sent_ns=sent + 1000,
        arrivals_ns=Series(stamps),
        ended_ns=int(stamps[-1]),
        finish_reason="stop" + mark,
        text=said + mark,
        token_ids=Series(ids),
        logprobs=Series(-0.5 - 0.01 * np.arange(tokens)),
        usage=Usage(prompt_tokens=40, cached_tokens=16, completion_tokens=tokens),
    )


def _forced(requests: int, mark: str, slower: float) -> tuple[ForcedScore, ...]:
    """The base's twelve tokens under head, where head is another."""
    ids = Series(np.arange(12, dtype=np.uint32))
    scores = Series(-0.5 - 0.02 * np.arange(12))
    return tuple(
        ForcedScore(prompt_id=f"p{number}{mark}", completion_ids=ids, logprobs=scores)
        for number in range(requests if slower != 1 else 0)
    )
