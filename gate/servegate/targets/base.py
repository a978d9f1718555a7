"""The one contract between the gate and a serving engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from servegate.errors import MeasurementError
from servegate.fingerprint import Fingerprint
from servegate.plan import Plan, WorkloadPlan
from servegate.record import RoundRecord, WorkloadRecord

Progress = Callable[[str, int, int], None]
"""``progress(stage, done, total)``: called often and cheap."""


class Target(Protocol):
    """A serving engine, ready to be measured. The only stage with a clock."""

    def fingerprint(self) -> Fingerprint: ...

    def measure(self, workload: WorkloadPlan, progress: Progress) -> WorkloadRecord:
        """Run warm-up, every round and the forced scores.

        Raises MeasurementError where the target cannot be measured at all; one request's failure stands in
        its own record.
        """
        ...

    def close(self) -> None: ...


def open_target(plan: Plan) -> Target:
    """The target that the plan names; the caller closes it."""
    if plan.target.kind == "vllm":
        from servegate.targets.vllm import VllmTarget

        return VllmTarget(plan)
    from servegate.targets.embedded import EmbeddedTarget

    return EmbeddedTarget(plan)


def rounds_of(workload: WorkloadPlan) -> Iterator[tuple[str, bool]]:
    """(stage, is it measured) of each of the workload's rounds, warm-up first."""
    for number in range(1, workload.warmup + 1):
        yield f"{workload.name}: warm-up {number} of {workload.warmup}", False
    for number in range(1, workload.repeat + 1):
        yield f"{workload.name}: round {number} of {workload.repeat}", True


def usable(record: RoundRecord, workload: str) -> RoundRecord:
    """The round. Raises MeasurementError where every request of it failed."""
    errors = [request.error for request in record.requests if request.error]
    if len(errors) == len(record.requests):
        raise MeasurementError(f"workload {workload!r}: every request failed; the first: {errors[0]}")
    return record
