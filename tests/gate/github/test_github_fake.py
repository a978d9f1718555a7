"""Is the fake as strict as GitHub? What it lets through, no test of `servegate post` would notice."""

import json
import urllib.error
import urllib.request
from typing import Any

import github_events as events
import pytest
from github_fake import HEAD, REPOSITORY, FakeGitHub

COMMENTS = f"/repos/{REPOSITORY}/issues/1/comments"


def ask(github: FakeGitHub, method: str, path: str, body: Any = None) -> tuple[int, Any, dict[str, str]]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        github.url + path, data, {"Content-Type": "application/json"}, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None, dict(answer.headers)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read()), dict(error.headers)


def test_comments_are_kept_edited_and_deleted(github: FakeGitHub) -> None:
    status, made, _ = ask(github, "POST", COMMENTS, {"body": "one"})
    assert (status, github.bodies) == (201, ["one"])
    where = f"/repos/{REPOSITORY}/issues/comments/{made['id']}"
    assert ask(github, "PATCH", where, {"body": "two"})[1]["body"] == "two"
    assert ask(github, "DELETE", where)[0] == 204
    assert ask(github, "PATCH", where, {"body": "three"})[0] == 404


def test_lists_come_in_pages_of_thirty_with_a_link(github: FakeGitHub) -> None:
    for index in range(31):
        github.add_comment(str(index))
    _, first, headers = ask(github, "GET", COMMENTS)
    assert len(first) == 30
    assert 'rel="next"' in headers["Link"]
    _, second, headers = ask(github, "GET", f"{COMMENTS}?page=2")
    assert len(second) == 1
    assert "Link" not in headers
    assert len(ask(github, "GET", f"{COMMENTS}?per_page=100")[1]) == 31


def test_what_the_description_lacks_is_refused_too(github: FakeGitHub) -> None:
    assert ask(github, "POST", COMMENTS, {"body": "x" * 65_537})[0] == 422
    where = f"/repos/{REPOSITORY}/statuses/{HEAD}"
    for said in ("x" * 141, "🚀"):
        assert ask(github, "POST", where, {"state": "success", "description": said, "context": "c"})[0] == 422
    github.may.clear()
    assert ask(github, "POST", COMMENTS, {"body": "x"})[0] == 403


@pytest.mark.parametrize("body", [{}, {"body": 3}])
def test_what_the_description_forbids_is_a_fault(body: dict[str, Any]) -> None:
    with FakeGitHub() as github:
        github.may.clear()
        ask(github, "POST", COMMENTS, body)
        assert len(github.faults) == 1


def test_an_answer_can_be_lost_after_the_deed(github: FakeGitHub) -> None:
    github.trouble("POST", "comments", 502, stored=True)
    assert ask(github, "POST", COMMENTS, {"body": "x"})[0] == 502
    assert github.bodies == ["x"]


def test_an_enterprise_server_answers_below_its_prefix() -> None:
    with FakeGitHub(prefix="/api/v3") as github:
        github.add_pull()
        assert ask(github, "GET", f"/repos/{REPOSITORY}/pulls/1")[0] == 200
        assert not github.faults


def test_every_event_is_one_that_github_could_send() -> None:
    given = [
        events.pull_request(),
        events.pull_request(fork=True),
        events.pull_request(fork=True, deleted=True),
        events.dependabot(),
        events.workflow_run(),
        events.workflow_run(fork=False, attempt=3, pulls=(1,)),
        events.merge_group(),
        events.push(),
        events.push(deleted=True),
        events.push(ref="refs/tags/v1"),
        events.dispatch(),
    ]
    assert len(given) == 11
    with pytest.raises(AssertionError):
        events.valid("pull_request", {"action": "opened"})
