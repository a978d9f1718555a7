"""What `check` or `ab` left behind, arranged for a reader: each workload with its base beside its head."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from servegate.ab.judging import arms
from servegate.ab.record import read_ab_record
from servegate.baseline import load_baseline
from servegate.bundle import AB_RECORD, BASELINES, RECORD, SUITE, VERDICT, recompute
from servegate.extract import facts
from servegate.facts import Facts, WorkloadFacts
from servegate.files import read_model, read_record
from servegate.masking import SHAPES_ALONE, Secrets, masked
from servegate.metrics.context import Context
from servegate.metrics.timeline import Timeline
from servegate.record import RequestRecord, RunRecord, WorkloadRecord
from servegate.suite.schema import Suite
from servegate.verdict import Verdict


@dataclass(frozen=True)
class Side:
    """One workload on one arm. Of a stored baseline only the facts are kept: no request, no arrival."""

    facts: WorkloadFacts
    requests: tuple[RequestRecord, ...] = ()
    """Of the first round."""
    times: tuple[Timeline, ...] = ()
    """One entry a round."""
    counters: tuple[dict[str, int], ...] = ()
    """One entry a round."""


@dataclass(frozen=True)
class Workload:
    name: str
    base: Side | None
    head: Side


@dataclass(frozen=True)
class Report:
    verdict: Verdict
    holds: bool
    """Do the saved files give this verdict when it is computed again?"""
    suite: Suite
    suite_path: str | None
    """In its repository, where that is known."""
    base: tuple[Facts, ...]
    """One for paired arms; of stored baselines up to two; none where there are none yet."""
    head: Facts
    paired: bool
    """Base was measured beside head in the same run."""
    workloads: tuple[Workload, ...]


def read(directory: Path, secrets: Secrets = SHAPES_ALONE) -> Report:
    """Read the folder that `check --out` or `ab --out` wrote, with ``secrets`` masked in every text.

    Raises UsageError where there is none, MeasurementError where a file of it is gone.
    """
    found = recompute(directory / VERDICT)
    suite = read_model(directory / SUITE, Suite, versioned=False)
    paired = AB_RECORD in found.stored.inputs
    if paired:
        base_record, head_record = arms(read_ab_record(directory / AB_RECORD))
        base: tuple[Facts, ...] = (facts(base_record, suite),)
    else:
        base_record, head_record = None, read_record(directory / RECORD)
        key = head_record.fingerprint.hardware_key
        base = load_baseline(directory / BASELINES, suite.name, key).parts
    head = facts(head_record, suite)
    before = {name: Side(workload) for part in base for name, workload in part.workloads.items()}
    if base_record is not None:
        before = _sides(base_record, base[0])
    report = Report(
        verdict=found.stored,
        holds=found.holds,
        suite=suite,
        suite_path=head_record.suite_path,
        base=base,
        head=head,
        paired=paired,
        workloads=tuple(
            Workload(name, before.get(name), side) for name, side in _sides(head_record, head).items()
        ),
    )
    return masked(report, secrets)


def _sides(record: RunRecord, reduced: Facts) -> dict[str, Side]:
    return {w.name: _side(w, reduced.workloads[w.name], record) for w in record.workloads}


def _side(workload: WorkloadRecord, reduced: WorkloadFacts, record: RunRecord) -> Side:
    return Side(
        facts=reduced,
        requests=workload.rounds[0].requests if workload.rounds else (),
        times=Context.of(workload, record.fingerprint).rounds,
        counters=tuple(round_.counters for round_ in workload.rounds),
    )
