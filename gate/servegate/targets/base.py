"""The one contract between the gate and a serving engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from servegate.fingerprint import Fingerprint
from servegate.plan import Plan, WorkloadPlan
from servegate.record import WorkloadRecord

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
    """The target that the plan names, started; the caller closes it."""
    from servegate.targets.embedded import EmbeddedTarget

    return EmbeddedTarget(plan)
