"""What an `ab` run measured, as it is saved: every round of every arm, with what else the machine did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from servegate.ab.schedule import Role
from servegate.files import read_model, write_text
from servegate.model import SCHEMA_VERSION, Model
from servegate.record import Count, MachineLoad, Nanoseconds, RoundRecord, RunRecord, WorkloadRecord
from servegate.series import PACK


class WarmUp(Model):
    role: Role
    workload: str
    walls_ns: tuple[Nanoseconds, ...]
    stable: bool
    """False where the arm was still getting faster when the bound on warm-up rounds was reached."""


class BlockRecord(Model):
    """One round of one workload on one arm."""

    block: Count
    """Within the launch; rounds of one block are paired."""
    role: Role
    workload: str
    round: RoundRecord
    load: MachineLoad | None
    """None where a server gave the round: its work would count as that of others."""


class LaunchRecord(Model):
    started: tuple[Role, ...]
    """In the order in which the processes started."""
    warmups: tuple[WarmUp, ...] = ()
    blocks: tuple[BlockRecord, ...] = ()
    """In the order in which they ran."""

    @property
    def head_first(self) -> bool:
        return self.started.index("head") < self.started.index("base")

    def rounds(self, role: Role, workload: str) -> Iterator[BlockRecord]:
        return (b for b in self.blocks if b.role == role and b.workload == workload)


class AnswerRun(Model):
    """One more run of an exact workload, in a process of its own."""

    role: Role
    """``head``, or ``again``: base once more."""
    workload: WorkloadRecord
    """With the scores of base's first completions."""


End = Literal["decided", "budget spent", "launches done", "interrupted", "nothing is timed"]


class AbRecord(Model):
    schema_version: Literal[1] = SCHEMA_VERSION
    base: RunRecord
    """Workloads with reference numerics as they ran; timed ones without their rounds, which are blocks."""
    head: RunRecord
    budget_ns: Nanoseconds
    """For the timed part."""
    planned_launches: Annotated[int, Field(ge=1)]
    launches: tuple[LaunchRecord, ...] = ()
    answers: tuple[AnswerRun, ...] = ()
    """In the order in which they ran: base's A/A run first, and many where answers vary from run to run."""
    ended: End
    restarted: bool = True
    """False where base and head are two servers that ran already: a launch restarts the clients alone."""
    notes: tuple[str, ...] = ()
    """What was said of the arms before they ran, such as which policy edits do not count."""


def write_ab_record(path: Path, record: AbRecord) -> None:
    write_text(path, record.model_dump_json(context=PACK) + "\n")


def read_ab_record(path: Path) -> AbRecord:
    return read_model(path, AbRecord)
