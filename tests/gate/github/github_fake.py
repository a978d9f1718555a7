"""A stateful fake of GitHub's API on this machine, as strict as GitHub about what it takes.

Every request and response is held against GitHub's own description (`github_contract`). What that leaves
out is here: sizes, permissions, pages, rate limits, outages that stored the comment all the same. Whatever
breaks the contract is in `faults`, and the fixture looks that it is empty.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import github_contract as contract

OWNER, NAME = "octocat", "Hello-World"
REPOSITORY = f"{OWNER}/{NAME}"
REPOSITORY_ID = 1296269
BOT = "github-actions[bot]"
HEAD, BASE, MERGE = "a" * 40, "b" * 40, "c" * 40


@dataclass
class Trouble:
    """The next ``times`` requests that match do not get their answer."""

    method: str
    path: str
    status: int = 0
    """0 closes the connection without a word."""
    message: str = "Server Error"
    headers: dict[str, str] = field(default_factory=dict)
    stored: bool = False
    """The request was carried out before the answer was lost."""
    times: int = 1


@dataclass
class Hook:
    """What somebody else does just before the first request that matches is handled."""

    method: str
    path: str
    act: Callable[[], None]


@dataclass(frozen=True)
class Answer:
    status: int
    content: Any = None
    headers: dict[str, str] = field(default_factory=dict)


class FakeGitHub:
    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.login = BOT
        self.may: set[str] = {"comment", "status"}
        self.pulls: dict[int, dict[str, Any]] = {}
        self.files: dict[int, list[str]] = {}
        self.comments: list[dict[str, Any]] = []
        self.hidden: set[int] = set()
        """Ids of comments that somebody has minimised."""
        self.statuses: list[tuple[str, dict[str, Any]]] = []
        self.parents: dict[str, list[str]] = {MERGE: [BASE, HEAD]}
        self.artifacts: dict[int, list[tuple[str, bytes]]] = {}
        self.troubles: list[Trouble] = []
        self.hooks: list[Hook] = []
        self.requests: list[tuple[str, str]] = []
        self.faults: list[str] = []
        self._ids = iter(range(1000, 10**6))
        self._lock = threading.RLock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> FakeGitHub:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def url(self) -> str:
        return self.root + self.prefix

    # What a test sets up.

    def add_pull(
        self,
        number: int = 1,
        *,
        head: str = HEAD,
        fork: bool = False,
        branch: str = "topic",
        base: str = "main",
        merge: str | None = MERGE,
        base_sha: str = BASE,
    ) -> dict[str, Any]:
        pull = contract.example("pull-request")
        owner = "contributor" if fork else OWNER
        pull.update(number=number, state="open", merge_commit_sha=merge, requested_teams=[])
        pull["url"] = f"{self.url}/repos/{REPOSITORY}/pulls/{number}"
        pull["issue_url"] = f"{self.url}/repos/{REPOSITORY}/issues/{number}"
        pull["base"].update(ref=base, sha=base_sha)
        pull["base"]["repo"].update(full_name=REPOSITORY, id=REPOSITORY_ID)
        pull["head"].update(ref=branch, sha=head, label=f"{owner}:{branch}")
        pull["head"]["repo"].update(
            full_name=f"{owner}/{NAME}", id=REPOSITORY_ID + 1 if fork else REPOSITORY_ID, fork=fork
        )
        self.pulls[number] = pull
        return pull

    def add_comment(self, body: str | None, *, login: str | None = BOT, number: int = 1) -> dict[str, Any]:
        comment = contract.example("issue-comment")
        comment_id = next(self._ids)
        comment.update(
            id=comment_id,
            node_id=f"IC_{comment_id}",
            body=body,
            url=f"{self.url}/repos/{REPOSITORY}/issues/comments/{comment_id}",
            html_url=f"https://github.com/{REPOSITORY}/pull/{number}#issuecomment-{comment_id}",
            issue_url=f"{self.url}/repos/{REPOSITORY}/issues/{number}",
        )
        if login is None:
            comment["user"] = None
        else:
            comment["user"].update(login=login, type="Bot" if login.endswith("[bot]") else "User")
        self.comments.append(comment)
        return comment

    def trouble(self, method: str, path: str, status: int = 0, **more: Any) -> None:
        self.troubles.append(Trouble(method, path, status, **more))

    def before(self, method: str, path: str, act: Callable[[], None]) -> None:
        self.hooks.append(Hook(method, path, act))

    # What a test looks at.

    @property
    def bodies(self) -> list[str]:
        return [comment["body"] for comment in self.comments]

    @property
    def states(self) -> list[str]:
        return [status["state"] for _, status in self.statuses]

    def count(self, method: str, path: str = "") -> int:
        return sum(m == method and re.search(path, p) is not None for m, p in self.requests)

    # What the server does.

    def answer(self, method: str, target: str, body: bytes) -> Answer | bytes | None:
        """None: no answer at all. Bytes: a file."""
        parts = urlsplit(target)
        path, query = parts.path, dict(parse_qsl(parts.query))
        with self._lock:
            if path.startswith("/blob/"):
                run, index = path.split("/")[2:]
                return self.artifacts[int(run)][int(index)][1]
            if path.endswith("/graphql"):
                trouble = self._trouble(method, path)
                if trouble is not None:
                    return self._lost(trouble)
                return Answer(200, self._graphql(json.loads(body)))
            if not path.startswith(self.prefix + "/"):
                self.faults.append(f"{method} {path}: outside {self.prefix}")
                return Answer(404, {"message": "Not Found"})
            path = path.removeprefix(self.prefix)
            self.requests.append((method, path))
            self._act_before(method, path)
            return self._checked(method, path, query, body)

    def _act_before(self, method: str, path: str) -> None:
        for hook in list(self.hooks):
            if hook.method == method and re.search(hook.path, path):
                self.hooks.remove(hook)
                hook.act()

    def _checked(self, method: str, path: str, query: dict[str, str], body: bytes) -> Answer | None:
        self._note(contract.request_fault(method, path, query, body))
        trouble = self._trouble(method, path)
        if trouble is not None and not trouble.stored:
            return self._lost(trouble)
        given = self._route(method, path, query, json.loads(body) if body else {})
        text = b"" if given.content is None else json.dumps(given.content).encode()
        self._note(contract.response_fault(method, path, body, given.status, text, given.headers))
        return given if trouble is None else self._lost(trouble)

    def _note(self, fault: str | None) -> None:
        if fault:
            self.faults.append(fault)

    def _trouble(self, method: str, path: str) -> Trouble | None:
        for trouble in self.troubles:
            if trouble.times and trouble.method == method and re.search(trouble.path, path):
                trouble.times -= 1
                return trouble
        return None

    def _lost(self, trouble: Trouble) -> Answer | None:
        return (
            Answer(trouble.status, {"message": trouble.message}, trouble.headers) if trouble.status else None
        )

    def _route(self, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> Answer:
        for verb, pattern, act in _ROUTES:
            found = re.fullmatch(pattern.replace("{repo}", f"/repos/{REPOSITORY}"), path)
            if verb == method and found:
                return act(self, found.groups(), query, body)
        return Answer(404, {"message": "Not Found"})

    def _graphql(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Two questions are answered; as GitHub does, any other with 200 and ``errors``."""
        if asked["query"] == "query { viewer { login } }":
            return {"data": {"viewer": {"login": self.login}}}
        if (
            asked["query"]
            != "query($ids: [ID!]!) { nodes(ids: $ids) { ... on IssueComment { isMinimized } } }"
        ):
            return {"errors": [{"message": "not a question of this fake"}]}
        here = {comment["node_id"]: comment["id"] for comment in self.comments}
        nodes = [
            {"isMinimized": here[node] in self.hidden} if node in here else None
            for node in asked["variables"]["ids"]
        ]
        return {"data": {"nodes": nodes}}

    def _page(self, items: list[Any], query: dict[str, str], path: str) -> Answer:
        size, page = min(int(query.get("per_page", 30)), 100), int(query.get("page", 1))
        headers = {}
        if page * size < len(items):
            headers["Link"] = f'<{self.url}{path}?per_page={size}&page={page + 1}>; rel="next"'
        return Answer(200, items[(page - 1) * size : page * size], headers)

    def _get_pull(self, at: tuple[str, ...], query: dict[str, str], _: Any) -> Answer:
        pull = self.pulls.get(int(at[0]))
        return Answer(200, pull) if pull else Answer(404, {"message": "Not Found"})

    def _list_pulls(self, _: Any, query: dict[str, str], __: Any) -> Answer:
        found = []
        for pull in self.pulls.values():
            head, state = query.get("head"), query.get("state", "open")
            if state in ("all", pull["state"]) and head in (None, pull["head"]["label"]):
                simple = contract.example("pull-request-simple-items")
                found.append(simple | {key: pull[key] for key in simple if key in pull})
        return self._page(found, query, f"/repos/{REPOSITORY}/pulls")

    def _list_files(self, at: tuple[str, ...], query: dict[str, str], _: Any) -> Answer:
        entries = [
            contract.example("diff-entry-items") | {"filename": name}
            for name in self.files.get(int(at[0]), [])
        ]
        return self._page(entries, query, f"/repos/{REPOSITORY}/pulls/{at[0]}/files")

    def _list_comments(self, at: tuple[str, ...], query: dict[str, str], _: Any) -> Answer:
        issue = f"/issues/{at[0]}"
        here = [comment for comment in self.comments if comment["issue_url"].endswith(issue)]
        return self._page(here, query, f"/repos/{REPOSITORY}/issues/{at[0]}/comments")

    def _create_comment(self, at: tuple[str, ...], _: Any, body: dict[str, Any]) -> Answer:
        return self._written(body) or Answer(
            201, self.add_comment(body["body"], login=self.login, number=int(at[0]))
        )

    def _edit_comment(self, at: tuple[str, ...], _: Any, body: dict[str, Any]) -> Answer:
        comment = self._comment(at[0])
        if comment is None:
            return Answer(404, {"message": "Not Found"})
        refused = self._written(body)
        if refused:
            return refused
        comment["body"] = body["body"]
        return Answer(200, comment)

    def _delete_comment(self, at: tuple[str, ...], *_: Any) -> Answer:
        comment = self._comment(at[0])
        if comment is None:
            return Answer(404, {"message": "Not Found"})
        if "comment" not in self.may:
            return _forbidden()
        self.comments.remove(comment)
        return Answer(204)

    def _comment(self, comment_id: str) -> dict[str, Any] | None:
        return next((comment for comment in self.comments if comment["id"] == int(comment_id)), None)

    def _written(self, body: dict[str, Any]) -> Answer | None:
        if "comment" not in self.may:
            return _forbidden()
        return (
            _unprocessable("Body is too long (maximum is 65536 characters)")
            if (len(body["body"]) > 65_536 or len(body["body"].encode()) > 4 * 65_536)
            else None
        )

    def _create_status(self, at: tuple[str, ...], _: Any, body: dict[str, Any]) -> Answer:
        if "status" not in self.may:
            return _forbidden()
        said = body.get("description", "")
        if len(said) > 140 or any(ord(character) > 0xFFFF for character in said):
            return _unprocessable("Validation Failed: description")
        status = contract.example("status") | {
            key: body.get(key) for key in ("state", "description", "target_url", "context")
        }
        status["id"] = next(self._ids)
        self.statuses.append((at[0], status))
        return Answer(201, status)

    def _list_statuses(self, at: tuple[str, ...], query: dict[str, str], _: Any) -> Answer:
        here = [status for sha, status in reversed(self.statuses) if sha == at[0]]
        return self._page(here, query, f"/repos/{REPOSITORY}/commits/{at[0]}/statuses")

    def _get_commit(self, at: tuple[str, ...], *_: Any) -> Answer:
        if at[0] not in self.parents:
            return _unprocessable(f"No commit found for SHA: {at[0]}")
        commit = contract.example("commit") | {"sha": at[0], "files": []}
        parent = commit["parents"][0]
        commit["parents"] = [parent | {"sha": sha} for sha in self.parents[at[0]]]
        commit["url"] = f"{self.url}/repos/{REPOSITORY}/commits/{at[0]}"
        return Answer(200, commit)

    def _list_artifacts(self, at: tuple[str, ...], query: dict[str, str], _: Any) -> Answer:
        page = contract.example("artifact-paginated")
        first = page["artifacts"][0]
        found = [
            first | {"id": int(at[0]) * 100 + index, "name": name, "size_in_bytes": len(content)}
            for index, (name, content) in enumerate(self.artifacts.get(int(at[0]), []))
            if query.get("name") in (None, name)
        ]
        return Answer(200, {"total_count": len(found), "artifacts": found})

    def _get_artifact(self, at: tuple[str, ...], *_: Any) -> Answer:
        run, index = divmod(int(at[0]), 100)
        return Answer(302, None, {"Location": f"{self.root}/blob/{run}/{index}"})


