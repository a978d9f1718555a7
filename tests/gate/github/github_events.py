"""Event files as GitHub's runner writes them: Octokit's examples, brought up to date and changed where told.

`valid` holds each against Octokit's schema of that event; `github_events` gives none that fails it.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import jsonschema
from github_contract import DATA
from github_fake import BASE, HEAD, MERGE, NAME, OWNER, REPOSITORY, REPOSITORY_ID

_NEWER: dict[str, Any] = {
    "is_template": False,
    "web_commit_signoff_required": False,
    "topics": [],
    "visibility": "public",
    "custom_properties": {},
}
"""What repositories have by now and the examples lack."""


def pull_request(
    number: int = 1,
    *,
    head: str = HEAD,
    fork: bool = False,
    deleted: bool = False,
    author: str = "octocat",
    branch: str = "topic",
    title: str = "Change the prompt",
    base: str = "main",
    base_sha: str = BASE,
) -> dict[str, Any]:
    payload = _example("pull_request")
    payload["number"] = number
    pull = payload["pull_request"]
    pull.update(number=number, title=title, auto_merge=None, active_lock_reason=None, merge_commit_sha=MERGE)
    pull["user"].update(login=author, type="Bot" if author.endswith("[bot]") else "User")
    owner = "contributor" if fork else OWNER
    pull["head"].update(sha=head, ref=branch, label=f"{owner}:{branch}")
    pull["base"].update(sha=base_sha, ref=base)
    pull["base"]["repo"].update(full_name=REPOSITORY, id=REPOSITORY_ID)
    pull["head"]["repo"].update(
        full_name=f"{owner}/{NAME}", id=REPOSITORY_ID + 1 if fork else REPOSITORY_ID, fork=fork
    )
    if deleted:
        pull["head"]["repo"] = None
    return valid("pull_request", payload)


def dependabot() -> dict[str, Any]:
    """Not a fork, and its token is read-only all the same."""
    return pull_request(author="dependabot[bot]", branch="dependabot/pip/torch-2.9")


def workflow_run(
    *,
    run: int = 77,
    attempt: int = 1,
    head: str = HEAD,
    branch: str = "topic",
    fork: bool = True,
    event: str = "pull_request",
    conclusion: str = "success",
    pulls: tuple[int, ...] = (),
    title: str = "Change the prompt",
) -> dict[str, Any]:
    payload = _example("workflow_run")
    body = payload["workflow_run"]
    owner = "contributor" if fork else OWNER
    body.update(
        id=run,
        run_attempt=attempt,
        head_sha=head,
        head_branch=branch,
        event=event,
        conclusion=conclusion,
        status="completed",
        actor=payload["sender"],
        triggering_actor=payload["sender"],
        path=".github/workflows/gate.yml",
        display_title=title,
        pull_requests=[_stub(number, head, branch) for number in pulls],
    )
    body["head_repository"].update(
        full_name=f"{owner}/{NAME}", id=REPOSITORY_ID + 1 if fork else REPOSITORY_ID, fork=fork
    )
    body["head_repository"]["owner"]["login"] = owner
    return valid("workflow_run", payload)


def merge_group() -> dict[str, Any]:
    payload = _example("merge_group")
    payload["merge_group"].update(
        head_sha=HEAD,
        base_sha=BASE,
        base_ref="refs/heads/main",
        head_ref=f"refs/heads/gh-readonly-queue/main/pr-1-{BASE}",
    )
    return valid("merge_group", payload)


def push(*, ref: str = "refs/heads/main", after: str = HEAD, deleted: bool = False) -> dict[str, Any]:
    payload = _example("push")
    payload.update(ref=ref, after=after, before=BASE, deleted=deleted)
    if deleted:
        payload.update(after="0" * 40, head_commit=None)
    return valid("push", payload)


def dispatch() -> dict[str, Any]:
    return valid("workflow_dispatch", _example("workflow_dispatch") | {"inputs": None})


def valid(name: str, payload: dict[str, Any]) -> dict[str, Any]:
    """The payload itself, or AssertionError where GitHub could not have sent it."""
    found = [f"{'.'.join(map(str, e.path))}: {e.message[:200]}" for e in _schema(name).iter_errors(payload)]
    assert not found, found
    return payload


def _stub(number: int, head: str, branch: str) -> dict[str, Any]:
    def end(sha: str, ref: str) -> dict[str, Any]:
        return {
            "ref": ref,
            "sha": sha,
            "repo": {"id": REPOSITORY_ID, "url": "https://x.example", "name": NAME},
        }

    return {
        "url": f"https://api.github.com/repos/{REPOSITORY}/pulls/{number}",
        "id": number,
        "number": number,
        "head": end(head, branch),
        "base": end(BASE, "main"),
    }


def _example(name: str) -> dict[str, Any]:
    payload: dict[str, Any] = json.loads((DATA / "events.json").read_text())[name]
    _renew(payload)
    payload["repository"].update(full_name=REPOSITORY, id=REPOSITORY_ID)
    return payload


def _renew(node: Any) -> None:
    if isinstance(node, list):
        for item in node:
            _renew(item)
    elif isinstance(node, dict):
        if "ssh_url" in node:
            for key, value in _NEWER.items():
                node.setdefault(key, value)
        for value in node.values():
            _renew(value)


@cache
def _schema(name: str) -> jsonschema.Draft7Validator:
    whole = json.loads((DATA / "events.schema.json").read_text())
    return jsonschema.Draft7Validator(whole["events"][name] | {"definitions": whole["definitions"]})
