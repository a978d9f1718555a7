"""The sticky comment under races, old runs, outages and refusals."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import github_events as events
import pytest
from github_fake import HEAD, FakeGitHub
from post_runs import MARK, Job, record
from urllib3 import HTTPResponse

from servegate.github import client
from servegate.github.client import GitHub
from servegate.github.comment import Mode, Sticky
from servegate.github.event import Run
from servegate.github.marker import Marker, find

Post = Callable[..., int]
OLD = f"{MARK} sha={'9' * 40} run=1/1 state={'0' * 16} -->\nold"


def marked(run: int, attempt: int = 1, sha: str = HEAD) -> str:
    return f"{MARK} sha={sha} run={run}/{attempt} state={'0' * 16} -->\n### said by run {run}"


def test_five_pushes_leave_one_comment(job: Job, post: Post, github: FakeGitHub) -> None:
    """1Password/check-signed-commits-action#8: comment spam."""
    job.measured(record())
    for _ in range(5):
        post()
    assert len(github.bodies) == 1


def test_the_comment_is_found_on_the_second_page(job: Job, post: Post, github: FakeGitHub) -> None:
    for index in range(150):
        github.add_comment(f"talk {index}", login="octocat")
    github.add_comment(OLD)
    job.measured(record())
    post()
    assert len(github.bodies) == 151
    assert "### ✅ PASS" in github.bodies[-1]


def test_somebody_elses_comment_with_our_marker_is_left_alone(
    job: Job, post: Post, github: FakeGitHub
) -> None:
    """Whoever posts the marker first would otherwise own, and could edit, what the gate says."""
    github.add_comment(OLD, login="mallory")
    github.add_comment(OLD, login="github-actions")
    github.add_comment(OLD, login=None)
    job.measured(record())
    post()
    assert github.bodies[:3] == [OLD, OLD, OLD]
    assert len(github.bodies) == 4


def test_a_quoted_marker_is_nobodys(job: Job, post: Post, github: FakeGitHub) -> None:
    github.add_comment(f"> quoted\n{OLD}")
    job.measured(record())
    post()
    assert len(github.bodies) == 2


def test_duplicates_of_an_earlier_race_are_removed(job: Job, post: Post, github: FakeGitHub) -> None:
    for _ in range(3):
        github.add_comment(OLD)
    job.measured(record())
    post()
    assert len(github.bodies) == 1
    assert "PASS" in github.bodies[0]


