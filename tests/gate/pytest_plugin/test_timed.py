"""Functions that the fixture times, in a pytest of its own, as a user's project sees it."""

import json

import pytest
from timed_project import FASTER_BEFORE, SLOWER_BEFORE, TIMED, baselines, store

pytest_plugins = ["pytester"]


def test_pass_is_green_with_a_table(timed) -> None:
    store(timed, SLOWER_BEFORE)
    result = timed.runpytest_inprocess("-W", "error", "--strict-markers")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*= servegate =*", "test_it.py::test_sum*pass*"])
    result.assert_outcomes(passed=1)


def test_regression_says_what_and_how_much(timed) -> None:
    store(timed, FASTER_BEFORE)
    result = timed.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["FAIL: time p50 rose in call*", "regressed  call.time_p50: *", "*call.time_p50*slower*"]
    )


def test_every_verdict_of_a_test_falls_before_it_fails(timed) -> None:
    timed.makepyfile(
        test_it="""
        def test_sum(servegate):
            for name in ("a", "b"):
                servegate.pedantic(sum, ([],), name=name, floor="0ms")
        """
    )
    store(timed, FASTER_BEFORE, name="a")
    store(timed, FASTER_BEFORE, name="b")
    result = timed.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["FAIL: time p50 rose in a*", "FAIL: time p50 rose in b*"])


def test_pedantic_prepares_each_round(timed) -> None:
    timed.makepyfile(
        test_it="""
        def test_sum(servegate):
            given, done = [], []
            def setup():
                given.append(len(given))
                return (given[-1],), {"base": 10}
            def target(x, base):
                return x + base
            value = servegate.pedantic(
                target, setup=setup, teardown=lambda x, base: done.append(x), rounds=5, warmup_rounds=2
            )
            assert value == 16
            assert given == done == [0, 1, 2, 3, 4, 5, 6]
        """
    )
    timed.runpytest_inprocess("--servegate-update").assert_outcomes(passed=1)


def test_the_fixture_times_as_a_decorator_too(timed) -> None:
    timed.makepyfile(
        test_it="""
        def test_it(servegate):
            @servegate
            def answer():
                return 42
            assert answer == 42
        """
    )
    timed.runpytest_inprocess("--servegate-update").assert_outcomes(passed=1)


def test_extra_info_stands_in_the_report(timed) -> None:
    timed.makepyfile(
        test_it="""
        def test_it(servegate):
            servegate(sum, [])
            servegate.extra_info["commit"] = "abc123"
        """
    )
    timed.runpytest_inprocess("--servegate-update", "--junit-xml=junit.xml").assert_outcomes(passed=1)
    assert "abc123" in (timed.path / "junit.xml").read_text()


def test_wrong_answers_are_not_hidden_by_the_gate(timed) -> None:
    store(timed, SLOWER_BEFORE)
    timed.makepyfile(test_it=TIMED.replace("499500", "1"))
    result = timed.runpytest_inprocess()
    result.stdout.fnmatch_lines(["E*assert 499500 == 1"])


def test_first_run_says_what_to_do(timed) -> None:
    result = timed.runpytest_inprocess()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*no baseline of 'call' in *: run `pytest --servegate-update`*"])
    assert baselines(timed) == []


def test_names_tolerances_and_rounds_of_their_own(timed) -> None:
    timed.makepyfile(
        test_it="""
        def test_two(servegate):
            assert servegate.pedantic(sum, ([1, 2],), name="a", rounds=5, change=0.5, floor="1s") == 3
            assert servegate.pedantic(max, (1, 2), name="b", change="50%", floor="1s") == 2
        """
    )
    assert timed.runpytest_inprocess("--servegate-update").ret == 0
    (path,) = baselines(timed)
    assert sorted(json.loads(path.read_text())["workloads"]) == ["a", "b"]
    assert timed.runpytest_inprocess().ret == 0


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("servegate(sum, []); servegate(sum, [])", "*'call' is timed twice in one test: give one a name=*"),
        ("servegate.pedantic(sum, ([],), setup=dict, iterations=2)", "*iterations= above 1*"),
        ("servegate.pedantic(sum, ([],), iterations=0)", "*iterations= is 1 or more*"),
        ("servegate.pedantic(sum, ([],), rounds=2)", "*rounds=2: a median needs at least 5*"),
        ("servegate.pedantic(sum, ([],), floor='20 parsecs')", "*floor: *20 parsecs*"),
    ],
)
def test_misuse_is_one_line(timed, body: str, line: str) -> None:
    timed.makepyfile(test_it=f"def test_it(servegate):\n    {body}\n")
    result = timed.runpytest_inprocess("--servegate-update")
    assert result.ret == 1
    result.stdout.fnmatch_lines([line])
    result.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.parametrize(
    ("marker", "line"),
    [
        ("change='much'", "*test_it.py::test_sum: change: *much*"),
        ("chnage='5%'", "*test_it.py::test_sum: marker servegate takes change= and floor=, not chnage*"),
    ],
)
def test_a_wrong_marker_stops_the_run_before_the_first_test(timed, marker: str, line: str) -> None:
    timed.makepyfile(test_it=TIMED.replace('change="10%", floor="0ms"', marker))
    result = timed.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([line])


def test_another_machine_is_a_skip(timed) -> None:
    store(timed, FASTER_BEFORE)
    (path,) = baselines(timed)
    data = json.loads(path.read_text())
    data["fingerprint"]["machine"]["cpu"] = "another"
    path.write_text(json.dumps(data))
    result = timed.runpytest_inprocess("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*measured on other machines: another-*"])


def test_a_broken_baseline_is_one_line(timed) -> None:
    store(timed, 1)
    baselines(timed)[0].write_text("{")
    result = timed.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*baselines*json: cut off or not JSON*"])
    result.stdout.no_fnmatch_line("*Traceback*")
