"""Stored baselines: what a suite is compared with where there is no base arm.

::

    baselines/<suite>/behaviour.json              reference workloads: they hold on every machine
    baselines/<suite>/timing/<hardware key>.json  native workloads, one file a machine
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from servegate.errors import UsageError
from servegate.facts import Facts, Sample, WorkloadFacts
from servegate.files import read_facts, remove, write_facts
from servegate.fingerprint import Fingerprint
from servegate.metrics.matching import match_prompts
from servegate.metrics.table import METRICS
from servegate.wording import amount, count, number, percent


@dataclass(frozen=True)
class Baseline:
    """What is stored for a suite, seen from one machine."""

    hardware_key: str
    behaviour: Facts | None
    timing: Facts | None
    """Of this machine."""
    elsewhere: tuple[Fingerprint, ...]
    """Other machines that have timings of this suite."""

    @property
    def parts(self) -> tuple[Facts, ...]:
        return tuple(part for part in (self.behaviour, self.timing) if part is not None)


def load_baseline(directory: Path, suite: str, hardware_key: str) -> Baseline:
    """What is stored; parts that do not exist are None. UsageError where a file is there and unusable."""
    timing = directory / suite / "timing"
    stored = {path.stem: path for path in sorted(timing.glob("*.json"))} if timing.is_dir() else {}
    behaviour = _behaviour_path(directory, suite)
    return Baseline(
        hardware_key=hardware_key,
        behaviour=_read(behaviour, suite) if behaviour.exists() else None,
        timing=_read(stored[hardware_key], suite) if hardware_key in stored else None,
        elsewhere=tuple(
            _read(path, suite).fingerprint for key, path in stored.items() if key != hardware_key
        ),
    )


def plan_update(old: Baseline, new: Facts) -> list[str]:
    """What storing ``new`` would change, old -> new, one line each; empty where nothing would."""
    lines = []
    for kind, part in (("reference", old.behaviour), ("native", old.timing)):
        before = part.workloads if part is not None else {}
        after = _of_kind(new, kind)
        for name in sorted({*before, *after}):
            lines += _workload_changes(name, before.get(name), after.get(name))
    return lines


def write_baseline(directory: Path, new: Facts, reason: str | None, *, in_ci: bool = False) -> list[Path]:
    """Store ``new`` and say where: what is stored for this machine is then exactly what ``new`` has.

    UsageError under CI (unless ``in_ci``), since a baseline that a pull request's own run accepts judges
    nothing; and for an interrupted run.
    """
    refuse_in_ci(in_ci)
    if not new.complete:
        raise UsageError("the run was interrupted: an incomplete measurement is no baseline; measure again")
    written = []
    for kind, path in (
        ("reference", _behaviour_path(directory, new.suite)),
        ("native", directory / new.suite / "timing" / f"{new.fingerprint.hardware_key}.json"),
    ):
        workloads = _of_kind(new, kind)
        if workloads:
            write_facts(path, new.model_copy(update={"workloads": workloads, "reason": reason}))
            written.append(path)
        else:
            remove(path)  # or the next run would miss workloads that the suite no longer has
    return written


def refuse_in_ci(in_ci: bool) -> None:
    """Raise UsageError under CI, unless ``in_ci`` says that it is meant."""
    if os.environ.get("CI", "").lower() not in ("", "0", "false") and not in_ci:
        raise UsageError(
            "baselines are not updated in CI, where nobody would see it: run `servegate baseline update` "
            "locally and commit the files, or pass --in-ci"
        )


def _behaviour_path(directory: Path, suite: str) -> Path:
    return directory / suite / "behaviour.json"


def _read(path: Path, suite: str) -> Facts:
    facts = read_facts(path)
    if facts.suite != suite:
        raise UsageError(f"{path}: a baseline of suite {facts.suite!r}, not of {suite!r}; move or delete it")
    if not facts.complete:
        raise UsageError(f"{path}: made from an interrupted run; run `servegate baseline update` again")
    return facts


def _of_kind(facts: Facts, kind: str) -> dict[str, WorkloadFacts]:
    return {name: workload for name, workload in facts.workloads.items() if workload.numerics == kind}


def _workload_changes(name: str, old: WorkloadFacts | None, new: WorkloadFacts | None) -> list[str]:
    if new is None:
        return [f"{name}: workload removed"]
    if old is None:
        return [f"{name}: new workload, {count(len(new.metrics), 'metric')}"]
    lines = [
        f"{name}: {metric} {_shown(metric, old.metrics.get(metric))} -> "
        f"{_shown(metric, new.metrics.get(metric))}{_by(old.metrics.get(metric), new.metrics.get(metric))}"
        for metric in [*METRICS, *sorted({*old.metrics, *new.metrics} - {*METRICS})]
        if _value(old.metrics.get(metric)) != _value(new.metrics.get(metric))
    ]
    matching = match_prompts(old.prompts, new.prompts)
    moved = [
        base_id
        for base_id, head_id in matching.pairs
        if old.prompts[base_id].completion_ids != new.prompts[head_id].completion_ids
    ]
    for ids, what in (
        (moved, "answered otherwise"),
        (matching.changed, "changed their text"),
        (matching.new, "new"),
        (matching.missing, "removed"),
        ([f"{old_id} -> {new_id}" for old_id, new_id in matching.renamed], "renamed"),
    ):
        if ids:
            lines.append(f"{name}: {count(len(ids), 'prompt')} {what}: {', '.join(ids)}")
    return lines


def _value(sample: Sample | None) -> float | None:
    return sample.value if sample is not None else None


def _shown(metric: str, sample: Sample | None) -> str:
    value = _value(sample)
    if value is None:
        return "none"
    return amount(value, METRICS[metric].unit) if metric in METRICS else number(value)


def _by(old: Sample | None, new: Sample | None) -> str:
    before, after = _value(old), _value(new)
    return f" ({percent(after / before - 1)})" if before and after is not None else ""
