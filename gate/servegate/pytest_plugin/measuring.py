"""A suite, measured and judged once in a pytest run, whatever number of items and workers ask for it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servegate import pipeline
from servegate.bundle import require_writable
from servegate.errors import ServegateError, UsageError
from servegate.files import read_model, write_model
from servegate.model import Model
from servegate.pytest_plugin import timing
from servegate.pytest_plugin.session import Session
from servegate.render import commands
from servegate.render.terminal import Next
from servegate.suite.loading import load_suite
from servegate.verdict import Verdict


class SuiteRun(Model):
    """What came of it: a verdict, or the changes of an update."""

    suite: str
    """Its file, as it is typed in the root directory."""
    verdict: Verdict | None = None
    report: str | None = None
    """The saved verdict, to be typed."""
    changes: tuple[str, ...] = ()
    fault: str | None = None
    """Why there is neither; kept, so that an item that asks again is not measured again."""

    @property
    def follow(self) -> Next:
        return Next(suite=self.suite, verdict=self.report)

    @property
    def lines(self) -> tuple[str, ...]:
        """For the end of the report: one on the suite, and what belongs to it."""
        if self.verdict is None:
            return (f"{self.suite}: baselines written", *self.changes)
        return (
            f"{self.suite}: {self.verdict.headline}",
            f"look closer: {commands.explain(self.report or '')}",
        )


def run_once(session: Session, path: Path) -> SuiteRun:
    """`run` for the items of a suite file: measured by the first that asks, in whichever xdist worker."""
    if path not in session.runs:
        with one_at_a_time():
            session.runs[path] = _shared(session, path)
    return session.runs[path]


def _shared(session: Session, path: Path) -> SuiteRun:
    if session.shared is None:
        return _faults_kept(session, path)
    place = session.shared / f"servegate-{hashlib.sha256(str(path).encode()).hexdigest()[:16]}.json"
    if not place.exists():
        write_model(place, _faults_kept(session, path))
    return read_model(place, SuiteRun, versioned=False)


def run(session: Session, path: Path, baselines: Path | None, asker: str) -> SuiteRun:
    """Measure and judge, or update. ``asker`` names the folder of the evidence.

    Raises ServegateError where that cannot be done, KeyboardInterrupt where it was interrupted.
    """
    loaded = load_suite(path)
    typed = os.path.relpath(path, session.root)
    if any(workload.numerics == "native" for workload in loaded.suite.workloads.values()):
        refuse_company(session, f"suite {loaded.suite.name} measures time")
    if session.updating:
        done = pipeline.update_baselines(path, baselines, in_ci=session.in_ci, progress=_silent)
        return SuiteRun(suite=typed, changes=done.changes or ("nothing changed",))
    out = _writable(session.root / "servegate-out" / timing.file_name(asker))
    result = pipeline.check(path, baselines, out, _silent, session.reference)
    if not result.record.complete:
        raise KeyboardInterrupt  # the pipeline kept what was measured; pytest has to hear of it too
    report = os.path.relpath(out / "verdict.json", session.root)
    return SuiteRun(suite=typed, verdict=result.verdict, report=report)


def refuse_company(session: Session, what: str) -> None:
    """Raise UsageError where other workers load the machine while time is measured."""
    if session.workers > 1:
        raise UsageError(
            f"{what}, and {session.workers} xdist workers share this machine: run this test with `-n 0`"
        )


def _faults_kept(session: Session, path: Path) -> SuiteRun:
    typed = os.path.relpath(path, session.root)
    try:
        return run(session, path, None, typed)
    except ServegateError as error:
        return SuiteRun(suite=typed, fault=str(error))
    except Exception as error:  # an engine that breaks would break again, minutes later, for every row
        what = f"{type(error).__name__}: {error}"
        return SuiteRun(suite=typed, fault=f"internal: {what}; `servegate check {typed}` says more")


def _writable(out: Path) -> Path:
    """``out``, or a temporary folder where the project may not be written to."""
    try:
        require_writable(out)
    except UsageError:
        return Path(tempfile.mkdtemp(prefix="servegate-out-"))
    return out


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """No two pytest processes of a user measure on this machine at once. Released when a process dies."""
    path = Path(tempfile.gettempdir()) / f"servegate-{os.getuid()}.lock"
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _silent(stage: str, done: int, total: int) -> None:
    """pytest shows its own progress."""
