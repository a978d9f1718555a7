"""The plugin in a pytest of its own, as a user's project sees it."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from servegate import pipeline, pytest_support
from servegate.facts import Sample
from servegate.pytest_timing import Store
from servegate.render.terminal import Style
from servegate.suite.export import init_files

pytest_plugins = ["pytester"]

TIMED = """
import pytest

@pytest.mark.servegate(change="10%", floor="0ms")
def test_sum(servegate):
    assert servegate(sum, range(1000)) == 499500
"""


SLOWER_BEFORE, FASTER_BEFORE = 1e9, 1e-9
"""Stored medians in ms that no machine reaches: no test here depends on real time."""


@pytest.fixture
def project(pytester, monkeypatch):
    """A project with one timed test, outside CI. Runs in this process: a new one costs seconds."""
    monkeypatch.delenv("CI", raising=False)
    # pytester unloads what a run was the first to import; loaded before, it stays, and in one version.
    pytest_support.summary([], Style())
    # Without the other plugins that happen to be installed, a run takes a tenth of the time.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p servegate.pytest_plugin")
    pytester.makepyfile(test_it=TIMED)
    return pytester


def baselines(project) -> list[Path]:
    return sorted((project.path / "baselines").rglob("*.json"))


def store(project, median_ms: float) -> None:
    Store(project.path, "test_it.py::test_sum").write("call", Sample(value=median_ms, n=20))


def test_pass_is_green_with_a_table(project) -> None:
    store(project, SLOWER_BEFORE)
    result = project.runpytest_inprocess("-W", "error", "--strict-markers")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*= servegate =*", "test_it.py::test_sum*pass*"])
    result.assert_outcomes(passed=1)


def test_regression_fails_the_test_itself(project) -> None:
    store(project, FASTER_BEFORE)
    result = project.runpytest_subprocess("--junit-xml=junit.xml", "-W", "error")
    assert result.ret == 1
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["FAIL: time p50 rose in call*", "regressed  call.time_p50: *", "*call.time_p50*slower*"]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*pytest_support.py*")
    failure = ElementTree.parse(project.path / "junit.xml").find(".//testcase/failure")
    assert failure is not None
    assert "FAIL: time p50 rose" in failure.get("message", "")

    project.makepyfile(test_other="def test_other(): pass")
    again = project.runpytest_inprocess("--lf")
    again.assert_outcomes(failed=1)
    again.stdout.fnmatch_lines(["*= servegate =*"])


def test_wrong_answers_are_not_hidden_by_the_gate(project) -> None:
    store(project, SLOWER_BEFORE)
    project.makepyfile(test_it=TIMED.replace("499500", "1"))
    result = project.runpytest_inprocess()
    result.stdout.fnmatch_lines(["E*assert 499500 == 1"])


def test_first_run_says_what_to_do(project) -> None:
    result = project.runpytest_inprocess()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*no baseline of 'call' in *: run `pytest --servegate-update`*"])
    assert baselines(project) == []


def test_expected_failure_is_expected(project) -> None:
    project.makepyfile(test_it=TIMED.replace("def test_sum", "@pytest.mark.xfail(strict=True)\ndef test_sum"))
    result = project.runpytest_inprocess()
    result.assert_outcomes(xfailed=1)
    assert result.ret == 0


def test_update_writes_what_ran_and_nothing_else(project) -> None:
    project.makepyfile(test_other="def test_other(servegate):\n    servegate(sorted, [2, 1])\n")
    result = project.runpytest_inprocess("--servegate-update")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*test_it.py::test_sum*updated*n/a -> *s*", "2 baselines written; review*"])
    before = {path: path.read_bytes() for path in baselines(project)}
    assert len(before) == 2
    project.runpytest_inprocess("--servegate-update", "test_other.py")
    changed = [path.name for path, data in before.items() if path.read_bytes() != data]
    assert all(name.startswith("test_other") for name in changed)
    assert baselines(project) == list(before)


def test_update_is_refused_in_ci(project, monkeypatch) -> None:
    monkeypatch.setenv("CI", "true")
    result = project.runpytest_inprocess("--servegate-update")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--servegate-update: refused in CI*"])
    assert baselines(project) == []


def test_names_tolerances_and_rounds_of_their_own(project) -> None:
    project.makepyfile(
        test_it="""
        def test_two(servegate):
            assert servegate.measure(sum, [1, 2], name="a", rounds=5, change=0.5, floor="1s") == 3
            assert servegate.measure(max, 1, 2, name="b", change="50%", floor="1s") == 2
        """
    )
    assert project.runpytest_inprocess("--servegate-update").ret == 0
    (path,) = baselines(project)
    assert sorted(json.loads(path.read_text())["workloads"]) == ["a", "b"]
    assert project.runpytest_inprocess().ret == 0


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("servegate(sum, []); servegate(sum, [])", "*'call' is timed twice in one test: give one a name=*"),
        ("servegate.measure(sum, [], rounds=2)", "*rounds=2: a median needs at least 5*"),
        ("servegate.measure(sum, [], floor='20 parsecs')", "*floor: *20 parsecs*"),
    ],
)
def test_misuse_is_one_line(project, body: str, line: str) -> None:
    project.makepyfile(test_it=f"def test_it(servegate):\n    {body}\n")
    result = project.runpytest_inprocess("--servegate-update")
    assert result.ret == 1
    result.stdout.fnmatch_lines([line])
    result.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.parametrize(
    ("marker", "line"),
    [
        ("change='much'", "*test_it.py::test_sum: servegate: change: *much*"),
        ("chnage='5%'", "*test_it.py::test_sum: marker servegate takes change= and floor=, not chnage*"),
    ],
)
def test_a_wrong_marker_stops_the_run_before_the_first_test(project, marker: str, line: str) -> None:
    project.makepyfile(test_it=TIMED.replace('change="10%", floor="0ms"', marker))
    result = project.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([line])


def test_another_machine_is_a_skip(project) -> None:
    store(project, FASTER_BEFORE)
    (path,) = baselines(project)
    data = json.loads(path.read_text())
    data["fingerprint"]["machine"]["cpu"] = "another"
    path.write_text(json.dumps(data))
    result = project.runpytest_inprocess("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*measured on other machines: another-*"])


def test_a_broken_baseline_is_one_line(project) -> None:
    store(project, 1)
    baselines(project)[0].write_text("{")
    result = project.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*baselines*json: cut off or not JSON*"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_time_is_refused_beside_other_workers(project) -> None:
    store(project, SLOWER_BEFORE)
    result = project.runpytest_subprocess("-p", "xdist", "-n", "2")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*2 xdist workers share this machine: run this test with `-n 0`*"])


def test_every_attempt_is_shown(project) -> None:
    store(project, FASTER_BEFORE)
    result = project.runpytest_inprocess("-p", "pytest_rerunfailures", "--reruns", "2")
    result.assert_outcomes(failed=1, errors=0)
    table = result.stdout.str().split("= servegate =")[1]
    assert table.count("test_it.py::test_sum ") >= 3


def test_collecting_measures_nothing(project) -> None:
    result = project.runpytest_inprocess("--collect-only", "-q")
    assert result.ret == 0
    result.stdout.no_fnmatch_line("*= servegate =*")
    assert baselines(project) == []


def test_unused_plugin_says_and_imports_nothing(pytester) -> None:
    pytester.makepyfile(test_it="def test_it(): pass\n")
    program = (
        "import sys, pytest; code = pytest.main(['-p', 'no:cacheprovider'])\n"
        "heavy = ['torch', 'numpy', 'scipy', 'jinja2', 'pydantic', 'rich', 'github', 'servegate.verdict']\n"
        "print('imported:', [name for name in heavy if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=pytester.path)
    lines = done.stdout.splitlines()
    assert lines[-1] == "imported: []"
    assert not [
        line for line in lines if "servegate" in line and not line.startswith(("plugins:", "rootdir:"))
    ]


SUITE = """
def test_suite(servegate):
    verdict = servegate.check("servegate.yaml")
    assert verdict is None or verdict.exit_code == 0
