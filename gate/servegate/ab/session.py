"""`servegate ab`, from a suite and a reference to a saved verdict."""

from __future__ import annotations

import datetime as dt
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from servegate.ab.again import Again, measure_again
from servegate.ab.judging import head_run, is_decided, judge_ab
from servegate.ab.process import Place, WorkerArm
from servegate.ab.protocol import Opened, TimedWorkload
from servegate.ab.record import AbRecord
from servegate.ab.runner import Budget, TimedPart, run_timed
from servegate.ab.schedule import Role
from servegate.ab.series import as_workload
from servegate.ab.worktree import worktree
from servegate.basecommit import edits, find_base
from servegate.bundle import require_writable, save_ab
from servegate.errors import ExitCode, NoDataError, UsageError
from servegate.extract import facts
from servegate.fingerprint import Fingerprint
from servegate.load import system_meter
from servegate.masking import Secrets, without_secrets
from servegate.record import Commit, RunRecord, WorkloadRecord
from servegate.repository import commit_of, path_in_repository, root_of
from servegate.suite.loading import load_suite
from servegate.suite.schema import Suite
from servegate.targets.base import Progress
from servegate.temporary import owned_folder
from servegate.verdict import Verdict

_TWO_SERVERS: Final = (
    "base is at {}, head at {}: no launch restarted these servers, so theirs count as one launch, whose luck "
    "is assumed and not measured"
)


@dataclass(frozen=True)
class Request:
    """What was asked for on the command line."""

    suite: Path
    base: str | None
    """A commit, branch or tag; None where the arms differ in their interpreters or servers alone."""
    budget: Budget
    base_python: str | None
    head_python: str | None
    base_url: str | None
    head_url: str | None
    """Of an arm's server, in place of the one in its suite."""
    pythonpath: tuple[str, ...]
    """Relative to each arm's tree."""
    out: Path


@dataclass(frozen=True)
class _Sides:
    """Both arms, ready to start, and what is to be said of them."""

    base: Place
    head: Place
    commits: tuple[Commit | None, Commit | None]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Exact:
    """What one arm's reference workloads gave."""

    opened: Opened
    suite_path: str | None
    workloads: tuple[WorkloadRecord, ...]
    fingerprint: Fingerprint | None


@dataclass(frozen=True)
class Result:
    verdict: Verdict
    head: RunRecord
    """What the head's arm measured, as a run of its own."""
    out: Path | None
    """Where the bundle lies; None where it could not be written."""


def run(request: Request, progress: Progress) -> Result:
    """Measure base and head in turn, judge, and leave the bundle in ``request.out``.

    Raises UsageError where an arm cannot be set up, NoDataError where base has no such suite,
    MeasurementError where an arm cannot be measured. Ctrl-C in the timed part leaves what was measured,
    judged as incomplete; before that there is nothing to pair, and nothing is left.
    """
    require_writable(request.out)
    with _sides(request) as sides, owned_folder("logs") as logs:
        base_suite, head_suite = load_suite(sides.base.suite).suite, load_suite(sides.head.suite).suite
        urls = _url(sides.base, base_suite), _url(sides.head, head_suite)
        restarted = urls[0] == urls[1]
        notes = (
            *sides.notes,
            *([] if restarted else [_TWO_SERVERS.format(*(url or "no URL" for url in urls))]),
            *edits(base_suite, head_suite),
        )
        base = _exact(sides.base, {}, logs, progress)
        head = _exact(sides.head, _completions(base, base_suite), logs, progress)
        timed, told = _in_both(base.opened, head.opened)
        # Where answers vary, telling how takes half of the budget at most.
        most = request.budget.ns // 2 if timed else request.budget.ns
        again = _again(base, head, base_suite, sides, most, logs, progress)
        budget = replace(request.budget, ns=request.budget.ns - min(again.pairs_ns, most))
        part = _timed(timed, sides, base_suite, budget, logs, progress, restarted=restarted)
    record = AbRecord(
        base=_run_record(base, part, "base", sides.commits[0]),
        head=_run_record(head, part, "head", sides.commits[1]),
        budget_ns=budget.ns,
        planned_launches=max(part.planned, len(part.launches), 1),
        launches=tuple(part.launches),
        answers=again.runs,
        ended=part.ended,
        restarted=restarted,
        notes=(*notes, *told),
    )
    record = without_secrets(record, Secrets.of(os.environ))
    verdict = judge_ab(record, base_suite)
    try:
        saved = save_ab(verdict, record, base_suite, request.out)
        return Result(saved, head_run(record), request.out)
    except UsageError:
        if verdict.exit_code == ExitCode.PASS:
            raise
        return Result(verdict, head_run(record), None)  # a finding outlives a full disk


