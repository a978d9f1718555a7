"""The verdict is the test's own outcome, in everything that reads outcomes.

One test for each way of reading them in which gates of other plugins are known to be wrong: green summaries,
empty JUnit failures, an xfail that shows as failed, reruns that pass by luck, xdist that measures nothing.
"""

import json
import xml.etree.ElementTree as ElementTree

import pytest
from timed_project import FASTER_BEFORE, SLOWER_BEFORE, TIMED, baselines, store

from servegate.pytest_plugin import PROPERTY

pytest_plugins = ["pytester"]


def test_exit_code_summary_and_junit_say_the_same(timed) -> None:
    store(timed, FASTER_BEFORE)
    result = timed.runpytest_subprocess("--junit-xml=junit.xml", "-W", "error")
    assert result.ret == 1
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*gate.py*")
    case = ElementTree.parse(timed.path / "junit.xml").find(".//testcase")
    assert case is not None
    failure = case.find("failure")
    assert failure is not None
    assert "FAIL: time p50 rose" in failure.get("message", "")
    assert "regressed  call.time_p50" in (failure.text or "")
    (note,) = (p.get("value", "") for p in case.iter("property") if p.get("name") == PROPERTY)
    assert json.loads(note)["verdict"] == "regressed"


def test_last_failed_runs_it_again(timed) -> None:
    store(timed, FASTER_BEFORE)
    timed.makepyfile(test_other="def test_other(): pass")
    timed.runpytest_inprocess().assert_outcomes(failed=1, passed=1)
    timed.runpytest_inprocess("--lf").assert_outcomes(failed=1)


@pytest.mark.parametrize("strict", [True, False])
def test_expected_failure_is_expected(timed, strict: bool) -> None:
    store(timed, FASTER_BEFORE)
    mark = f"@pytest.mark.xfail(strict={strict})\ndef test_sum"
    timed.makepyfile(test_it=TIMED.replace("def test_sum", mark))
    result = timed.runpytest_inprocess()
    result.assert_outcomes(xfailed=1)
    assert result.ret == 0


def test_a_strict_expected_failure_that_passes_fails(timed) -> None:
    store(timed, SLOWER_BEFORE)
    timed.makepyfile(test_it=TIMED.replace("def test_sum", "@pytest.mark.xfail(strict=True)\ndef test_sum"))
    timed.runpytest_inprocess().assert_outcomes(failed=1)


def test_the_tests_own_exception_wins_and_the_verdict_is_noted(timed) -> None:
    store(timed, FASTER_BEFORE)
    timed.makepyfile(test_it=TIMED.replace("499500", "1"))
    result = timed.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E*assert 499500 == 1", "test_it.py::test_sum*regressed*"])


def test_every_attempt_is_recorded_and_shown(timed) -> None:
    """A rerun measures again and may pass by luck: the report says which attempt it was."""
    store(timed, FASTER_BEFORE)
    result = timed.runpytest_inprocess("-p", "pytest_rerunfailures", "--reruns", "2", "--junit-xml=junit.xml")
    result.assert_outcomes(failed=1, errors=0)
    result.stdout.fnmatch_lines([f"test_it.py::test_sum*regressed (attempt {n})*" for n in (1, 2, 3)])
    assert r"&quot;attempt&quot;: 3" in (timed.path / "junit.xml").read_text()


def test_a_pass_after_failures_is_told_from_a_pass(timed) -> None:
    timed.makepyfile(
        test_it="""
        import pathlib

        def test_sum(servegate):
            attempts = pathlib.Path("attempts")
            with attempts.open("a") as file:
                file.write("x")
            change = "10%" if attempts.stat().st_size < 2 else "999999999999%"
            servegate.pedantic(sum, ([],), change=change, floor="0ms")
        """
    )
    store(timed, FASTER_BEFORE)
    result = timed.runpytest_inprocess("-p", "pytest_rerunfailures", "--reruns", "1")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["test_it.py::test_sum*regressed (attempt 1)*", "test_it.py::test_sum*pass (attempt 2)*"]
    )


