"""The whole way, stage by stage: suite -> plan -> record -> facts -> comparison -> verdict."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from servegate.basecommit import baseline_notes, edits, export_baselines, find_base, judged_by, suite_at
from servegate.baseline import Baseline, load_baseline, plan_update, refuse_in_ci, write_baseline
from servegate.bundle import judge, require_writable, save
from servegate.compare import DEFAULT_POLICY, compare
from servegate.errors import ExitCode, UsageError
from servegate.extract import facts
from servegate.facts import Facts
from servegate.files import read_facts, read_record, write_record
from servegate.history import append
from servegate.masking import Secrets, without_secrets
from servegate.plan import ForcedCompletion, Plan, make_plan
from servegate.record import RunRecord
from servegate.repository import commit_of, path_in_repository, root_of
from servegate.signals import held
from servegate.suite.loading import LoadedSuite, load_suite
from servegate.suite.schema import Suite
from servegate.targets.base import Progress, open_target
from servegate.temporary import owned_folder
from servegate.verdict import Verdict, decide


@dataclass(frozen=True)
class CheckResult:
    verdict: Verdict
    record: RunRecord
    out: Path | None
    """Where the bundle lies; None where it could not be written."""


@dataclass(frozen=True)
class BaselineUpdate:
    changes: tuple[str, ...]
    """Old -> new in words, one line each; empty where the baselines were equal already."""
    written: tuple[Path, ...]


def check(
    suite_path: Path, baselines: Path | None, out: Path, progress: Progress, base: str | None = None
) -> CheckResult:
    """The main job: measure, compare with the stored baselines, judge, and leave the bundle in ``out``.

    With ``base``, a branch or commit: policy, pins, prices, quality checks and baselines are those of the
    commit where HEAD left it, whatever the working tree says. Ctrl-C leaves what was measured, judged as
    incomplete.
    """
    loaded = load_suite(suite_path)
    require_writable(out)
    folder = baselines or default_baselines(suite_path)
    with owned_folder("base") as at_base:
        if base is None:
            return _checked(loaded, loaded.suite, folder, out, progress)
        found = find_base(suite_path.resolve().parent, base)
        export_baselines(found, folder, loaded.suite.name, at_base)
        judging = suite_at(found, suite_path)
        suite = judged_by(loaded.suite, judging) if judging is not None else loaded.suite

        def notes(record: RunRecord) -> tuple[str, ...]:
            stored = load_baseline(at_base, suite.name, record.fingerprint.hardware_key)
            edited = edits(judging, loaded.suite) if judging is not None else ["base has no such suite"]
            return (f"base is {found.said}", *edited, *baseline_notes(found, folder, stored))

        return _checked(loaded, suite, at_base, out, progress, notes)


def _checked(
    loaded: LoadedSuite,
    suite: Suite,
    baselines: Path,
    out: Path,
    progress: Progress,
    notes: Callable[[RunRecord], tuple[str, ...]] = lambda record: (),
) -> CheckResult:
    """Measure what ``loaded`` says, and judge it by ``suite`` and these baselines."""
    stored = load_baseline(baselines, suite.name, hardware_key="")
    record = _measure(loaded, make_plan(loaded, _forced(stored)), progress)
    record = record.model_copy(update={"notes": (*notes(record), *record.notes)})
    verdict = judge(record, suite, baselines)
    try:
        return CheckResult(save(verdict, record, suite, baselines, out), record, out)
    except UsageError:
        if verdict.exit_code == ExitCode.PASS:
            raise
        return CheckResult(verdict, record, None)  # a finding outlives a full disk


def measure(suite_path: Path, out: Path, progress: Progress) -> RunRecord:
    """Measure only, and write the record; an interrupted one too."""
    loaded = load_suite(suite_path)
    require_writable(out.parent)
    record = _measure(loaded, make_plan(loaded), progress)
    write_record(out, record)
    return record


def compare_files(base: Path, head: Path, suite_path: Path | None) -> Verdict:
    """Judge two records or facts files, with the suite's policy or the default one."""
    suite = load_suite(suite_path).suite if suite_path is not None else None
    arms = [_read_arm(path, suite_path) for path in (base, head)]
    return decide(compare(arms[0], arms[1], suite), suite.policy if suite is not None else DEFAULT_POLICY)


def update_baselines(
    suite_path: Path,
    baselines: Path | None,
    *,
    reason: str | None = None,
    in_ci: bool = False,
    progress: Progress,
    history: Path | None = None,
) -> BaselineUpdate:
    """Measure and store as the suite's baselines. Refuses in CI before it measures, unless ``in_ci``.

    In the ``history`` the run starts a new level: what moved here was accepted.
    """
    refuse_in_ci(in_ci)
    loaded = load_suite(suite_path)
    baselines = baselines or default_baselines(suite_path)
    record = _measure(loaded, make_plan(loaded), progress)
    new = facts(record, loaded.suite)
    old = load_baseline(baselines, loaded.suite.name, record.fingerprint.hardware_key)
    changes = plan_update(old, new)
    with held():
        written = write_baseline(baselines, new, reason, in_ci=in_ci)
    if history is not None:
        append(history, new, accepted=reason or "no reason given")
    return BaselineUpdate(tuple(changes), tuple(written))


def default_baselines(suite_path: Path) -> Path:
    """The nearest ``baselines`` folder at or above the suite, up to the repository's top.

    Where there is none: beside the suite.
    """
    directory = suite_path.resolve().parent
    top = root_of(directory)
    for folder in (directory, *(directory.parents if top is not None else ())):
        if (folder / "baselines").is_dir():
            return folder / "baselines"
        if folder == top:
            break
    return directory / "baselines"


def _measure(loaded: LoadedSuite, plan: Plan, progress: Progress) -> RunRecord:
    """Every workload in the order of the suite. Interrupted: what was measured until then, marked so."""
    target = open_target(plan)
    workloads = []
    complete = True
    try:
        for workload in plan.workloads:
            workloads.append(target.measure(workload, progress))
    except KeyboardInterrupt:
        complete = False
    finally:
        target.close()
    record = RunRecord(
        suite=plan.suite,
        suite_digest=plan.suite_digest,
        prompt_set_digest=plan.prompt_set_digest,
        suite_path=path_in_repository(loaded.path),
        created=dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        commit=commit_of(loaded.directory),
        fingerprint=target.fingerprint(),
        workloads=tuple(workloads),
        complete=complete,
    )
    return without_secrets(record, Secrets.of(os.environ))


def _forced(stored: Baseline) -> Mapping[str, ForcedCompletion]:
    """The base's own completions, for the head to score."""
    workloads = stored.behaviour.workloads.values() if stored.behaviour is not None else ()
    return {
        prompt_id: ForcedCompletion(prompt_id=prompt_id, completion_ids=prompt.completion_ids)
        for workload in workloads
        for prompt_id, prompt in workload.prompts.items()
    }


def _read_arm(path: Path, suite_path: Path | None) -> Facts:
    """A record is reduced to its facts; a facts file (a stored baseline) is taken as it is."""
    suite = load_suite(suite_path).suite if suite_path is not None else None
    try:
        return facts(read_record(path), suite)
    except UsageError as not_a_record:
        try:
            return read_facts(path)
        except UsageError:
            raise not_a_record from None
