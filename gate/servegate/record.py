"""Raw facts of one run, as the target saw them. All that follows is a pure function of this."""

from __future__ import annotations

from typing import Literal

from servegate.fingerprint import Fingerprint
from servegate.model import SCHEMA_VERSION, Model


class Usage(Model):
    """Tokens as the engine meters them."""

    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens served from the prefix cache."""
    completion_tokens: int
    recomputed_tokens: int = 0
    """Run again after a preemption; never billed."""


class RequestRecord(Model):
    """One request. Times are ns since the round's start, from one monotonic clock, stamped before parsing."""

    id: str
    prompt_id: str
    prompt_digest: str
    scheduled_ns: int
    sent_ns: int
    arrivals_ns: tuple[int, ...] = ()
    """Arrival of each frame that carried at least one token."""
    frame_tokens: tuple[int, ...] | None = None
    """Tokens in each frame; ``None`` means one each. A frame of several is a coalesced read."""
    ended_ns: int
    finish_reason: str | None = None
    error: str | None = None
    """Why there is no usable answer; such a request has no latency."""
    attempts: int = 1
    token_ids: tuple[int, ...] | None = None
    text: str | None = None
    logprobs: tuple[float, ...] | None = None
    """Of each generated token under the raw distribution, in nat."""
    near_ties: tuple[int, ...] = ()
    """Positions whose best two tokens were within 1e-6 nat: a flip there is not a finding."""
    usage: Usage | None = None


class ForcedScore(Model):
    """Logprobs, in nat, of a stored completion under this run's model and prompt."""

    prompt_id: str
    completion_ids: tuple[int, ...]
    logprobs: tuple[float, ...]


class ClientFacts(Model):
    """Is the client fit to measure? Lateness is actual minus scheduled send."""

    max_lateness_ns: int = 0
    mean_lateness_ns: int = 0


class RoundRecord(Model):
    """One measured pass over a workload's requests."""

    wall_ns: int
    requests: tuple[RequestRecord, ...]
    counters: dict[str, int] = {}
    """Engine counters of this round alone."""
    client: ClientFacts = ClientFacts()


class WorkloadRecord(Model):
    name: str
    kind: Literal["closed"]
    numerics: Literal["reference", "native"]
    offered: dict[str, str]
    """What was asked of the target: kind, concurrency, requests. Unequal offered loads are not comparable."""
    rounds: tuple[RoundRecord, ...]
    forced: tuple[ForcedScore, ...] = ()


class Commit(Model):
    sha: str
    dirty: bool = False


class RunRecord(Model):
    schema_version: Literal[1] = SCHEMA_VERSION
    suite: str
    suite_digest: str
    prompt_set_digest: str
    created: str
    """UTC, ISO 8601, whole seconds."""
    commit: Commit | None = None
    fingerprint: Fingerprint
    workloads: tuple[WorkloadRecord, ...]
    complete: bool = True
    """False where the run was interrupted: what was measured is here, and it never passes."""
