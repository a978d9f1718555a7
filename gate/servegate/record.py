"""Raw facts of one run, as the target saw them. All that follows is a pure function of this."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from servegate.fingerprint import Fingerprint
from servegate.model import SCHEMA_VERSION, Model
from servegate.series import Logprobs, Stamps, TokenCounts, TokenIds

Nanoseconds = Annotated[int, Field(ge=-(2**61), le=2**61)]
"""A negative stamp is a clock fault: kept here, judged invalid later."""
Count = Annotated[int, Field(ge=0, le=2**40)]
"""Sums over millions of requests stay within 64 bits."""


def plain_path(path: str) -> str:
    """ValueError for what is no plain path below a folder, or would not read as itself in a shell command."""
    if (
        len(path) > 200
        or any(part in ("", ".", "..") for part in path.split("/"))
        or path[0] in "-~"
        or "\\" in path
        or not path.isprintable()
        or " ".join(path.split()) != path
    ):
        raise ValueError("is no plain path relative to the repository's top folder")
    return path


RepositoryPath = Annotated[str, AfterValidator(plain_path)]
"""A file as it is typed in the repository's top folder, with ``/``. It is shown in commands to copy."""


class Usage(Model):
    """Tokens as the engine meters them."""

    prompt_tokens: Count
    cached_tokens: Count | None
    """Prompt tokens served from the prefix cache; None where the server does not tell."""
    completion_tokens: Count
    recomputed_tokens: Count = 0
    """Run again after a preemption; never billed."""


class RequestRecord(Model):
    """One request. Times are ns since the round's start, from one monotonic clock, stamped before parsing."""

    id: str
    prompt_id: str
    prompt_digest: str
    scheduled_ns: Nanoseconds
    sent_ns: Nanoseconds
    arrivals_ns: Stamps = Field((), validate_default=True)
    """Arrival of each frame that carried at least one token."""
    frame_tokens: TokenCounts | None = None
    """Tokens in each frame; ``None`` means one each. A frame of several is a coalesced read."""
    ended_ns: Nanoseconds
    finish_reason: str | None = None
    error: str | None = None
    """Why there is no usable answer; such a request has no latency."""
    attempts: Annotated[int, Field(ge=1, le=2**31)] = 1
    token_ids: TokenIds | None = None
    text: str | None = None
    logprobs: Logprobs | None = None
    """Of each generated token under the raw distribution, in nat."""
    near_ties: tuple[Count, ...] = ()
    """Positions whose best two tokens were within 1e-6 nat: a flip there is not a finding."""
    usage: Usage | None = None

    @model_validator(mode="after")
    def _lengths_agree(self) -> RequestRecord:
        if self.frame_tokens is not None and len(self.frame_tokens) != len(self.arrivals_ns):
            raise ValueError(
                f"request {self.id!r}: {len(self.frame_tokens)} frame_tokens "
                f"for {len(self.arrivals_ns)} arrivals"
            )
        num_ids = 0 if self.token_ids is None else len(self.token_ids)
        if self.logprobs is not None and len(self.logprobs) != num_ids:
            raise ValueError(f"request {self.id!r}: {len(self.logprobs)} logprobs for {num_ids} token ids")
        return self


class ForcedScore(Model):
    """Logprobs, in nat, of a stored completion under this run's model and prompt."""

    prompt_id: str
    completion_ids: TokenIds
    logprobs: Logprobs

    @model_validator(mode="after")
    def _lengths_agree(self) -> ForcedScore:
        if len(self.logprobs) != len(self.completion_ids):
            raise ValueError(
                f"forced score of prompt {self.prompt_id!r}: {len(self.logprobs)} logprobs "
                f"for {len(self.completion_ids)} token ids"
            )
        return self


Cpus = Annotated[float, Field(ge=0)]


class MachineLoad(Model):
    """CPU time during a round or block, in CPUs: 1.0 is one CPU all the time."""

    cpus: Annotated[int, Field(ge=1)]
    arm: Cpus
    """Used by the measured process."""
    others: Cpus
    """Used by everything else on the machine."""
    stolen: Cpus
    """Taken by the hypervisor for other guests."""
    idle: Cpus


class ClientFacts(Model):
    """Is the client fit to measure? Lateness is actual minus scheduled send."""

    max_lateness_ns: Nanoseconds = 0
    mean_lateness_ns: Nanoseconds = 0
    starved_ns: Nanoseconds = 0
    """Time that a client in a process of its own was ready to run and had no CPU: its stamps are late."""


class RoundRecord(Model):
    """One measured pass over a workload's requests."""

    wall_ns: Nanoseconds
    requests: tuple[RequestRecord, ...]
    counters: dict[str, Count] = {}
    """Engine counters of this round alone."""
    client: ClientFacts = ClientFacts()
    load: MachineLoad | None = None
    """What else ran on this machine meanwhile; None where the engine runs elsewhere."""

    @model_validator(mode="after")
    def _ids_are_unique(self) -> RoundRecord:
        seen: set[str] = set()
        for request in self.requests:
            if request.id in seen:
                raise ValueError(f"two requests of one round have the id {request.id!r}")
            seen.add(request.id)
        return self


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
    suite_path: RepositoryPath | None = None
    """None outside of a repository, and in records of before it was kept."""
    created: str
    """UTC, ISO 8601, whole seconds."""
    commit: Commit | None = None
    fingerprint: Fingerprint
    workloads: tuple[WorkloadRecord, ...]
    complete: bool = True
    """False where the run was interrupted: what was measured is here, and it never passes."""
    notes: tuple[str, ...] = ()
    """What a reader must know of what this run is judged by, such as policy edits that do not count."""

    @model_validator(mode="after")
    def _names_are_unique(self) -> RunRecord:
        names = [workload.name for workload in self.workloads]
        if len(set(names)) != len(names):
            raise ValueError(f"two workloads of one record share a name: {', '.join(sorted(names))}")
        return self
