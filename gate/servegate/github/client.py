"""The few requests that posting needs, each bounded in time, with one kind of failure.

PyGithub's own defaults repeat a POST that GitHub may have carried out (two comments), and wait an hour for a
rate limit. Here only what can be repeated is repeated, and nothing waits longer than `Pace` says.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from itertools import count
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from github import Github

_TIMEOUT_S: Final = 20
_PAGE: Final = 100
_VIEWER: Final = "query { viewer { login } }"
_HIDDEN: Final = "query($ids: [ID!]!) { nodes(ids: $ids) { ... on IssueComment { isMinimized } } }"
_ACTIONS: Final = "github-actions[bot]"


class PostingError(Exception):
    """GitHub did not do what it was asked. ``str()`` says why in one line."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status
        """Of the answer; None where there was none."""

    @property
    def may_be_done(self) -> bool:
        """The request may have been carried out, and only the answer was lost."""
        return self.status is None or self.status >= 500


@dataclass(frozen=True)
class Pace:
    """How patient the client is. Seconds."""

    backoff: float = 1.0
    longest_wait: float = 60.0
    """For a rate limit to pass; beyond it the request fails."""
    between_requests: float = 0.1
    between_writes: float = 1.0


POLITE: Final = Pace()


@dataclass(frozen=True)
class Pull:
    number: int
    is_open: bool
    head_sha: str
    head_repository_id: int | None
    """None where the fork was deleted."""
    base_repository: str
    base_ref: str
    base_sha: str
    merge_sha: str | None


@dataclass(frozen=True)
class Comment:
    id: int
    body: str
    author: str | None
    url: str
    node: str
    """Its name in GraphQL."""


