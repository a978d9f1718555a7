"""The sticky comment that somebody has hidden: GitHub says minimised, and folds it away."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from github_fake import FakeGitHub
from post_runs import MARK, Job, record

Post = Callable[..., int]
OLD = f"{MARK} sha={'9' * 40} run=1/1 state={'0' * 16} -->\nold"


def test_a_hidden_comment_makes_way_for_one_that_is_seen(job: Job, post: Post, github: FakeGitHub) -> None:
    """Edited where it is, the new verdict would stay folded away as outdated."""
    github.hidden = {github.add_comment(OLD)["id"]}
    job.measured(record())
    post()
    post()
    assert len(github.bodies) == 1
    assert "### ✅ PASS" in github.bodies[0]
    assert not github.hidden & {comment["id"] for comment in github.comments}
    assert (github.count("POST", "/comments"), github.count("PATCH")) == (1, 1)


def test_of_a_hidden_and_a_seen_comment_the_seen_one_stays(job: Job, post: Post, github: FakeGitHub) -> None:
    github.hidden = {github.add_comment(OLD)["id"]}
    seen = github.add_comment(OLD)["id"]
    job.measured(record())
    post()
    assert [comment["id"] for comment in github.comments] == [seen]
    assert "### ✅ PASS" in github.bodies[0]


def test_a_hidden_comment_outlives_a_new_one_that_is_refused(
    job: Job, post: Post, github: FakeGitHub
) -> None:
    github.hidden = {github.add_comment(OLD)["id"]}
    github.trouble("POST", "/issues/1/comments", 422)
    job.measured(record())
    assert post() == 0
    assert github.bodies == [OLD]


def test_on_change_lets_a_hidden_comment_rest_until_something_turned(
    job: Job, post: Post, github: FakeGitHub
) -> None:
    job.measured(record())
    post("--comment", "on-change")
    github.hidden = {github.comments[0]["id"]}
    post("--comment", "on-change")
    assert [comment["id"] for comment in github.comments] == list(github.hidden)
    job.measured(record(tokens=6))
    assert post("--comment", "on-change") == 1
    assert len(github.bodies) == 1
    assert "FAIL" in github.bodies[0]
    assert github.comments[0]["id"] not in github.hidden


@pytest.mark.parametrize("status", [403, 404, 502])
def test_where_graphql_is_refused_a_hidden_comment_is_edited(
    job: Job, post: Post, github: FakeGitHub, status: int
) -> None:
    """An older Enterprise server, or a token that may not ask."""
    github.hidden = {github.add_comment(OLD)["id"]}
    github.trouble("POST", "/graphql", status, times=9)
    job.measured(record())
    assert post() == 0
    assert [comment["id"] for comment in github.comments] == list(github.hidden)
    assert "### ✅ PASS" in github.bodies[0]
