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
from servegate.errors import MeasurementError, UsageError
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


def begin(gate: str, environment: Mapping[str, str]) -> list[str]:
    """Bind the pull request, set its status pending, and name as outputs which base to check out."""
    notices: list[str] = []
    event = read_event(environment)
    with _github(event, environment) as github:
        subject = bind(event, github)
        if subject.why:
            notices.append(subject.why)
        status = _status(subject, github, gate)
        if status is not None:
            with _noted(notices):
                if not status.is_older():
                    status.begin()
    write_outputs(
        environment,
        {
            "head-sha": subject.head_sha or "",
            "base-sha": subject.base_sha or "",
            "pull-request": str(subject.pull or ""),
            "superseded": str(subject.superseded).lower(),
        },
    )
    return notices


def post(job: Job, environment: Mapping[str, str]) -> Posted:
    """The verdict, told wherever this run may tell it. UsageError where nothing could be judged."""
    event = read_event(environment)
    with _github(event, environment) as github:
        subject = bind(event, github)
        if subject.superseded and event.name == "workflow_run":
            return Posted(None, [subject.why])  # what its base was, is not known any more
        status = _current_status(subject, github, job.gate)
        notices: list[str] = [subject.why] if subject.why else []
        posted = None
        try:
            if status is not None:
                with _noted(notices):
                    status.begin()
            if event.is_proposal:
                refuse_own_tree(job.trusted, subject.head_sha, event.tested_sha)
            record, verdict = _judged(job, event, github)
            _tell(job, subject, record, verdict, notices, environment, github, status)
            posted = Posted(verdict, notices)
        finally:
            if posted is None and status is not None:
                with _noted(notices):
                    status.abandon()
    return posted


def _judged(job: Job, event: Event, github: GitHub | None) -> tuple[Measured | None, Verdict]:
    try:
        record = _record(job, event, github)
    except RefusedError as error:
        return None, without_data(str(error), Outcome.FAILED)
    except (PostingError, MeasurementError) as error:
        return None, without_data(f"no record to judge: {error}", Outcome.FAILED)
    return record, verdict_of(record, job.trusted)


def _record(job: Job, event: Event, github: GitHub | None) -> Measured:
    if job.artifact is not None:
        return read_path(job.artifact)
    if github is None:
        raise PostingError("there is no GITHUB_TOKEN to fetch the artifact with")
    return read_archive(github.artifact(event.run.id, job.artifact_name, MAX_ARCHIVE))


def _tell(
    job: Job,
    subject: Subject,
    record: Measured | None,
    verdict: Verdict,
    notices: list[str],
    environment: Mapping[str, str],
    github: GitHub | None,
    status: Status | None,
) -> None:
    """First what needs nobody, last what may fail."""
    origin = _origin(job, subject, record, verdict, github)
    with _noted(notices):
        append_summary(environment, render(verdict, origin, limit=summary_room(environment)))
        write_outputs(environment, {"outcome": verdict.outcome, "exit-code": str(verdict.exit_code)})
    if status is not None:
        with _noted(notices):
            status.finish(verdict)
    if github is not None and subject.pull is not None and subject.head_sha is not None:
        with _noted(notices):
            marker = Marker(job.gate, subject.head_sha, subject.event.run, state_of(verdict))
            sticky = Sticky(github, subject.pull, marker, lambda: is_current(subject, github))
            body = render(verdict, origin, marker=str(marker))
            result = sticky.publish(body, job.mode, failing=verdict.outcome is not Outcome.PASS)
            if result is Result.STALE:
                notices.append("not commented: a newer commit or a later run has spoken already")


def _origin(
    job: Job, subject: Subject, record: Measured | None, verdict: Verdict, github: GitHub | None
) -> Origin:
    event = subject.event
    return Origin(
        head_sha=subject.head_sha or "unknown",
        base_sha=job.trusted.commit or subject.base_sha,
        run_url=event.run_url,
        run_name=f"run {event.run.id}, attempt {event.run.attempt}",
        suite=job.trusted.shown,
        pull=subject.pull,
        hardware=_hardware(record),
        changed=_changed(job.trusted, subject, verdict.suite, github),
    )


def _hardware(record: Measured | None) -> str:
    head = record.head if isinstance(record, AbRecord) else record
    return head.fingerprint.hardware_key if head is not None else ""


def _changed(trusted: Trusted, subject: Subject, suite: str, github: GitHub | None) -> tuple[str, ...]:
    """Asked of the API: the pull request's own word on what it changes is worth nothing."""
    if github is None or subject.pull is None:
        return ()
    watched = trusted.watched(suite)
    try:
        files = github.changed_files(subject.pull) if watched else []
    except PostingError:
        return ()
    found = [file for file in files if any(file == path or file.startswith(f"{path}/") for path in watched)]
    more = (f"and {len(found) - _MAX_CHANGED} more",) if len(found) > _MAX_CHANGED else ()
    return (*found[:_MAX_CHANGED], *more)


def _current_status(subject: Subject, github: GitHub | None, gate: str) -> Status | None:
    """None as well where a later run of the same commit has set it."""
    status = _status(subject, github, gate)
    try:
        return None if status is not None and status.is_older() else status
    except PostingError:
        return status


def _status(subject: Subject, github: GitHub | None, gate: str) -> Status | None:
    if github is None or subject.head_sha is None:
        return None
    return Status(github, subject.event, subject.head_sha, gate)


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
