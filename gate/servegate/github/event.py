"""What the runner says of this run: the event file and the environment, read with tolerance and no guess."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from servegate.errors import UsageError

_SHA = re.compile(r"[0-9a-f]{40}")
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
_SERVER = re.compile(r"https?://[\w.:-]+", re.ASCII)
_NO_COMMIT = "0" * 40


@dataclass(frozen=True, order=True)
class Run:
    """The run that measured. A later one has a higher id, a re-run the same id and a higher attempt."""

    id: int
    attempt: int


@dataclass(frozen=True)
class Fork:
    """Where a measured branch lives, as `workflow_run` tells it."""

    repository_id: int
    label: str
    """``owner:branch``, as the API's filter wants it."""


@dataclass(frozen=True)
class Event:
    name: str
    repository: str
    run: Run
    server: str
    head_sha: str | None = None
    """The commit that a status belongs to; None where the event is about no commit that can be merged."""
    base_sha: str | None = None
    pull: int | None = None
    head: Fork | None = None
    tested_sha: str | None = None
    """The merge commit that `pull_request` checks out: its first parent is the base that was tested."""

    @property
    def is_proposal(self) -> bool:
        """Is what was measured not merged yet? Then it may not bring its own judge."""
        return self.name in ("pull_request", "merge_group") or self.head is not None

    @property
    def run_url(self) -> str:
        return f"{self.server}/{self.repository}/actions/runs/{self.run.id}/attempts/{self.run.attempt}"


def read_event(environment: Mapping[str, str]) -> Event:
    """UsageError where this is no run of GitHub Actions, or one in which nothing may be trusted."""
    name = environment.get("GITHUB_EVENT_NAME", "")
    repository = environment.get("GITHUB_REPOSITORY", "")
    if not name or not _REPOSITORY.fullmatch(repository):
        raise UsageError(
            "not in a GitHub Actions run: GITHUB_EVENT_NAME and GITHUB_REPOSITORY are not set; "
            "`servegate compare` judges local files"
        )
    if name == "pull_request_target":
        raise UsageError(
            "servegate does not run under pull_request_target, where a fork's code meets a token that "
            "can write: use the two workflows for forks in docs/github.md"
        )
    event = Event(
        name=name,
        repository=repository,
        run=Run(_number(environment.get("GITHUB_RUN_ID")), _number(environment.get("GITHUB_RUN_ATTEMPT"), 1)),
        server=_server(environment.get("GITHUB_SERVER_URL")),
    )
    payload = _payload(environment)
    read = {
        "pull_request": _pull_request,
        "workflow_run": _workflow_run,
        "merge_group": _merge_group,
        "push": _push,
    }.get(name)
    return read(event, payload, environment) if read is not None else event


def _pull_request(event: Event, payload: dict[str, Any], environment: Mapping[str, str]) -> Event:
    pull = _part(payload, "pull_request")
    return replace(
        event,
        pull=_number(payload.get("number")) or None,
        head_sha=_sha(_part(pull, "head").get("sha")),
        base_sha=_sha(_part(pull, "base").get("sha")),
        tested_sha=_sha(environment.get("GITHUB_SHA")),
    )


def _workflow_run(event: Event, payload: dict[str, Any], _: Mapping[str, str]) -> Event:
    """The run that measured, not the one that posts."""
    run = _part(payload, "workflow_run")
    repository = _part(run, "head_repository")
    owner, branch = _part(repository, "owner").get("login"), run.get("head_branch")
    of_a_pull = run.get("event") == "pull_request" and isinstance(owner, str) and isinstance(branch, str)
    return replace(
        event,
        run=Run(_number(run.get("id")), _number(run.get("run_attempt"), 1)),
        head_sha=_sha(run.get("head_sha")),
        head=Fork(_number(repository.get("id")), f"{owner}:{branch}") if of_a_pull else None,
    )


def _merge_group(event: Event, payload: dict[str, Any], _: Mapping[str, str]) -> Event:
    group = _part(payload, "merge_group")
    return replace(event, head_sha=_sha(group.get("head_sha")), base_sha=_sha(group.get("base_sha")))


def _push(event: Event, payload: dict[str, Any], _: Mapping[str, str]) -> Event:
    """Of branches only: for an annotated tag, `after` is the tag object and no commit."""
    is_branch = str(payload.get("ref", "")).startswith("refs/heads/")
    return replace(event, head_sha=_sha(payload.get("after")) if is_branch else None)


def _payload(environment: Mapping[str, str]) -> dict[str, Any]:
    path = environment.get("GITHUB_EVENT_PATH", "")
    try:
        payload = json.loads(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"GITHUB_EVENT_PATH {path!r}: cannot be read as JSON: {error}") from None
    return payload if isinstance(payload, dict) else {}


def _part(node: dict[str, Any], key: str) -> dict[str, Any]:
    """An object of the payload; {} where it is null (the repository of a deleted fork) or missing."""
    value = node.get(key)
    return value if isinstance(value, dict) else {}


def _sha(value: object) -> str | None:
    is_commit = isinstance(value, str) and _SHA.fullmatch(value) is not None and value != _NO_COMMIT
    return str(value) if is_commit else None


def _number(value: object, default: int = 0) -> int:
    return int(value) if isinstance(value, int | str) and str(value).isdecimal() else default


def _server(value: str | None) -> str:
    """It goes into links as it is."""
    return value if value and _SERVER.fullmatch(value) else "https://github.com"
