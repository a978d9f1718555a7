"""`servegate post` from the artifact to the comment, against the fake."""

from collections.abc import Callable

import github_events as events
import pytest
from github_fake import BASE, HEAD, FakeGitHub
from post_runs import MARK, Job, record

Post = Callable[..., int]


def test_a_pass_is_said_in_comment_status_summary_and_outputs(
    job: Job, post: Post, github: FakeGitHub
) -> None:
    job.measured(record())
    assert post() == 0
    assert len(github.bodies) == 1
    assert github.bodies[0].startswith(MARK)
    assert "### ✅ PASS" in github.bodies[0]
    assert HEAD[:12] in github.bodies[0]
    assert "/actions/runs/77/attempts/1" in github.bodies[0]
    assert github.states == ["pending", "success"]
    assert {sha for sha, _ in github.statuses} == {HEAD}
    assert "### ✅ PASS" in job.summary
    assert job.outputs["outcome"] == "pass"


def test_a_regression_exits_with_one_and_fails_the_status(
    job: Job, post: Post, github: FakeGitHub, capfd: pytest.CaptureFixture[str]
) -> None:
    job.measured(record(tokens=6))
    assert post() == 1
    assert "FAIL: completion tokens doubled" in github.bodies[0]
    assert "servegate baseline update servegate.yaml" in github.bodies[0]
    assert github.states == ["pending", "failure"]
    assert github.statuses[-1][1]["context"] == "servegate/default"
    log = capfd.readouterr().out
    assert "accept, if it is meant: servegate baseline update servegate.yaml\n" in log
    assert "::error title=servegate::FAIL" in log


def test_the_artifact_may_lie_on_disk(job: Job, post: Post, github: FakeGitHub) -> None:
    from servegate.files import write_record

    write_record(job.folder / "out" / "record.json", record())
    assert post("--artifact", str(job.folder / "out")) == 0
    assert post("--artifact", str(job.folder / "out" / "record.json")) == 0
    assert len(github.bodies) == 1


def test_begin_sets_pending_and_names_the_base_to_check_out(job: Job, post: Post, github: FakeGitHub) -> None:
    assert post("--begin") == 0
    assert github.states == ["pending"]
    assert job.outputs == {"base-sha": BASE}


def test_a_fork_is_posted_to_from_the_second_workflow(job: Job, post: Post, github: FakeGitHub) -> None:
    github.add_pull(1, fork=True)
    job.event("workflow_run", events.workflow_run(run=42, attempt=2))
    job.measured(record(), run=42)
    assert post() == 0
    assert "/actions/runs/42/attempts/2" in github.bodies[0]
    assert github.states == ["pending", "success"]


@pytest.mark.parametrize("lie", ["other head", "other repository", "other branch", "closed", "deleted fork"])
def test_only_the_pull_request_of_that_very_run_is_written_to(
    job: Job, post: Post, github: FakeGitHub, lie: str
) -> None:
    pull = github.add_pull(1, fork=True)
    if lie == "other head":
        pull["head"]["sha"] = "d" * 40
    elif lie == "other repository":
        pull["head"]["repo"]["id"] = 5
    elif lie == "other branch":
        pull["head"]["label"] = "contributor:elsewhere"
    elif lie == "closed":
        pull["state"] = "closed"
    else:
        pull["head"]["repo"] = None
    job.event("workflow_run", events.workflow_run(pulls=(1,)))
    job.measured(record(tokens=6))
    assert post() == 0, "nobody waits for this verdict"
    assert github.bodies == github.states == []
    if lie == "deleted fork":
        github.faults.clear()  # GitHub's description of the list forgets that it answers null then


def test_two_pull_requests_with_one_head_are_not_guessed_between(
    job: Job, post: Post, github: FakeGitHub, capfd: pytest.CaptureFixture[str]
) -> None:
    github.add_pull(1, fork=True)
    github.add_pull(2, fork=True, base="release/1.x")
    job.event("workflow_run", events.workflow_run())
    job.measured(record())
    assert post() == 0
    assert github.bodies == github.states == []
    assert "ambiguous: #1, #2" in capfd.readouterr().err


