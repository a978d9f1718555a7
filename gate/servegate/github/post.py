"""From an artifact to a pull request, in order; what cannot be posted is said, and changes no verdict.

::

    event ─▶ subject ─▶ pending ─▶ record ─▶ verdict ─▶ summary ─▶ status ─▶ comment
             (event,               (schema)  (base's    (no token
              API)                            suite)     needed)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from servegate.ab.record import AbRecord
from servegate.errors import UsageError
from servegate.github import client
from servegate.github.artifact import MAX_ARCHIVE, Measured, RefusedError, read_archive, read_path
from servegate.github.binding import Subject, bind, is_current
from servegate.github.client import GitHub, PostingError
from servegate.github.comment import Mode, Result, Sticky
from servegate.github.event import Event, read_event
from servegate.github.marker import Marker, state_of
from servegate.github.runner_files import append_summary, summary_room, write_outputs
from servegate.github.status import Status
from servegate.github.trusted import Trusted, refuse_own_tree, verdict_of, without_data
from servegate.masking import Secrets, masked
from servegate.render.comment import Origin, render
from servegate.verdict import Outcome, Verdict

_MAX_CHANGED: Final = 10


@dataclass(frozen=True)
class Job:
    """What the command line asks for."""

    trusted: Trusted
    gate: str
    mode: Mode
    artifact: Path | None
    """On this disk; None: fetched from the run that measured."""
    artifact_name: str


@dataclass
class Posted:
    verdict: Verdict | None
    """None where nobody waits for one: the pull request is closed, or has another head by now."""
    notices: list[str] = field(default_factory=list)
    """What did not reach GitHub, and why."""
    accepted_in: str | None = None
    """The suite whose stored baselines could take the change; None where it was not judged by any."""


def begin(gate: str, environment: Mapping[str, str]) -> list[str]:
    """Bind the pull request, set its status pending, and name as an output which base to check out."""
    event = read_event(environment)
    with _github(event, environment) as github:
        subject = bind(event, github)
        notices = [subject.why] if subject.why else []
        status = _status(subject, github, gate, notices)
        if status is not None:
            with _noted(notices):
                status.begin()
    write_outputs(environment, {"base-sha": subject.base_sha or ""})
    return notices


def post(job: Job, environment: Mapping[str, str]) -> Posted:
    """The verdict, told wherever this run may tell it. UsageError where nothing could be judged."""
    event = read_event(environment)
    with _github(event, environment) as github:
        subject = bind(event, github)
        if subject.superseded and event.name == "workflow_run":
            return Posted(None, [subject.why])  # what its base was, is not known any more
        return _Posting(job, environment, subject, github).run()


class _Posting:
    """One verdict on its way: what is judged, and the places that may hear of it."""

    def __init__(
        self, job: Job, environment: Mapping[str, str], subject: Subject, github: GitHub | None
    ) -> None:
        self.job, self.environment, self.subject, self.github = job, environment, subject, github
        self.event = subject.event
        self.secrets = Secrets.of(environment)
        self.notices = [subject.why] if subject.why else []
        self.status = _status(subject, github, job.gate, self.notices)

    def run(self) -> Posted:
        finished = False
        try:
            if self.status is not None:
                with _noted(self.notices):
                    self.status.begin()
            if self.event.is_proposal:
                refuse_own_tree(self.job.trusted, self.subject.head_sha, self.event.tested_sha)
            record, judged = self._judged()
            # Once, before anything is told: comment, summary, status, annotations and log show the same.
            verdict = masked(judged, self.secrets)
            origin = masked(self._origin(record, judged), self.secrets)
            self._tell(verdict, origin)
            finished = True
        finally:
            if not finished and self.status is not None:
                with _noted(self.notices):
                    self.status.abandon()
        return Posted(verdict, self.notices, None if origin.paired else origin.suite)

    def _judged(self) -> tuple[Measured | None, Verdict]:
        try:
            record = self._record()
        except RefusedError as error:
            return None, without_data(str(error), Outcome.FAILED)
        except PostingError as error:
            return None, without_data(f"no record to judge: {error}", Outcome.FAILED)
        return record, verdict_of(record, self.job.trusted)

    def _record(self) -> Measured:
        if self.job.artifact is not None:
            return read_path(self.job.artifact)
        if self.github is None:
            raise PostingError("there is no GITHUB_TOKEN to fetch the artifact with")
        return read_archive(self.github.artifact(self.event.run.id, self.job.artifact_name, MAX_ARCHIVE))

    def _tell(self, verdict: Verdict, origin: Origin) -> None:
        """First what needs nobody, last what may fail."""
        with _noted(self.notices):
            room = summary_room(self.environment)
            append_summary(self.environment, render(verdict, origin, limit=room))
            outputs = {"outcome": verdict.outcome, "exit-code": str(verdict.exit_code)}
            write_outputs(self.environment, outputs)
        if self.status is not None:
            with _noted(self.notices):
                self.status.finish(verdict)
        if self.github is not None and self.subject.pull is not None:
            with _noted(self.notices):
                self._comment(verdict, origin, self.github, self.subject.pull)

    def _comment(self, verdict: Verdict, origin: Origin, github: GitHub, pull: int) -> None:
        marker = Marker(self.job.gate, origin.head_sha, self.event.run, state_of(verdict))
        sticky = Sticky(github, pull, marker, lambda: is_current(self.subject, github))
        body = render(verdict, origin, marker=str(marker))
        result = sticky.publish(body, self.job.mode, failing=verdict.outcome is not Outcome.PASS)
        if result is Result.STALE:
            self.notices.append("not commented: a newer commit or a later run has spoken already")

    def _origin(self, record: Measured | None, verdict: Verdict) -> Origin:
        run = self.event.run
        head = record.head if isinstance(record, AbRecord) else record
        return Origin(
            head_sha=self.subject.head_sha or "unknown",
            base_sha=self.job.trusted.commit or self.subject.base_sha,
            run_url=self.event.run_url,
            run_name=f"run {run.id}, attempt {run.attempt}",
            suite=self.job.trusted.shown,
            pull=self.subject.pull,
            hardware=head.fingerprint.hardware_key if head is not None else "",
            paired=isinstance(record, AbRecord),
            changed=self._changed(verdict.suite),
        )

    def _changed(self, suite: str) -> tuple[str, ...]:
        """Asked of the API: the pull request's own word on what it changes is worth nothing."""
        watched = self.job.trusted.watched(suite)
        if self.github is None or self.subject.pull is None or not watched:
            return ()
        try:
            files = self.github.changed_files(self.subject.pull)
        except PostingError:
            return ()
        found = [f for f in files if any(f == path or f.startswith(f"{path}/") for path in watched)]
        more = (f"and {len(found) - _MAX_CHANGED} more",) if len(found) > _MAX_CHANGED else ()
        return (*found[:_MAX_CHANGED], *more)


def _status(subject: Subject, github: GitHub | None, gate: str, notices: list[str]) -> Status | None:
    """None where there is no commit to set it on, or a later run of that commit has set it."""
    if github is None or subject.head_sha is None:
        return None
    status = Status(github, subject.event, subject.head_sha, gate)
    with _noted(notices):
        if status.is_older():
            return None
    return status


@contextmanager
def _github(event: Event, environment: Mapping[str, str]) -> Iterator[GitHub | None]:
    """None without a token: everything that needs none still happens."""
    token = environment.get("GITHUB_TOKEN")
    if not token:
        yield None
        return
    api_url = environment.get("GITHUB_API_URL") or "https://api.github.com"
    if not api_url.startswith(("https://", "http://127.0.0.1:")):
        raise UsageError(f"GITHUB_API_URL {api_url!r}: not an https address, and the token would be readable")
    github = GitHub(api_url, event.repository, token, client.POLITE)
    try:
        yield github
    finally:
        github.close()


@contextmanager
def _noted(notices: list[str]) -> Iterator[None]:
    """A refusal by GitHub, or by the disk that holds the runner's files, becomes a line for the log."""
    try:
        yield
    except (PostingError, OSError) as error:
        if str(error) not in notices:
            notices.append(str(error))