def test_kamp_us_phoenix_273_two_runs_that_both_create_leave_one(github: FakeGitHub) -> None:
    """Both saw none: the hooks let each create before the other looks again."""
    github.add_pull()
    writers = [GitHub(github.url, "octocat/Hello-World", "t", client.Pace(0, 0, 0, 0)) for _ in range(2)]
    both_listed = threading.Barrier(2, timeout=20)

    def write(index: int) -> None:
        def is_current() -> bool:
            both_listed.wait()
            return True

        marker = Marker("default", HEAD, Run(70 + index, 1), "0" * 16)
        sticky = Sticky(writers[index], 1, marker, is_current)
        sticky.publish(f"{marker}\nfrom {70 + index}", Mode.UPDATE, failing=False)

    threads = [threading.Thread(target=write, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for writer in writers:
        writer.close()
    assert len(github.bodies) == 1
    assert "from 71" in github.bodies[0], "the later run's words stay"


def test_pr_reviewer_action_451_a_superseded_head_is_not_commented(
    job: Job, post: Post, github: FakeGitHub, capfd: pytest.CaptureFixture[str]
) -> None:
    github.pulls[1]["head"]["sha"] = "d" * 40
    job.measured(record())
    assert post() == 0
    assert github.bodies == []
    assert "superseded: pull request 1 is at dddddddddddd by now" in capfd.readouterr().err


def test_the_head_is_asked_again_right_before_writing(
    job: Job, post: Post, github: FakeGitHub, capfd: pytest.CaptureFixture[str]
) -> None:
    def push() -> None:
        github.pulls[1]["head"]["sha"] = "d" * 40

    github.before("GET", r"/issues/1/comments", push)
    job.measured(record())
    assert post() == 0
    assert github.bodies == []
    assert "a newer commit or a later run has spoken already" in capfd.readouterr().err


@pytest.mark.parametrize("newer", [marked(78), marked(77, 2)])
def test_a_later_run_of_the_same_commit_is_not_overwritten(
    job: Job, post: Post, github: FakeGitHub, newer: str
) -> None:
    github.add_comment(newer)
    job.measured(record())
    post()
    assert github.bodies == [newer]


def test_an_old_run_leaves_the_status_of_a_later_one(job: Job, post: Post, github: FakeGitHub) -> None:
    job.environment["GITHUB_RUN_ID"] = "90"
    job.measured(record(), run=90)
    post()
    job.environment["GITHUB_RUN_ID"] = "77"
    job.measured(record(tokens=6))
    assert post() == 1, "its own verdict stands"
    assert github.states == ["pending", "success"]
    assert "PASS" in github.bodies[0]


def test_a_rerun_overwrites_its_first_attempt(job: Job, post: Post, github: FakeGitHub) -> None:
    job.measured(record(tokens=6))
    post()
    job.environment["GITHUB_RUN_ATTEMPT"] = "2"
    job.measured(record())
    post()
    assert "PASS" in github.bodies[0], "of two artifacts of one name, the newest counts"
    assert github.states == ["pending", "failure", "pending", "success"]


def test_recreate_writes_anew_and_removes_the_old(job: Job, post: Post, github: FakeGitHub) -> None:
    first = github.add_comment(OLD)["id"]
    job.measured(record())
    post("--comment", "recreate")
    assert len(github.bodies) == 1
    assert github.comments[0]["id"] != first


def test_on_change_leaves_a_result_that_did_not_turn(job: Job, post: Post, github: FakeGitHub) -> None:
    job.measured(record())
    post("--comment", "on-change")
    job.environment["GITHUB_RUN_ID"] = "78"
    job.measured(record(), run=78)
    post("--comment", "on-change")
    assert "run=77/1" in github.bodies[0]
    job.environment["GITHUB_RUN_ID"] = "79"
    job.measured(record(tokens=6), run=79)
    post("--comment", "on-change")
    assert "run=79/1" in github.bodies[0]
    assert len(github.bodies) == 1


def test_on_failure_is_silent_until_red_and_then_turns_green_again(
    job: Job, post: Post, github: FakeGitHub
) -> None:
    for run, tokens, says in ((77, 3, None), (78, 6, "FAIL"), (79, 3, "PASS")):
        job.environment["GITHUB_RUN_ID"] = str(run)
        job.measured(record(tokens=tokens), run=run)
        post("--comment", "on-failure")
        assert bool(github.bodies) is (says is not None)
        assert says is None or says in github.bodies[0]


def test_off_writes_no_comment_and_the_status_all_the_same(job: Job, post: Post, github: FakeGitHub) -> None:
    job.measured(record())
    post("--comment", "off")
    assert github.bodies == []
    assert github.states == ["pending", "success"]


def test_pygithub_803_a_create_whose_answer_was_lost_is_not_repeated(
    job: Job, post: Post, github: FakeGitHub
) -> None:
    """dxos#13119: the retried POST made two comments."""
    github.trouble("POST", "/comments", 502, stored=True)
    job.measured(record())
    assert post() == 0
    assert len(github.bodies) == 1
    assert github.count("POST", "/comments") == 1


@pytest.mark.parametrize("status", [502, 0])
def test_a_create_that_did_not_happen_is_sent_once_more(
    job: Job, post: Post, github: FakeGitHub, status: int
) -> None:
    github.trouble("POST", "/comments", status)
    job.measured(record())
    assert post() == 0
    assert len(github.bodies) == 1
    assert github.count("POST", "/comments") == 2


def test_a_lasting_outage_of_writes_is_two_posts_and_a_warning(
    job: Job, post: Post, github: FakeGitHub, capfd: pytest.CaptureFixture[str]
) -> None:
    github.trouble("POST", "/comments", 502, times=99)
    job.measured(record(tokens=6))
    assert post() == 1
    assert github.count("POST", "/comments") == 2
    assert "warning: a comment: HTTP 502" in capfd.readouterr().err
    assert "FAIL" in job.summary


def test_enricomi_250_everything_down_and_the_verdict_stands(
    job: Job, post: Post, github: FakeGitHub, capfd: pytest.CaptureFixture[str]
) -> None:
    from servegate.files import write_record

    write_record(job.folder / "record.json", record(tokens=6))
    for method in ("GET", "POST", "PATCH"):
        github.trouble(method, "", 503, times=999)
    assert post("--artifact", str(job.folder / "record.json")) == 1
    assert "### ❌ FAIL" in job.summary
    assert "warning: pull request 1: HTTP 503" in capfd.readouterr().err
    assert len(github.requests) < 30, "bounded"


@pytest.mark.parametrize("event", [events.pull_request(fork=True), events.dependabot()])
def test_marocchino_227_dependabot_core_3563_a_token_that_may_only_read(
    job: Job, post: Post, github: FakeGitHub, capfd: pytest.CaptureFixture[str], event: dict[str, object]
) -> None:
    github.may.clear()
    job.event("pull_request", event)
    job.measured(record(tokens=6))
    assert post() == 1
    said = capfd.readouterr()
    assert "Resource not accessible by integration; this token may only read" in said.err
    assert "::error title=servegate::FAIL" in said.out
    assert "FAIL" in job.summary


def test_a_refused_body_is_a_warning(
    job: Job, post: Post, github: FakeGitHub, capfd: pytest.CaptureFixture[str]
) -> None:
    github.trouble("POST", "/comments", 422, message="Validation Failed")
    job.measured(record())
    assert post() == 0
    assert github.count("POST", "/comments") == 1
    assert "HTTP 422 Validation Failed" in capfd.readouterr().err


def test_pygithub_3080_a_rate_limit_of_fifty_minutes_is_not_waited_for(
    job: Job, post: Post, github: FakeGitHub, capfd: pytest.CaptureFixture[str]
) -> None:
    reset = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(time.time()) + 3000)}
    github.trouble("GET", "/comments", 403, message="API rate limit exceeded for x", headers=reset, times=99)
    job.measured(record())
    assert post() == 0
    assert "API rate limit exceeded" in capfd.readouterr().err