def test_a_merge_group_gets_a_status_and_no_comment(job: Job, post: Post, github: FakeGitHub) -> None:
    job.event("merge_group", events.merge_group())
    job.measured(record())
    assert post() == 0
    assert github.bodies == []
    assert github.states == ["pending", "success"]


@pytest.mark.parametrize("name", ["workflow_dispatch", "schedule"])
def test_other_events_get_a_summary_only(job: Job, post: Post, github: FakeGitHub, name: str) -> None:
    job.event(name, events.dispatch() if name == "workflow_dispatch" else {"schedule": "0 3 * * *"})
    job.measured(record())
    assert post() == 0
    assert github.bodies == github.states == []
    assert "PASS" in job.summary


def test_pull_request_target_is_refused(job: Job, post: Post, capfd: pytest.CaptureFixture[str]) -> None:
    job.event("pull_request_target", events.pull_request())
    assert post() == 2
    assert "does not run under pull_request_target" in capfd.readouterr().err


def test_without_a_token_everything_that_needs_none_still_happens(
    job: Job, post: Post, github: FakeGitHub, tmp_path: object
) -> None:
    from servegate.files import write_record

    del job.environment["GITHUB_TOKEN"]
    write_record(job.folder / "record.json", record(tokens=6))
    assert post("--artifact", str(job.folder / "record.json")) == 1
    assert "FAIL" in job.summary
    assert github.requests == []


def test_the_pull_requests_own_tree_may_not_judge_it(
    job: Job, post: Post, github: FakeGitHub, capfd: pytest.CaptureFixture[str]
) -> None:
    own = job.commit_base()
    github.pulls[1]["head"]["sha"] = own
    job.event("pull_request", events.pull_request(head=own))
    job.measured(record())
    assert post() == 2
    assert "the pull request's own, which may not judge itself" in capfd.readouterr().err
    assert github.states == ["pending", "error"]


def test_changed_baselines_are_told_and_do_not_judge(job: Job, post: Post, github: FakeGitHub) -> None:
    base = job.commit_base()
    github.files[1] = ["baselines/support/behaviour.json", "src/engine.py", "servegate.yaml"]
    job.measured(record(tokens=6))
    assert post() == 1
    assert "**This pull request changes what it is judged by**" in github.bodies[0]
    assert "`baselines/support/behaviour.json`" in github.bodies[0]
    assert "src/engine.py" not in github.bodies[0]
    assert f"against base `{base[:12]}`" in github.bodies[0]


def test_a_base_without_the_suite_says_so(job: Job, post: Post, github: FakeGitHub) -> None:
    (job.base / "servegate.yaml").unlink()
    job.measured(record())
    assert post() == 3
    assert "NO COMPARABLE DATA: the base has no suite servegate.yaml yet" in github.bodies[0]
    assert github.states == ["pending", "failure"]


def test_gates_do_not_meet(job: Job, post: Post, github: FakeGitHub) -> None:
    job.measured(record())
    assert post("--id", "cpu") == 0
    assert post("--id", "gpu--h200") == 0
    assert post("--id", "cpu") == 0
    assert len(github.bodies) == 2
    assert {status["context"] for _, status in github.statuses} == {"servegate/cpu", "servegate/gpu--h200"}


def test_an_id_is_checked(post: Post, capfd: pytest.CaptureFixture[str]) -> None:
    assert post("--id", "a --> b") == 2
    assert "lower-case letters" in capfd.readouterr().err


def test_an_enterprise_server_is_asked_at_its_own_address(job: Job, post: Post) -> None:
    with FakeGitHub(prefix="/api/v3") as enterprise:
        enterprise.add_pull()
        job.environment["GITHUB_API_URL"] = enterprise.url
        job.environment["GITHUB_SERVER_URL"] = "https://ghe.example"
        enterprise.artifacts = {77: []}
        job.github = enterprise
        job.measured(record())
        assert post() == 0
        assert "https://ghe.example/octocat/Hello-World/actions/runs/77" in enterprise.bodies[0]
        assert enterprise.faults == []