_ROUTES: list[tuple[str, str, Callable[..., Answer]]] = [
    ("GET", r"{repo}/pulls", FakeGitHub._list_pulls),
    ("GET", r"{repo}/pulls/(\d+)", FakeGitHub._get_pull),
    ("GET", r"{repo}/pulls/(\d+)/files", FakeGitHub._list_files),
    ("GET", r"{repo}/issues/(\d+)/comments", FakeGitHub._list_comments),
    ("POST", r"{repo}/issues/(\d+)/comments", FakeGitHub._create_comment),
    ("PATCH", r"{repo}/issues/comments/(\d+)", FakeGitHub._edit_comment),
    ("DELETE", r"{repo}/issues/comments/(\d+)", FakeGitHub._delete_comment),
    ("POST", r"{repo}/statuses/(\w+)", FakeGitHub._create_status),
    ("GET", r"{repo}/commits/(\w+)", FakeGitHub._get_commit),
    ("GET", r"{repo}/commits/(\w+)/statuses", FakeGitHub._list_statuses),
    ("GET", r"{repo}/actions/runs/(\d+)/artifacts", FakeGitHub._list_artifacts),
    ("GET", r"{repo}/actions/artifacts/(\d+)/zip", FakeGitHub._get_artifact),
]


def _forbidden() -> Answer:
    return Answer(403, {"message": "Resource not accessible by integration"})


def _unprocessable(message: str) -> Answer:
    return Answer(422, {"message": message, "documentation_url": "https://docs.github.com/rest"})


def _handler(github: FakeGitHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            given = github.answer(self.command, self.path, body)
            if given is None:
                self.close_connection = True
                return
            if isinstance(given, bytes):
                self._send(200, given, {"Content-Type": "application/zip"})
                return
            text = b"" if given.content is None else json.dumps(given.content).encode()
            self._send(given.status, text, {"Content-Type": "application/json", **given.headers})

        def _send(self, status: int, text: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PATCH = do_DELETE = _handle  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    return Handler
