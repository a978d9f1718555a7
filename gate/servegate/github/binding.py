"""Which pull request does a run belong to? Answered by the event and the API, never by an artifact.

An artifact of a fork's run can name any number and any commit; the event and the API cannot be written by it.
"""

from __future__ import annotations

from dataclasses import dataclass

from servegate.github.client import GitHub, PostingError, Pull
from servegate.github.event import Event


@dataclass(frozen=True)
class Subject:
    """What is judged, and where the result may be written."""

    event: Event
    head_sha: str | None
    """Where the status goes; None: nowhere."""
    base_sha: str | None
    """The commit whose suite and baselines judge."""
    pull: int | None
    """Where the comment goes; None: nowhere, and ``why`` says the reason."""
    why: str = ""
    superseded: bool = False
    """The pull request has another head by now, or is closed: nobody waits for this result."""


def bind(event: Event, github: GitHub | None) -> Subject:
    """Never raises: a pull request that cannot be found is a reason not to comment, not to fail."""
    unbound = Subject(event, event.head_sha, event.base_sha, None)
    try:
        if event.name == "pull_request" and event.pull is not None:
            return _by_number(event, event.pull, github)
        if event.name == "workflow_run" and event.head is not None:
            return _by_branch(event, github)
    except PostingError as error:
        return _because(unbound, str(error))
    return _because(unbound, f"a run of {event.name!r} has no pull request to comment on")


def is_current(subject: Subject, github: GitHub) -> bool:
    """Asked again right before writing: has the pull request still the head that was measured?"""
    if subject.pull is None:
        return False
    pull = github.pull(subject.pull)
    return pull.is_open and pull.head_sha == subject.head_sha


def _by_number(event: Event, number: int, github: GitHub | None) -> Subject:
    subject = Subject(event, event.head_sha, event.base_sha, None)
    if github is None:
        return _because(subject, "there is no GITHUB_TOKEN to comment with")
    pull = github.pull(number)
    if not pull.is_open:
        return _because(subject, f"pull request {number} is closed", superseded=True)
    if pull.head_sha != event.head_sha:
        return _because(
            subject,
            f"superseded: pull request {number} is at {pull.head_sha[:12]} by now",
            superseded=True,
        )
    return Subject(event, pull.head_sha, _tested_base(pull, event.tested_sha, github), number)


def _by_branch(event: Event, github: GitHub | None) -> Subject:
    """The open pull requests of that branch of that very repository, at that very commit, into this one."""
    subject = Subject(event, None, None, None)  # until it is found, nothing is known that may be written to
    if github is None or event.head is None:
        return _because(subject, "there is no GITHUB_TOKEN to find the pull request with")
    found = [
        pull
        for pull in github.open_pulls(event.head.label)
        if pull.is_open
        and pull.base_repository == event.repository
        and pull.head_sha == event.head_sha
        and pull.head_repository_id == event.head.repository_id
    ]
    if not found:
        return _because(subject, "superseded or closed: no open pull request has this head", superseded=True)
    if len(found) > 1:
        numbers = ", ".join(f"#{pull.number}" for pull in found)
        return _because(subject, f"ambiguous: {numbers} have the same head, and each its own base")
    pull = found[0]
    return Subject(event, pull.head_sha, _tested_base(pull, pull.merge_sha, github), pull.number)


def _tested_base(pull: Pull, merge_sha: str | None, github: GitHub) -> str:
    """The first parent of the merge commit that was tested: ``base.sha`` can be days old."""
    if merge_sha is not None:
        try:
            parents = github.parents(merge_sha)
        except PostingError:
            parents = []
        if len(parents) == 2 and parents[1] == pull.head_sha:
            return parents[0]
    return pull.base_sha


def _because(subject: Subject, why: str, *, superseded: bool = False) -> Subject:
    return Subject(subject.event, subject.head_sha, subject.base_sha, None, why=why, superseded=superseded)
