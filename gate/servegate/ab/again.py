"""Does base repeat itself? The exact workloads measured again, and in turn where either arm varies.

Every run is a process of its own: what a process picks as it starts (a kernel, an order of batches) would
otherwise count as the change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from servegate.ab.answers import anything, needed_runs, together, varying
from servegate.ab.record import AnswerRun
from servegate.ab.schedule import Role
from servegate.record import WorkloadRecord
from servegate.suite.schema import Suite

IN_TURN: Final[tuple[Role, ...]] = ("head", "again")


@dataclass(frozen=True)
class Again:
    runs: tuple[AnswerRun, ...] = ()
    """In the order in which they ran."""
    pairs_ns: int = 0
    """Time that the pairs took."""


class ExactArm(Protocol):
    def exact(self, workload: str, forced: dict[str, list[int]]) -> WorkloadRecord: ...

    def close(self) -> None: ...


def measure_again(
    base: Sequence[WorkloadRecord],
    head: Sequence[WorkloadRecord],
    suite: Suite,
    forced: Mapping[str, list[int]],
    start: Callable[[Role], ExactArm],
    clock: Callable[[], int],
    budget_ns: int,
) -> Again:
    """Runs beyond the first one of either arm; all score ``forced``.

    Base once more. Head once more in workloads where it differs from a base that repeats itself, since a head
    that does not is not to be held to the exact rule. Where either varies, base and head in turn until the
    tests of their answers can reach their level, or another pair would not fit the budget.
    """
    runs: list[AnswerRun] = []

    def measure(role: Role, names: Sequence[str]) -> None:
        arm = start(role)
        try:
            runs.extend(AnswerRun(role=role, workload=arm.exact(name, dict(forced))) for name in names)
        finally:
            arm.close()

    if not base:
        return Again()
    began = clock()
    measure("again", [workload.name for workload in base])
    pair_ns = 2 * (clock() - began)
    doubtful = [name for name in _differing(base, head) if name not in varying(base, head, runs, anything)]
    if doubtful:
        measure("head", doubtful)
    names = varying(base, head, runs)
    pairs = needed_runs(names, suite) - 1 if names else 0
    began = clock()
    for pair in range(pairs):
        if clock() - began + pair_ns > budget_ns:
            break
        for role in IN_TURN if pair % 2 == 0 else IN_TURN[::-1]:
            measure(role, names)
    return Again(tuple(runs), clock() - began)


def _differing(base: Sequence[WorkloadRecord], head: Sequence[WorkloadRecord]) -> list[str]:
    """Workloads in which the first runs of the arms gave other answers, or counted otherwise."""
    heads = {workload.name: workload for workload in head}
    return [
        first.name
        for first in base
        if first.name in heads
        and anything(together(first, [AnswerRun(role="again", workload=heads[first.name])], head=False))
    ]
