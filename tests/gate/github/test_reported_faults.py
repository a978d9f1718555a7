"""Faults that others reported of gates and comments, each by its thread, each with a small input.

Those about races, outages and tokens are in `test_post_writes`, about text in `test_comment`, about artifacts
in `test_artifact`, about workflows in `test_workflows` and `test_action`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable

import github_events as events
import pytest
from action_steps import ROOT
from github_fake import BASE, HEAD, MERGE, FakeGitHub
from post_runs import Job, record

from servegate.facts import Facts
from servegate.files import read_facts, write_facts

Post = Callable[..., int]


def test_pytest_coverage_comment_66_a_push_gets_no_comment(job: Job, post: Post, github: FakeGitHub) -> None:
    job.event("push", events.push())
    job.measured(record())
    assert post() == 0
    assert github.bodies == []
    assert github.states == ["pending", "success"]


@pytest.mark.parametrize(
    "event", [events.push(ref="refs/tags/v1", after="e" * 40), events.push(deleted=True)]
)
def test_pytest_coverage_comment_195_a_tag_object_is_no_commit(
    job: Job, post: Post, github: FakeGitHub, event: dict[str, object]
) -> None:
    job.event("push", event)
    job.measured(record())
    assert post() == 0
    assert github.statuses == []


def test_bencher_644_a_comment_that_was_shortened_says_so(job: Job, post: Post, github: FakeGitHub) -> None:
    from test_comment import many, told

    assert "Shortened: " in told(many(1500))


@pytest.mark.parametrize("gate", ["default", "gpu"])
def test_bencher_536_checks_action_17_the_status_has_a_name_of_its_own(
    job: Job, post: Post, github: FakeGitHub, gate: str
) -> None:
    job.measured(record())
    post("--id", gate)
    assert {status["context"] for _, status in github.statuses} == {f"servegate/{gate}"}


def test_runner_807_debug_action_5_what_a_model_said_runs_no_command_in_the_log(
    job: Job, post: Post, capfd: pytest.CaptureFixture[str]
) -> None:
    said = "::add-mask::a\n##[error]x\n::error file=a::b\n@dependabot merge"
    job.measured(record(text=said, prompt="::error::p0"))
    assert post() == 0
    told = capfd.readouterr()
    lines = (told.out + told.err).splitlines()
    assert "p0 -> ::error::p0" in told.out
    assert not [line for line in lines if line.lstrip().startswith("::") or "##[" in line]
    assert "add-mask" not in told.out + told.err


def test_quota_axi_108_the_docs_say_what_a_deleted_step_does() -> None:
    text = " ".join((ROOT / "docs/github.md").read_text().split())
    assert "A pull request that deletes the gate's step gets no status, and so stays blocked" in text


def test_metamask_45450_lattice_1204_remnic_584_what_vanished_does_not_pass(
    job: Job, post: Post, github: FakeGitHub
) -> None:
    job.measured(record().model_copy(update={"workloads": ()}))
    assert post() == 3
    assert "missing" in github.bodies[0]
    assert github.states[-1] == "failure"


def test_maxwellbloch_242_a_first_run_without_baselines_is_a_state_and_no_crash(
    job: Job, post: Post, github: FakeGitHub
) -> None:
    shutil.rmtree(job.base / "baselines")
    job.measured(record())
    assert post() == 3
    assert "NO COMPARABLE DATA" in github.bodies[0]
    assert "there is no baseline yet" in github.bodies[0]


def test_gungraun_362_cargo_crap_54_a_regression_and_a_failure_exit_differently(job: Job, post: Post) -> None:
    job.measured(record(tokens=6))
    regression = post()
    job.measured(b"broken")
    assert (regression, post()) == (1, 4)


def test_benchmark_action_267_two_pushes_are_both_compared_with_the_base(
    job: Job, post: Post, github: FakeGitHub
) -> None:
    """The second push is no worse than the first, and still worse than the base."""
    for run, head in ((77, HEAD), (78, "d" * 40)):
        github.add_pull(1, head=head)
        job.event("pull_request", events.pull_request(head=head))
        job.environment["GITHUB_RUN_ID"] = str(run)
        job.measured(record(tokens=6), run=run)
        assert post() == 1
    assert len(github.bodies) == 1
    assert "dddddddddddd" in github.bodies[0]


def test_lurk_958_ballerina_399_the_base_is_the_pull_requests_own(
    job: Job, post: Post, github: FakeGitHub
) -> None:
    github.add_pull(1, base="release/1.x", base_sha="e" * 40, fork=True)
    github.parents[MERGE] = ["e" * 40, HEAD]
    job.event("workflow_run", events.workflow_run())
    assert post("--begin") == 0
    assert job.outputs["base-sha"] == "e" * 40


def test_open_chat_studio_4549_a_stale_base_is_not_believed(job: Job, post: Post, github: FakeGitHub) -> None:
    job.event("pull_request", events.pull_request(base_sha="1" * 40))
    github.pulls[1]["base"]["sha"] = "1" * 40
    assert post("--begin") == 0
    assert job.outputs["base-sha"] == BASE, "the first parent of the merge commit that was tested"


def test_a_merge_commit_of_another_head_is_not_believed_either(
    job: Job, post: Post, github: FakeGitHub
) -> None:
    github.parents[MERGE] = ["5" * 40, "6" * 40]
    assert post("--begin") == 0
    assert job.outputs["base-sha"] == BASE


def test_cli11_1385_the_age_of_the_baseline_is_told(job: Job, post: Post, github: FakeGitHub) -> None:
    path = job.base / "baselines/support/behaviour.json"
    old: Facts = read_facts(path).model_copy(update={"created": "2026-02-27T00:00:00Z"})
    write_facts(path, old)
    job.measured(record())
    post()
    assert "228 days before the head" in github.bodies[0]
    assert "it is old" in github.bodies[0]


def test_posting_loads_only_what_it_needs_and_help_loads_nothing() -> None:
    program = (
        "import sys; from servegate.cli.main import exit_code\n"
        "assert exit_code(['post', '--help']) == 0\n"
        "heavy = ('github', 'requests', 'jinja2', 'pydantic', 'numpy')\n"
        "print('heavy:', [name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "heavy: []"