def test_no_wait_is_longer_than_told() -> None:
    answer = HTTPResponse(headers={"Retry-After": "3600"})
    assert client._retry(client.Pace(longest_wait=5)).get_retry_after(answer) == 5


def test_a_retry_after_of_an_hour_is_not_obeyed(job: Job, post: Post, github: FakeGitHub) -> None:
    github.trouble("GET", "/comments", 503, headers={"Retry-After": "3600"})
    job.measured(record())
    assert post() == 0
    assert len(github.bodies) == 1


def test_a_comment_deleted_in_between_is_written_anew(job: Job, post: Post, github: FakeGitHub) -> None:
    github.add_comment(OLD)
    github.before("PATCH", "/comments", github.comments.clear)
    job.measured(record())
    assert post() == 0
    assert len(github.bodies) == 1
    assert "PASS" in github.bodies[0]


def test_a_crash_leaves_no_pending_status(
    job: Job, post: Post, github: FakeGitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("servegate.github.post.verdict_of", crash)
    job.measured(record())
    assert post() == 70
    assert github.states == ["pending", "error"]


def test_a_person_s_token_finds_its_own_comment(job: Job, post: Post, github: FakeGitHub) -> None:
    github.login = "octocat"
    job.environment["GITHUB_TOKEN"] = "ghp_secret"
    job.measured(record())
    post()
    post()
    assert len(github.bodies) == 1


def test_an_app_s_login_comes_without_its_suffix(job: Job, post: Post, github: FakeGitHub) -> None:
    github.login = "my-gate"
    github.add_comment(OLD, login="my-gate")
    github.add_comment(OLD, login="my-gate[bot]")
    job.measured(record())
    post()
    assert github.bodies[0] == OLD, "a person of that name"
    assert "PASS" in github.bodies[1]
    assert len(github.bodies) == 2


def test_a_marker_is_read_as_it_was_written() -> None:
    for gate in ("default", "a--b", "a---b"):
        marker = Marker(gate, HEAD, Run(5, 2), "f" * 16)
        assert find(f"{marker}\nx", gate) == marker
        assert str(marker).count("--") == 2
    assert find(str(Marker("a", HEAD, Run(5, 2), "f" * 16)), "b") is None


def test_an_app_that_cannot_ask_who_it_is_learns_it_by_writing(
    job: Job, post: Post, github: FakeGitHub
) -> None:
    github.login = "my-gate[bot]"
    github.trouble("POST", "/graphql", 403, times=9)
    job.measured(record())
    post()
    post()
    assert len(github.bodies) == 1
