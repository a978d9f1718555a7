"""What `check` leaves behind: everything the verdict was computed from, so that anyone can compute it again.

::

    <out>/record.json                    raw facts of the head
    <out>/suite.json                     the suite as it was read
    <out>/baselines/<suite>/...          the baseline files, as they were
    <out>/verdict.json                   the verdict, and the sha256 of each of the above

`ab` leaves ``ab.json`` in place of record and baselines: all rounds of both arms.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from servegate.ab.judging import judge_ab
from servegate.ab.record import AbRecord, read_ab_record, write_ab_record
from servegate.baseline import load_baseline
from servegate.compare import compare
from servegate.errors import MeasurementError, UsageError
from servegate.extract import facts
from servegate.files import file_digest, read_model, read_record, write_model, write_record, write_text
from servegate.record import RunRecord
from servegate.signals import held
from servegate.suite.schema import Suite
from servegate.verdict import Verdict, decide

RECORD, SUITE, VERDICT, BASELINES = "record.json", "suite.json", "verdict.json", "baselines"
AB_RECORD = "ab.json"


@dataclass(frozen=True)
class Recomputed:
    """A stored verdict and the one that its own saved inputs give."""

    stored: Verdict
    again: Verdict
    tampered: tuple[str, ...]
    """Inputs that no longer have the digest that the verdict names."""

    @property
    def holds(self) -> bool:
        return not self.tampered and self.stored == self.again


def require_writable(out: Path) -> None:
    """Raise UsageError before anything is measured where the bundle could not be written after it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise UsageError(f"{out}: cannot be written to: {error.strerror or error}") from None


def judge(record: RunRecord, suite: Suite, baselines: Path) -> Verdict:
    """Record and stored baselines -> verdict."""
    baseline = load_baseline(baselines, suite.name, record.fingerprint.hardware_key)
    comparison = compare(baseline, facts(record, suite), suite)
    noted = comparison.model_copy(update={"notes": (*comparison.notes, *record.notes)})
    return decide(noted, suite.policy)


def save(verdict: Verdict, record: RunRecord, suite: Suite, baselines: Path, out: Path) -> Verdict:
    """Leave the bundle in ``out``, whole whatever signal comes; returns the verdict with its inputs named.

    UsageError where it cannot be written.
    """
    with held():
        write_record(out / RECORD, record)
        _copy_baselines(baselines / suite.name, out / BASELINES / suite.name)
        return _save_verdict(verdict, suite, out, _inputs(out, suite.name))


def save_ab(verdict: Verdict, record: AbRecord, suite: Suite, out: Path) -> Verdict:
    """`save` for paired arms; ``suite`` is the base's, which judged."""
    with held():
        write_ab_record(out / AB_RECORD, record)
        return _save_verdict(verdict, suite, out, [AB_RECORD, SUITE])


def _save_verdict(verdict: Verdict, suite: Suite, out: Path, inputs: list[str]) -> Verdict:
    write_text(out / SUITE, suite.model_dump_json(indent=2) + "\n")
    digests = {name: file_digest(out / name) for name in inputs}
    verdict = verdict.model_copy(update={"inputs": digests})
    write_model(out / VERDICT, verdict)
    return verdict


def recompute(verdict_path: Path) -> Recomputed:
    """The verdict computed again from the files beside it.

    Raises UsageError where the file is no verdict, MeasurementError where its inputs are gone.
    """
    stored = read_model(verdict_path, Verdict)
    directory = verdict_path.parent
    if not stored.inputs:
        raise UsageError(
            f"{verdict_path}: names no inputs; a verdict of `servegate compare` is computed again by "
            "running it on the same two files"
        )
    gone = [name for name in stored.inputs if not (directory / name).is_file()]
    if gone:
        raise MeasurementError(
            f"{verdict_path}: computed from {', '.join(sorted(gone))}, which is no longer beside it; keep "
            "the whole folder that `servegate check --out` wrote"
        )
    tampered = tuple(name for name, sha in stored.inputs.items() if file_digest(directory / name) != sha)
    suite = read_model(directory / SUITE, Suite, versioned=False)
    if AB_RECORD in stored.inputs:
        again = judge_ab(read_ab_record(directory / AB_RECORD), suite)
    else:
        again = judge(read_record(directory / RECORD), suite, directory / BASELINES)
    return Recomputed(stored, again.model_copy(update={"inputs": stored.inputs}), tampered)


def _inputs(directory: Path, suite: str) -> list[str]:
    stored = sorted((directory / BASELINES / suite).rglob("*.json"))
    return [RECORD, SUITE, *(path.relative_to(directory).as_posix() for path in stored)]


def _copy_baselines(source: Path, target: Path) -> None:
    """``target`` holds what ``source`` holds now, and nothing of an earlier run."""
    shutil.rmtree(target, ignore_errors=True)
    for path in [source / "behaviour.json", *sorted((source / "timing").glob("*.json"))]:
        if path.is_file():
            write_text(target / path.relative_to(source), path.read_text(encoding="utf-8"))
