"""Accepting what was measured: only what ran, only where somebody looks."""

import pytest
from timed_project import TIMED, baselines

pytest_plugins = ["pytester"]


def test_update_writes_what_ran_and_nothing_else(timed) -> None:
    """syrupy#19, #518, #752: an update of some tests deleted what belongs to others."""
    timed.makepyfile(test_other="def test_other(servegate):\n    servegate(sorted, [2, 1])\n")
    result = timed.runpytest_inprocess("--servegate-update")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*test_it.py::test_sum*updated*n/a -> *s*", "2 baselines written; review*"])
    before = {path: path.read_bytes() for path in baselines(timed)}
    assert len(before) == 2
    timed.runpytest_inprocess("--servegate-update", "test_other.py")
    changed = [path.name for path, data in before.items() if path.read_bytes() != data]
    assert all(name.startswith("test_other") for name in changed)
    assert baselines(timed) == list(before)


def test_a_test_that_fails_writes_nothing(timed) -> None:
    timed.makepyfile(test_it=TIMED.replace("499500", "1"))
    timed.runpytest_inprocess("--servegate-update").assert_outcomes(failed=1)
    assert baselines(timed) == []


@pytest.mark.parametrize("value", ["true", "1"])
def test_update_is_refused_in_ci(timed, monkeypatch, value: str) -> None:
    """jest#3456, ava#1585: CI must not create what it is to judge by."""
    monkeypatch.setenv("CI", value)
    result = timed.runpytest_inprocess("--servegate-update", "test_it.py")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--servegate-update: refused in CI*"])
    assert baselines(timed) == []


def test_update_in_ci_can_be_forced(timed, suite, monkeypatch) -> None:
    monkeypatch.setenv("CI", "true")
    timed.runpytest_inprocess("--servegate-update=force", "test_it.py", "servegate.yaml").assert_outcomes(
        passed=5
    )
    assert len(baselines(timed)) == 2


def test_a_suite_is_updated_whole_or_not_at_all(project, suite, measured) -> None:
    project.runpytest_inprocess("--servegate-update", "servegate.yaml").assert_outcomes(passed=4)
    (path,) = baselines(project)
    before = path.read_bytes()
    suite(tokens=24)
    measured()
    part = project.runpytest_inprocess("--servegate-update", "servegate.yaml", "-k", "token_ids")
    part.assert_outcomes(failed=1, deselected=3)
    part.stdout.fnmatch_lines(["*1 of 4 rows are selected*run `pytest --servegate-update servegate.yaml`*"])
    part.stdout.no_fnmatch_line("*During handling*")
    assert (path.read_bytes(), measured()) == (before, 0)
    whole = project.runpytest_inprocess("--servegate-update", "servegate.yaml")
    whole.stdout.fnmatch_lines(
        ["*behaviour: completion_tokens 24 tokens -> 48 tokens*", "1 baseline written*"]
    )
    assert path.read_bytes() != before


def test_update_and_base_exclude_each_other(timed) -> None:
    result = timed.runpytest_inprocess("--servegate-update", "--servegate-base", "main")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--servegate-update*has no use for a base*"])
