"""--servegate-base: what judges is read from a commit, and the pull request cannot edit it."""

import subprocess

import pytest
from suite_project import SUITE
from timed_project import FASTER_BEFORE, SLOWER_BEFORE, store

pytest_plugins = ["pytester"]

GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")


def commit(project) -> None:
    for command in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "base")):
        subprocess.run([*GIT, *command], cwd=project.path, check=True)


@pytest.fixture
def committed(project, suite):
    """The suite and its baselines are on the branch ``main``."""
    project.runpytest_inprocess("--servegate-update", "servegate.yaml").assert_outcomes(passed=4)
    commit(project)
    return suite


def test_baselines_and_policy_are_the_commits(project, committed) -> None:
    committed(tokens=24)
    loose = SUITE.replace("5%", "500%").replace("  token_ids: {max: 0}\n", "")
    (project.path / "servegate.yaml").write_text(loose)
    project.runpytest_inprocess("--servegate-update", "servegate.yaml").assert_outcomes(passed=3)
    project.runpytest_inprocess("servegate.yaml").assert_outcomes(passed=3)

    result = project.runpytest_inprocess("--servegate-base", "main", "servegate.yaml")
    result.assert_outcomes(failed=2, passed=2)
    result.stdout.fnmatch_lines(
        [
            "servegate: judged by base *",
            "FAIL: completion tokens doubled*",
            "note: edited by head*: policy.completion_tokens.change: 5% -> 500%",
        ]
    )


def test_deleted_baselines_judge_all_the_same(project, committed) -> None:
    committed(tokens=24)
    subprocess.run(["rm", "-r", "baselines"], cwd=project.path, check=True)
    result = project.runpytest_inprocess("--servegate-base", "main", "servegate.yaml")
    result.assert_outcomes(failed=2, passed=2)


def test_a_base_without_the_suite_is_never_green(project, suite) -> None:
    (project.path / "servegate.yaml").rename(project.path / "later.yaml")
    commit(project)
    (project.path / "later.yaml").rename(project.path / "servegate.yaml")
    result = project.runpytest_inprocess("--servegate-base", "main", "servegate.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["NO COMPARABLE DATA: *"])


def test_a_timed_function_is_judged_by_the_commits_baseline(timed) -> None:
    store(timed, FASTER_BEFORE)
    commit(timed)
    store(timed, SLOWER_BEFORE)
    timed.runpytest_inprocess().assert_outcomes(passed=1)
    timed.runpytest_inprocess("--servegate-base", "main").assert_outcomes(failed=1)


def test_a_timed_function_that_is_new_is_never_green(timed) -> None:
    commit(timed)
    store(timed, SLOWER_BEFORE)
    result = timed.runpytest_inprocess("--servegate-base", "main")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["no baseline of 'call' in the base, *"])


def test_a_commit_that_is_not_here_stops_the_run_and_says_what_to_fetch(timed) -> None:
    commit(timed)
    result = timed.runpytest_inprocess("--servegate-base", "release/1.x")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--servegate-base: no commit 'release/1.x' in this clone; fetch it*"])


def test_collecting_by_a_base_measures_nothing(project, committed, measured) -> None:
    measured()
    (project.path / "servegate.yaml").write_text(SUITE.replace("  token_ids: {max: 0}\n", ""))
    result = project.runpytest_inprocess("--servegate-base", "main", "--collect-only", "-q", "servegate.yaml")
    result.stdout.fnmatch_lines(["servegate.yaml::behaviour.token_ids"])
    assert measured() == 0