@contextmanager
def _sides(request: Request) -> Iterator[_Sides]:
    """Base in a worktree of its commit, head in the working tree as it stands."""
    suite = request.suite.resolve()
    head = Place(
        arm="head",
        python=request.head_python or sys.executable,
        directory=Path.cwd(),
        suite=suite,
        url=request.head_url,
        pythonpath=_paths(root_of(suite.parent) or Path.cwd(), request.pythonpath),
    )
    base = replace(head, arm="base", python=request.base_python or sys.executable, url=request.base_url)
    head_commit = commit_of(suite.parent)
    interpreters = request.base_python or request.head_python
    apart = ("base and head differ in their interpreters",) if interpreters else ()
    if request.base is None:
        yield _Sides(base, head, (head_commit, head_commit), apart)
        return
    found = find_base(suite.parent, request.base)
    notes = [f"base is {found.said}", *apart]
    alike = not apart and base.url == head.url
    if alike and head_commit is not None and found.sha == head_commit.sha and not head_commit.dirty:
        notes.append("head is the same commit without changes: this run shows the noise of this machine")
    with ExitStack() as stack:
        tree = stack.enter_context(worktree(found.root, found.sha))
        inside = tree / suite.relative_to(found.root.resolve())
        if not inside.is_file():
            raise NoDataError(f"{request.suite}: the base ({found.said}) has no such suite to compare with")
        cwd = Path.cwd().resolve()
        below = (
            tree / cwd.relative_to(found.root.resolve()) if cwd.is_relative_to(found.root.resolve()) else tree
        )
        base = replace(
            base,
            suite=inside,
            directory=below if below.is_dir() else tree,
            pythonpath=_paths(tree, request.pythonpath),
        )
        yield _Sides(base, head, (Commit(sha=found.sha), head_commit), tuple(notes))


def _url(place: Place, suite: Suite) -> str | None:
    """Of the arm's server; None where the engine runs in the arm's own process."""
    return place.url or (suite.target.url if suite.target.kind == "vllm" else None)


def _paths(root: Path, names: tuple[str, ...]) -> tuple[Path, ...]:
    missing = [name for name in names if not (root / name).is_dir()]
    if missing:
        raise UsageError(f"--pythonpath: no folder {missing[0]!r} in {root}")
    return tuple(root / name for name in names)


def _exact(place: Place, forced: Mapping[str, list[int]], logs: Path, progress: Progress) -> _Exact:
    """Every reference workload of the arm, once, in a process that ends before anything is timed."""
    progress(f"{place.arm}: start", 0, 1)
    with closing(WorkerArm(place, logs / f"{place.arm}-exact", progress)) as arm:
        workloads = tuple(arm.exact(name, dict(forced)) for name in arm.opened.exact)
        where = path_in_repository(place.suite)
        return _Exact(arm.opened, where, workloads, arm.fingerprint() if workloads else None)


def _again(
    base: _Exact,
    head: _Exact,
    suite: Suite,
    sides: _Sides,
    budget_ns: int,
    logs: Path,
    progress: Progress,
) -> Again:
    """Does base repeat itself, and if not, how does it vary?"""
    runs = 0

    def start(role: Role) -> WorkerArm:
        nonlocal runs
        runs += 1
        progress(f"{'head' if role == 'head' else 'base'}: again, run {runs}", 0, 1)
        return WorkerArm(sides.head if role == "head" else sides.base, logs / f"{role}-{runs}", progress)

    forced = _completions(base, suite)
    clock = time.perf_counter_ns
    return measure_again(base.workloads, head.workloads, suite, forced, start, clock, budget_ns)


def _completions(base: _Exact, suite: Suite) -> dict[str, list[int]]:
    """The base's own completions by prompt, for the head to score."""
    reduced = facts(_run_record(base, TimedPart(), "base", None), suite)
    return {
        name: list(prompt.completion_ids)
        for workload in reduced.workloads.values()
        for name, prompt in workload.prompts.items()
    }


def _in_both(base: Opened, head: Opened) -> tuple[list[TimedWorkload], list[str]]:
    """The timed workloads that can be paired, and what to say of the others."""
    names = {workload.name for workload in base.timed}
    paired = [workload for workload in head.timed if workload.name in names]
    new = [w.name for w in head.timed if w.name not in names]
    return paired, [f"not timed, since the base has no such workload: {name}" for name in new]


def _timed(
    workloads: list[TimedWorkload],
    sides: _Sides,
    suite: Suite,
    budget: Budget,
    logs: Path,
    progress: Progress,
    *,
    restarted: bool,
) -> TimedPart:
    names = [workload.name for workload in workloads]

    def start(role: Role) -> WorkerArm:
        return WorkerArm(sides.head if role == "head" else sides.base, logs / role, progress)

    return run_timed(
        workloads,
        start,
        lambda launches, planned: is_decided(launches, planned, suite, names, restarted=restarted),
        time.perf_counter_ns,
        system_meter,
        budget,
        progress,
    )


def _run_record(exact: _Exact, part: TimedPart, role: Role, commit: Commit | None) -> RunRecord:
    """An arm's exact workloads as they ran and its timed ones without rounds, in the order of its suite."""
    timed = [
        part.shells.get((role, workload.name), as_workload(workload.name, ()))
        for workload in exact.opened.timed
        if role == "base" or (role, workload.name) in part.shells
    ]
    known = [f for f in (exact.fingerprint, part.fingerprints.get(role)) if f is not None]
    return RunRecord(
        suite=exact.opened.suite,
        suite_digest=exact.opened.suite_digest,
        prompt_set_digest=exact.opened.prompt_set_digest,
        suite_path=exact.suite_path,
        created=dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        commit=commit,
        fingerprint=Fingerprint(
            machine={k: v for f in known for k, v in f.machine.items()},
            software={k: v for f in known for k, v in f.software.items()},
            served={k: v for f in known for k, v in f.served.items()},
        ),
        workloads=(*exact.workloads, *timed),
    )
