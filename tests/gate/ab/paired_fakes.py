"""Arms that answer by arithmetic on a clock that only they move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from servegate.ab.record import BlockRecord, LaunchRecord, MachineLoad
from servegate.ab.schedule import Role, block_order, start_order
from servegate.fingerprint import Fingerprint
from servegate.record import RequestRecord, RoundRecord, Usage, WorkloadRecord

MS = 1_000_000
QUIET = MachineLoad(cpus=2, arm=1.0, others=0.0, stolen=0.0, idle=1.0)
BUSY = MachineLoad(cpus=2, arm=1.0, others=1.0, stolen=0.0, idle=0.0)
FINGERPRINT = Fingerprint(machine={"cpu": "a"}, software={"engine": "fake 1"}, served={})


def round_of(
    gap_ms: float = 10.0,
    *,
    ttft_ms: float = 20.0,
    lengths: Sequence[int] = (30, 30, 30, 30),
    late_ms: float = 0.0,
) -> RoundRecord:
    """One request a length, all at once: the first token after ``ttft_ms``, then one each ``gap_ms``."""
    requests = tuple(
        _request(f"p{number}", length, gap_ms, ttft_ms, late_ms) for number, length in enumerate(lengths)
    )
    return RoundRecord(wall_ns=max(r.ended_ns for r in requests), requests=requests)


def _request(name: str, length: int, gap_ms: float, ttft_ms: float, late_ms: float) -> RequestRecord:
    arrivals = tuple(int((ttft_ms + index * gap_ms) * MS) for index in range(length))
    return RequestRecord(
        id=name,
        prompt_id=name,
        prompt_digest=name,
        scheduled_ns=0,
        sent_ns=int(late_ms * MS),
        arrivals_ns=arrivals,
        ended_ns=arrivals[-1],
        finish_reason="stop",
        token_ids=tuple(range(length)),
        usage=Usage(prompt_tokens=5, cached_tokens=0, completion_tokens=length),
    )


def workload_of(*rounds: RoundRecord, name: str = "latency") -> WorkloadRecord:
    return WorkloadRecord(
        name=name, kind="closed", numerics="native", offered={"concurrency": "4"}, rounds=rounds
    )


@dataclass
class VirtualClock:
    now: int = 0

    def __call__(self) -> int:
        return self.now


@dataclass
class FakeArm:
    role: Role
    clock: VirtualClock
    wall_ns: Callable[[int], int]
    """Of the arm's n-th round."""
    log: list[str]
    interrupt_at: int | None = None
    rounds: int = 0
    pid: int = 1

    def round(self, workload: str) -> WorkloadRecord:
        if self.rounds == self.interrupt_at:
            raise KeyboardInterrupt
        wall = self.wall_ns(self.rounds)
        self.rounds += 1
        self.clock.now += wall
        self.log.append(f"{self.role} {workload}")
        record = round_of().model_copy(update={"wall_ns": wall})
        return workload_of(record, name=workload)

    def warm_up(self, workload: str) -> WorkloadRecord:
        return self.round(workload)

    def fingerprint(self) -> Fingerprint:
        return FINGERPRINT

    def close(self) -> None:
        self.log.append(f"close {self.role}")


@dataclass
class Lab:
    """Starts fake arms and writes down all that happens."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    start_ns: int = 1000
    wall_ns: Callable[[int], int] = lambda number: 100
    interrupt_at: int | None = None
    """Round of the first launch's base in which Ctrl-C arrives."""
    log: list[str] = field(default_factory=list)

    def start(self, role: Role) -> FakeArm:
        self.log.append(f"start {role}")
        self.clock.now += self.start_ns
        return FakeArm(
            role, self.clock, self.wall_ns, self.log, self.interrupt_at if role == "base" else None
        )


def launches(
    number: int,
    blocks: int,
    rounds: Callable[[int, int, Role], RoundRecord],
    *,
    load: Callable[[int, int, Role], MachineLoad] = lambda launch, block, role: QUIET,
    workload: str = "latency",
) -> tuple[LaunchRecord, ...]:
    """``rounds(launch, block, role)`` in the schedule's own order."""
    return tuple(
        LaunchRecord(
            started=start_order(launch),
            blocks=tuple(
                BlockRecord(
                    block=block,
                    role=role,
                    workload=workload,
                    round=rounds(launch, block, role),
                    load=load(launch, block, role),
                )
                for block in range(blocks)
                for role in block_order(block)
            ),
        )
        for launch in range(number)
    )
