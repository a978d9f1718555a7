"""Small records whose numbers can be worked out by hand. Times are ms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from servegate.compare import compare
from servegate.extract import facts
from servegate.facts import Facts, Sample
from servegate.fingerprint import Fingerprint
from servegate.record import RequestRecord, RoundRecord, RunRecord, WorkloadRecord
from servegate.suite.schema import Suite
from servegate.verdict import Comparison, Row, Verdict, decide

MS = 1_000_000
_METERS = ("prompt_tokens", "cached_tokens", "completion_tokens", "recomputed_tokens")


def request(
    name: str = "p0",
    first: float = 100,
    gaps: Sequence[float] = (10, 10, 10, 10),
    *,
    digest: str | None = None,
    due: float = 0,
    sent: float = 0,
    frame_tokens: Sequence[int] | None = None,
    ids: Sequence[int] | None = None,
    usage: tuple[int, ...] | str | None = "as seen",
    **more: Any,
) -> RequestRecord:
    """A request whose first token arrives at ``first`` and each next frame a gap later.

    ``usage`` is (prompt, cached, completion, and if any: recomputed) tokens.
    """
    arrivals = [first]
    for gap in gaps:
        arrivals.append(arrivals[-1] + gap)
    if more.get("error") is not None:
        arrivals = []
    seen = len(ids) if ids is not None else sum(frame_tokens) if frame_tokens else len(arrivals)
    if usage == "as seen":
        usage = (10, 0, seen)
    return RequestRecord.model_validate(
        {
            "id": name,
            "prompt_id": name.partition("#")[0],
            "prompt_digest": digest or f"digest of {name.partition('#')[0]}",
            "scheduled_ns": int(due * MS),
            "sent_ns": int(sent * MS),
            "arrivals_ns": [int(arrival * MS) for arrival in arrivals],
            "frame_tokens": frame_tokens,
            "ended_ns": int((arrivals[-1] if arrivals else sent) * MS),
            "finish_reason": None if more.get("error") else "stop",
            "token_ids": ids,
            "usage": None if usage is None else dict(zip(_METERS, usage, strict=False)),
        }
        | more
    )


def failed(name: str = "bad", error: str = "HTTP 500") -> RequestRecord:
    return request(name, error=error, usage=None)


def answer(
    name: str, ids: Sequence[int], logprobs: Sequence[float] | None = None, **more: Any
) -> RequestRecord:
    """A request with token ids and logprobs, as reference numerics give them."""
    logprobs = [-0.5] * len(ids) if logprobs is None else logprobs
    gaps = [10.0] * (len(ids) - 1)
    return request(name, gaps=gaps, ids=ids, logprobs=logprobs, **more)


def round_of(
    *requests: RequestRecord, wall: float = 1000, counters: Mapping[str, int] | None = None
) -> RoundRecord:
    return RoundRecord(wall_ns=int(wall * MS), requests=requests, counters=dict(counters or {}))


def workload(
    *rounds: RoundRecord, name: str = "latency", numerics: str = "native", **more: Any
) -> WorkloadRecord:
    requests = str(len(rounds[0].requests) if rounds else 0)
    offered = more.pop("offered", {"kind": "closed", "concurrency": "4", "requests": requests})
    return WorkloadRecord.model_validate(
        {"name": name, "kind": "closed", "numerics": numerics, "offered": offered, "rounds": rounds, **more}
    )


def behaviour(*requests: RequestRecord, name: str = "behaviour", **more: Any) -> WorkloadRecord:
    return workload(round_of(*requests, **more.pop("round", {})), name=name, numerics="reference", **more)


def latency(*requests: RequestRecord, repeat: int = 1, **more: Any) -> WorkloadRecord:
    """Native numerics; as many equal rounds of the requests as ``repeat`` says."""
    return workload(*[round_of(*requests)] * repeat, **more)


MACHINE = {"cpu": "AMD EPYC 7763", "cores": "2", "gpu": "none"}


def record(*workloads: WorkloadRecord, created: str = "2026-10-01T00:00:00Z", **more: Any) -> RunRecord:
    fingerprint = Fingerprint(
        machine=more.pop("machine", MACHINE),
        software=more.pop("software", {"engine": "servegate 0.1.0"}),
        served=more.pop("served", {}),
    )
    return RunRecord(
        suite="support",
        suite_digest="suite",
        prompt_set_digest="prompts",
        created=created,
        fingerprint=fingerprint,
        workloads=workloads,
        **more,
    )


def suite(policy: Mapping[str, Any] | None = None, **more: Any) -> Suite:
    return Suite.model_validate(
        {
            "version": 1,
            "name": "support",
            "target": {"kind": "embedded", "model": "smollm2-135m"},
            "prompts": {"set": "prompts.yaml"},
            "workloads": {"latency": {"kind": "closed"}},
            "policy": dict(policy or {}),
            **more,
        }
    )


def measured(metric: str, *requests: RequestRecord, **suite_settings: Any) -> Sample | None:
    """One metric of one native round of these requests."""
    run = record(latency(*requests))
    return facts(run, suite(**suite_settings)).workloads["latency"].metrics.get(metric)


def value(metric: str, *requests: RequestRecord, **suite_settings: Any) -> float | None:
    sample = measured(metric, *requests, **suite_settings)
    assert sample is not None
    return sample.value


def compared(
    base: RunRecord | Facts, head: RunRecord | Facts, policy: Mapping[str, Any] | None = None, **more: Any
) -> Comparison:
    """Two runs held against each other under a policy; the head runs a day later."""
    rules = suite(policy, **more)
    arms = [facts(arm, rules) if isinstance(arm, RunRecord) else arm for arm in (base, head)]
    return compare(arms[0], arms[1], rules, allow_same=True)


def verdict(
    base: RunRecord | Facts, head: RunRecord | Facts, policy: Mapping[str, Any] | None = None, **more: Any
) -> Verdict:
    return decide(compared(base, head, policy, **more), suite(policy).policy)


def row(comparison: Comparison, metric: str, of: str | None = None) -> Row:
    found = [r for r in comparison.rows if r.metric == metric and of in (None, r.workload)]
    assert len(found) == 1, f"{len(found)} rows named {metric}"
    return found[0]