"""


@pytest.fixture
def suite(project, monkeypatch):
    """A project with a suite, measured on a target that needs no engine."""
    for path, text in init_files(project.path).items():
        path.write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "cli")
    project.makepyfile(test_it=SUITE)

    def measures(tokens: int) -> None:
        from fake_target import FakeTarget

        monkeypatch.setattr(pipeline, "open_target", lambda plan: FakeTarget(plan, tokens=tokens))

    measures(12)
    return measures


def test_suite_is_judged_by_its_baselines(project, suite) -> None:
    assert project.runpytest_inprocess("--servegate-update").ret == 0
    passed = project.runpytest_inprocess()
    passed.assert_outcomes(passed=1)
    passed.stdout.fnmatch_lines(["test_it.py::test_suite*quickstart*pass*PASS: *"])
    suite(tokens=24)
    failed = project.runpytest_inprocess()
    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines(
        [
            "FAIL: completion tokens doubled*",
            "*behaviour.completion_tokens*100 % longer*",
            "*servegate explain servegate-out/*",
        ]
    )
    failed.stdout.no_fnmatch_line("*Traceback*")


def test_suite_that_cannot_be_read_is_one_line(project, suite) -> None:
    (project.path / "servegate.yaml").write_text("version: 1\nnaem: x\n")
    result = project.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*servegate.yaml:2: naem: unknown key*"])
    result.stdout.no_fnmatch_line("*Traceback*")