def test_an_attempt_answers_for_what_it_judged_itself(timed) -> None:
    timed.makepyfile(
        test_it="""
        import pathlib

        def test_sum(request):
            attempts = pathlib.Path("attempts")
            if not attempts.exists():
                attempts.touch()
                request.getfixturevalue("servegate").pedantic(sum, ([],), floor="0ms")
        """
    )
    store(timed, FASTER_BEFORE)
    assert timed.runpytest_inprocess("-p", "pytest_rerunfailures", "--reruns", "1").ret == 0


def test_time_is_refused_beside_other_workers(timed) -> None:
    """pytest-benchmark#293, uvicorn#2847: under xdist nothing was measured, and all was green."""
    store(timed, SLOWER_BEFORE)
    result = timed.runpytest_subprocess("-p", "xdist", "-n", "2")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*2 xdist workers share this machine: run this test with `-n 0`*"])


def test_one_worker_measures(timed) -> None:
    store(timed, SLOWER_BEFORE)
    result = timed.runpytest_subprocess("-p", "xdist", "-n", "1", "-W", "error")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["test_it.py::test_sum*pass*"])


@pytest.mark.parametrize("option", ["--collect-only", "--fixtures", "--setup-plan"])
def test_looking_measures_nothing(timed, option: str) -> None:
    """pytest-benchmark compared, and exited 0, under --collect-only."""
    (timed.path / "baselines").mkdir()
    result = timed.runpytest_inprocess(option, "-q")
    assert result.ret == 0
    result.stdout.no_fnmatch_line("*= servegate =*")
    assert baselines(timed) == []


@pytest.mark.parametrize(("before", "outcome"), [(FASTER_BEFORE, "failed"), (SLOWER_BEFORE, "passed")])
def test_unittest_classes_are_judged_too(timed, before: float, outcome: str) -> None:
    timed.makepyfile(
        test_it="""
        import unittest
        import pytest

        @pytest.mark.servegate(floor="0ms")
        class TestIt(unittest.TestCase):
            @pytest.fixture(autouse=True)
            def _gate(self, servegate):
                self.servegate = servegate

            def test_sum(self):
                self.assertEqual(self.servegate(sum, [1, 2]), 3)
        """
    )
    store(timed, before, node="test_it.py::TestIt::test_sum")
    timed.runpytest_inprocess("-W", "error").assert_outcomes(**{outcome: 1})


def test_no_cache_provider_and_a_root_that_cannot_be_written(timed) -> None:
    store(timed, SLOWER_BEFORE)
    timed.path.chmod(0o555)
    try:
        result = timed.runpytest_inprocess("-p", "no:cacheprovider", "-W", "error")
    finally:
        timed.path.chmod(0o755)
    result.assert_outcomes(passed=1)


def test_a_parameter_of_any_text_has_a_baseline_of_its_own(timed) -> None:
    """esphome/device-builder#696: an id of 300 characters, and those of Windows paths."""
    timed.makepyfile(
        test_it=r"""
        import pytest

        @pytest.mark.parametrize("x", ["C:\\a b\\c", "x" * 300, "x" * 299, "a/b", "a-b", "é"])
        def test_sum(servegate, x):
            servegate(str.upper, x)
        """
    )
    timed.runpytest_inprocess("--servegate-update").assert_outcomes(passed=6)
    assert len(baselines(timed)) == 6
    assert all(len(path.name.encode()) < 255 for path in baselines(timed))


def test_what_is_timed_after_the_test_is_refused(timed) -> None:
    timed.makepyfile(
        test_it="""
        import pytest

        @pytest.fixture
        def late(servegate):
            yield
            servegate(sum, [])

        def test_it(late):
            pass
        """
    )
    result = timed.runpytest_inprocess()
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*'call' is timed after the test: nothing would judge it*"])
