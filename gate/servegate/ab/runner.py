"""The timed part: start the arms, warm them up, run blocks in turn, relaunch, until decided or out of time.

The clock, the arms, the load meter and the question "is it decided" are arguments: the loop runs in a test on
fake arms and a virtual clock as it does on processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from servegate.ab import schedule
from servegate.ab.protocol import TimedWorkload
from servegate.ab.record import BlockRecord, End, LaunchRecord, WarmUp
from servegate.ab.schedule import Role
from servegate.fingerprint import Fingerprint
from servegate.load import Meter
from servegate.record import RoundRecord, WorkloadRecord
from servegate.targets.base import Progress


class Arm(Protocol):
    @property
    def pid(self) -> int: ...

    def warm_up(self, workload: str) -> WorkloadRecord:
        """A shortened round, thrown away but for its wall time."""
        ...

    def round(self, workload: str) -> WorkloadRecord: ...

    def fingerprint(self) -> Fingerprint: ...

    def close(self) -> None: ...


Start = Callable[[Role], Arm]
Decided = Callable[[Sequence[LaunchRecord], int], bool]
"""``decided(launches so far, launches planned)``."""
Clock = Callable[[], int]
"""Monotonic, ns."""


@dataclass(frozen=True)
class Budget:
    ns: int
    """For launches, warm-up and blocks; a block that has begun is finished."""
    launches: int | None = None
    """Planned from the budget where this is None."""


@dataclass
class TimedPart:
    """What was measured so far."""

    planned: int = 1
    ended: End = "nothing is timed"
    launches: list[LaunchRecord] = field(default_factory=list)
    shells: dict[tuple[Role, str], WorkloadRecord] = field(default_factory=dict)
    """Each arm's workloads without their rounds."""
    fingerprints: dict[Role, Fingerprint] = field(default_factory=dict)


def run_timed(
    workloads: Sequence[TimedWorkload],
    start: Start,
    decided: Decided,
    clock: Clock,
    meter: Meter,
    budget: Budget,
    progress: Progress,
) -> TimedPart:
    """Measure until every row is decided, the budget is spent or the planned launches are done.

    Ctrl-C ends it with what was measured until then, which never passes. Raises MeasurementError where an arm
    fails, UsageError where its suite cannot work.
    """
    run = _Run(workloads, start, clock, meter, budget, progress)
    if not workloads:
        return run.part
    try:
        while not (ended := run.ended(decided)):
            run.launch()
        run.part.ended = ended
    except KeyboardInterrupt:
        run.part.ended = "interrupted"
    return run.part


class _Run:
    def __init__(
        self,
        workloads: Sequence[TimedWorkload],
        start: Start,
        clock: Clock,
        meter: Meter,
        budget: Budget,
        progress: Progress,
    ) -> None:
        self.part = TimedPart(planned=budget.launches or schedule.LAUNCHES)
        self._workloads, self._start, self._clock, self._meter = workloads, start, clock, meter
        self._budget, self._progress = budget, progress
        self._began = clock()
        self._deadline = self._began + budget.ns
        self._least_blocks = max(2, *(w.repeat for w in workloads)) if workloads else 2
        """A suite's `repeat` says how many rounds its metrics need, such as a p95 of few prompts."""
        self._start_ns = self._block_ns = 0
        """What the latest launch and block cost."""
        self._warm: dict[tuple[Role, str], list[int]] = {}
        """Wall times of the last warm-up round of earlier launches."""

    def ended(self, decided: Decided) -> End | None:
        done = len(self.part.launches)
        if not done:
            return None
        if schedule.is_look(done, self.part.planned) and decided(self.part.launches, self.part.planned):
            return "decided"
        if done >= self.part.planned:
            return "launches done"
        if self._clock() + self._start_ns + self._block_ns > self._deadline:
            return "budget spent"
        return None

    def launch(self) -> None:
        """Start the three arms, warm them up, run the blocks that this launch's share of the budget holds."""
        order = schedule.start_order(len(self.part.launches))
        arms: dict[Role, Arm] = {}
        warmups: list[WarmUp] = []
        blocks: list[BlockRecord] = []
        began = self._clock()
        try:
            for role in order:
                self._say(f"start {role}")
                arms[role] = self._start(role)
            for workload in self._workloads:
                self._say(f"warm up {workload.name}")
                warmups += [self._warm_up(arms[role], role, workload) for role in order]
            self._start_ns = self._clock() - began
            self._blocks(arms, blocks)
            for role, arm in arms.items():
                self.part.fingerprints[role] = arm.fingerprint()
        finally:
            for arm in arms.values():
                arm.close()
            if blocks:
                self.part.launches.append(
                    LaunchRecord(started=order, warmups=tuple(warmups), blocks=tuple(blocks))
                )
        for warmup in warmups:
            self._warm.setdefault((warmup.role, warmup.workload), []).append(warmup.walls_ns[-1])

    def _blocks(self, arms: dict[Role, Arm], blocks: list[BlockRecord]) -> None:
        """Append the launch's blocks one by one, so that an interruption leaves those that ran."""
        first = not self.part.launches
        wanted = self._least_blocks if first else self._share()
        block = 0
        while block < wanted and (block == 0 or self._clock() < self._deadline):
            self._say(f"block {block + 1} of {wanted}")
            began = self._clock()
            for workload in self._workloads:
                for role in schedule.block_order(block):
                    blocks.append(self._round(arms[role], role, workload.name, block))
            self._block_ns = self._clock() - began
            block += 1
            if first and block == self._least_blocks:
                self.part.planned = schedule.plan_launches(
                    self._budget.ns, self._start_ns, self._block_ns, self._least_blocks, self._budget.launches
                )
                wanted = self._share()

    def _share(self) -> int:
        launches_left = self.part.planned - len(self.part.launches)
        first = not self.part.launches
        return schedule.blocks_in_launch(
            self._budget.ns,
            self._budget.ns if first else self._deadline - self._clock(),
            launches_left,
            self._start_ns,
            self._block_ns,
            self._least_blocks,
        )

    def _warm_up(self, arm: Arm, role: Role, workload: TimedWorkload) -> WarmUp:
        """Warm-up rounds until one is as fast as it gets; at least as many as the suite asks for."""
        walls: list[int] = []
        earlier = self._warm.get((role, workload.name), ())
        while len(walls) < max(workload.warmup, schedule.MOST_WARM_UPS):
            walls.append(arm.warm_up(workload.name).rounds[0].wall_ns)
            if len(walls) >= workload.warmup and schedule.is_warm(walls, earlier):
                break
        return WarmUp(
            role=role,
            workload=workload.name,
            walls_ns=tuple(walls),
            stable=schedule.is_warm(walls, earlier),
        )

    def _round(self, arm: Arm, role: Role, workload: str, block: int) -> BlockRecord:
        finish = self._meter(arm.pid)
        record = arm.round(workload)
        load = finish()
        round_ = self._shell(role, record)
        return BlockRecord(
            block=block, role=role, workload=workload, round=round_, load=load if round_.load else None
        )

    def _shell(self, role: Role, record: WorkloadRecord) -> RoundRecord:
        """Its round; the rest is kept once for each arm."""
        self.part.shells.setdefault((role, record.name), record.model_copy(update={"rounds": ()}))
        return record.rounds[0]

    def _say(self, what: str) -> None:
        launch = len(self.part.launches) + 1
        spent = min(self._clock() - self._began, self._budget.ns) // 1_000_000_000
        self._progress(f"launch {launch}: {what}", spent, self._budget.ns // 1_000_000_000)