class GitHub:
    """One repository, seen with one token. Every method raises PostingError and nothing else."""

    def __init__(self, api_url: str, repository: str, token: str, pace: Pace = POLITE) -> None:
        from github import Auth, Github

        self._github: Github = Github(
            auth=Auth.Token(token),
            base_url=api_url,
            timeout=_TIMEOUT_S,
            retry=_retry(pace),
            seconds_between_requests=pace.between_requests,
            seconds_between_writes=pace.between_writes,
        )
        self._api_url = api_url
        self._path = f"/repos/{repository}"
        self._is_app = token.startswith("ghs_")
        self._login: str | None = None

    def close(self) -> None:
        self._github.close()

    @property
    def login(self) -> str:
        """Who writes with this token. `GET /user` is forbidden to the tokens of Actions, GraphQL is not."""
        if self._login is None:
            try:
                with _one_failure("who writes"):
                    _, answer = self._github.requester.graphql_query(_VIEWER, {})
                    self._login = str(answer["data"]["viewer"]["login"])
            except PostingError:
                self._login = _ACTIONS
        return self._login

    def pull(self, number: int) -> Pull:
        with _one_failure(f"pull request {number}"):
            return _pull(self._get(f"/pulls/{number}"))

    def open_pulls(self, head: str) -> list[Pull]:
        """Of ``owner:branch``."""
        with _one_failure("the list of pull requests"):
            return [_pull(pull) for pull in self._all("/pulls", {"state": "open", "head": head})]

    def parents(self, sha: str) -> list[str]:
        with _one_failure(f"commit {sha[:12]}"):
            return [str(parent["sha"]) for parent in self._get(f"/commits/{sha}")["parents"]]

    def changed_files(self, pull: int) -> list[str]:
        with _one_failure(f"the files of pull request {pull}"):
            return [str(file["filename"]) for file in self._all(f"/pulls/{pull}/files")]

    def comments(self, pull: int) -> list[Comment]:
        """Of this token's own user, oldest first, over all pages."""
        with _one_failure("the comments"):
            found = [_comment(comment) for comment in self._all(f"/issues/{pull}/comments")]
        return [comment for comment in found if self._is_mine(comment)]

    def hidden(self, comments: Sequence[Comment]) -> frozenset[int]:
        """Ids of those among the first hundred that a reader has to unfold, which REST does not tell.

        None where GraphQL is refused: then a hidden comment is edited as if it were not.
        """
        asked = comments[:_PAGE]
        try:
            with _one_failure("which comments are hidden"):
                _, answer = self._github.requester.graphql_query(_HIDDEN, {"ids": [c.node for c in asked]})
                nodes = answer["data"]["nodes"]  # in the order of the ids; null for one that is gone
                return frozenset(
                    c.id for c, n in zip(asked, nodes, strict=True) if n and n.get("isMinimized")
                )
        except PostingError:
            return frozenset()

    def create_comment(self, pull: int, body: str) -> None:
        """Its author is who writes, should GraphQL not have told."""
        with _one_failure("a comment"):
            made = _comment(self._send("POST", f"/issues/{pull}/comments", {"body": body}))
        self._login = made.author or self._login

    def edit_comment(self, comment: Comment, body: str) -> None:
        with _one_failure("the comment"):
            self._send("PATCH", f"/issues/comments/{comment.id}", {"body": body})

    def delete_comment(self, comment: Comment) -> None:
        """Fine where somebody was faster."""
        try:
            with _one_failure("a comment of an earlier run"):
                self._send("DELETE", f"/issues/comments/{comment.id}")
        except PostingError as error:
            if error.status != 404:
                raise

    def status_target(self, sha: str, context: str) -> str | None:
        """Where the newest status of this context points, among the last hundred of the commit."""
        with _one_failure("the statuses"):
            statuses = self._get(f"/commits/{sha}/statuses", {"per_page": _PAGE})
            targets = [s["target_url"] for s in statuses if s["context"].lower() == context.lower()]
        return targets[0] if targets else None

    def set_status(self, sha: str, *, state: str, context: str, description: str, target: str) -> None:
        content = {"state": state, "context": context, "description": description, "target_url": target}
        with _one_failure(f"the status {context!r}"):
            self._send("POST", f"/statuses/{sha}", content)

    def artifact(self, run: int, name: str, limit: int) -> bytes:
        """The archive as it was uploaded, in memory; one of more than ``limit`` bytes is refused."""
        with _one_failure(f"artifact {name!r} of run {run}"):
            page = self._get(f"/actions/runs/{run}/artifacts", {"name": name, "per_page": _PAGE})
            found = [entry for entry in page["artifacts"] if entry["name"] == name and not entry["expired"]]
            if not found:
                raise PostingError(
                    f"run {run} has no artifact {name!r}: did the job that measures upload it?", 404
                )
            newest = max(int(entry["id"]) for entry in found)  # a re-run uploads under the same name
            headers, _ = self._github.requester.requestBlobAndCheck(
                "GET", f"{self._path}/actions/artifacts/{newest}/zip"
            )
            return self._download(headers["location"], limit)

    def _download(self, url: str, limit: int) -> bytes:
        """From the store that GitHub names, which must not see the token."""
        if urlsplit(url).scheme != urlsplit(self._api_url).scheme:
            raise PostingError("the artifact's address is not encrypted")
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
            content: bytes = answer.read(limit + 1)
        if len(content) > limit:
            raise PostingError(f"larger than {limit:,} bytes")
        return content

    def _get(self, path: str, parameters: dict[str, Any] | None = None) -> Any:
        return self._github.requester.requestJsonAndCheck("GET", self._path + path, parameters)[1]

    def _all(self, path: str, parameters: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """Every entry of a list, page by page."""
        for page in count(1):
            entries = self._get(path, {**(parameters or {}), "per_page": _PAGE, "page": page})
            yield from entries
            if len(entries) < _PAGE:
                return

    def _send(self, verb: str, path: str, content: dict[str, Any] | None = None) -> Any:
        return self._github.requester.requestJsonAndCheck(verb, self._path + path, input=content)[1]

    def _is_mine(self, comment: Comment) -> bool:
        """An app's login ends in ``[bot]``, which no person's can; GraphQL may leave that out."""
        mine = f"{self.login.removesuffix('[bot]')}[bot]" if self._is_app else self.login
        return comment.author == mine


def _retry(pace: Pace) -> Any:
    from github import GithubRetry

    class Bounded(GithubRetry):
        """Repeats what can be repeated, and waits no longer than told, whatever a header asks for."""

        def get_retry_after(self, response: Any) -> float | None:
            asked = super().get_retry_after(response)
            return None if asked is None else min(asked, pace.longest_wait)

    return Bounded(
        total=3,
        backoff_factor=pace.backoff,
        status_forcelist=[429, 500, 502, 503, 504],
        raise_on_status=False,
        allowed_methods={"GET", "HEAD", "PATCH", "PUT", "DELETE"},
        secondary_rate_wait=min(60.0, pace.longest_wait),
        max_rate_limit_wait=pace.longest_wait,
    )


@contextmanager
def _one_failure(what: str) -> Iterator[None]:
    """Whatever went wrong becomes a PostingError that names what was asked for.

    OSError holds the errors of `requests` and of sockets; PyGithub states by AssertionError that an address
    in an answer is not the API's; the others mean an answer that is not what GitHub describes.
    """
    from github import GithubException

    try:
        yield
    except PostingError:
        raise
    except GithubException as error:
        raise PostingError(f"{what}: {_said(error.status, error.data)}", error.status) from None
    except (OSError, HTTPException) as error:
        raise PostingError(f"{what}: GitHub does not answer ({type(error).__name__})") from None
    except (AssertionError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise PostingError(
            f"{what}: an answer that is not GitHub's ({type(error).__name__}: {error})"
        ) from None


def _said(status: int, data: Any) -> str:
    message = data.get("message") if isinstance(data, dict) else None
    hint = "; this token may only read" if status == 403 and "not accessible" in str(message) else ""
    return f"HTTP {status} {str(message or '')[:200]}{hint}"


def _pull(data: dict[str, Any]) -> Pull:
    repository = data["head"]["repo"]
    return Pull(
        number=int(data["number"]),
        is_open=data["state"] == "open",
        head_sha=str(data["head"]["sha"]),
        head_repository_id=int(repository["id"]) if repository else None,
        base_repository=str(data["base"]["repo"]["full_name"]),
        base_ref=str(data["base"]["ref"]),
        base_sha=str(data["base"]["sha"]),
        merge_sha=data.get("merge_commit_sha"),
    )


def _comment(data: dict[str, Any]) -> Comment:
    """User and body are null where the account is gone."""
    user = data.get("user") or {}
    return Comment(
        id=int(data["id"]),
        body=data.get("body") or "",
        author=user.get("login"),
        url=str(data["html_url"]),
        node=str(data.get("node_id") or ""),
    )
