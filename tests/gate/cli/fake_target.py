"""A target that answers by arithmetic, so that the commands run without an engine."""

from dataclasses import dataclass, field

from servegate.fingerprint import Fingerprint
from servegate.plan import Plan, PlannedRequest, WorkloadPlan
from servegate.record import ForcedScore, RequestRecord, RoundRecord, Usage, WorkloadRecord
from servegate.targets.base import Progress

MS = 1_000_000


@dataclass
class FakeTarget:
    plan: Plan
    tokens: int = 12
    gap_ms: int = 10
    machine: str = "a"
    text: str = "words ::error::x"
    interrupt_at: str | None = None
    """Workload in which Ctrl-C arrives."""
    closed: list[bool] = field(default_factory=list)

    def fingerprint(self) -> Fingerprint:
        machine = {"cpu": self.machine, "gpu": "none", "driver": "none"}
        return Fingerprint(machine=machine, software={"engine": "fake 1"}, served={"model": "m"})

    def measure(self, workload: WorkloadPlan, progress: Progress) -> WorkloadRecord:
        if workload.name == self.interrupt_at:
            raise KeyboardInterrupt
        progress(f"{workload.name}: round 1 of 1", 0, len(workload.requests))
        rounds = [self._round(workload) for _ in range(workload.repeat)]
        offered = {"concurrency": str(workload.concurrency), "requests": str(len(workload.requests))}
        return WorkloadRecord(
            name=workload.name,
            kind=workload.kind,
            numerics=workload.numerics,
            offered=offered,
            rounds=tuple(rounds),
            forced=tuple(
                ForcedScore(
                    prompt_id=forced.prompt_id,
                    completion_ids=forced.completion_ids,
                    logprobs=(-0.5,) * len(forced.completion_ids),
                )
                for forced in workload.forced
            ),
        )

    def close(self) -> None:
        self.closed.append(True)

    def _round(self, workload: WorkloadPlan) -> RoundRecord:
        requests = tuple(self._request(planned) for planned in workload.requests)
        return RoundRecord(wall_ns=max(r.ended_ns for r in requests), requests=requests)

    def _request(self, planned: PlannedRequest) -> RequestRecord:
        arrivals = tuple((index + 1) * self.gap_ms * MS for index in range(self.tokens))
        return RequestRecord(
            id=planned.id,
            prompt_id=planned.prompt.id,
            prompt_digest=planned.prompt.digest,
            scheduled_ns=0,
            sent_ns=0,
            arrivals_ns=arrivals,
            ended_ns=arrivals[-1],
            finish_reason="stop",
            token_ids=tuple(range(self.tokens)),
            text=self.text,
            logprobs=(-0.5,) * self.tokens,
            usage=Usage(prompt_tokens=5, cached_tokens=0, completion_tokens=self.tokens),
        )
