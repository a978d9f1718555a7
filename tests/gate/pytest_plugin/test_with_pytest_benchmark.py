"""pytest-benchmark: its results under servegate's verdict, servegate's numbers in its JSON."""

import json
from pathlib import Path

import pytest
from timed_project import FASTER_BEFORE, SLOWER_BEFORE, baselines, store

from servegate.errors import UsageError
from servegate.pytest_plugin.benchmark import judge_files
from servegate.verdict import Outcome, State

pytest_plugins = ["pytester"]

WITH = ("-p", "pytest_benchmark.plugin", "--benchmark-max-time=0.01", "--benchmark-min-rounds=5")

TEST = """
import pytest

@pytest.mark.servegate(floor="0ms")
def test_sum(benchmark):
    assert benchmark(sum, range(10)) == 45
"""


@pytest.fixture
def benchmarked(project):
    project.makepyfile(test_it=TEST)
    return project


@pytest.mark.parametrize(("before", "outcome"), [(FASTER_BEFORE, "failed"), (SLOWER_BEFORE, "passed")])
def test_a_marked_benchmark_is_judged_in_its_call(benchmarked, before: float, outcome: str) -> None:
    """pytest-benchmark raises inside the summary: exit 1, a traceback, and a test that says passed."""
    store(benchmarked, before, name="benchmark")
    result = benchmarked.runpytest_inprocess(*WITH, "-W", "error")
    result.assert_outcomes(**{outcome: 1})
    result.stdout.fnmatch_lines(["*= servegate =*", "test_it.py::test_sum*benchmark*"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_its_baseline_is_written_by_the_same_option(benchmarked) -> None:
    benchmarked.runpytest_inprocess(*WITH, "--servegate-update").assert_outcomes(passed=1)
    (path,) = baselines(benchmarked)
    assert list(json.loads(path.read_text())["workloads"]) == ["benchmark"]


def test_an_unmarked_benchmark_is_let_alone(benchmarked) -> None:
    benchmarked.makepyfile(test_it=TEST.replace('@pytest.mark.servegate(floor="0ms")', ""))
    result = benchmarked.runpytest_inprocess(*WITH)
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*= servegate =*")


def test_a_benchmark_that_measured_nothing_is_not_green(benchmarked) -> None:
    result = benchmarked.runpytest_inprocess(*WITH, "--benchmark-disable", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*pytest-benchmark measured nothing here*"])


def test_under_xdist_it_fails_where_pytest_benchmark_measures_nothing(benchmarked) -> None:
    """pytest-benchmark turns itself off under `-n 2`, and a regression exits 0."""
    store(benchmarked, FASTER_BEFORE, name="benchmark")
    result = benchmarked.runpytest_subprocess(*WITH, "-p", "xdist", "-n", "2")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*the benchmark is timed, and 2 xdist workers share this machine*"])


def test_what_servegate_judged_stands_in_its_json(benchmarked, suite) -> None:
    benchmarked.makepyfile(
        test_it="""
        def test_both(benchmark, servegate):
            servegate.check("servegate.yaml")
            benchmark.extra_info["mine"] = 1
            benchmark(sum, [])

        def test_alone(benchmark):
            benchmark(sum, [])
        """
    )
    benchmarked.runpytest_inprocess(*WITH, "--servegate-update").assert_outcomes(passed=2)
    result = benchmarked.runpytest_inprocess(*WITH, "--benchmark-json=b.json", "--benchmark-save=kept")
    result.assert_outcomes(passed=2)
    saved = next((benchmarked.path / ".benchmarks").rglob("*.json"))
    for path in (benchmarked.path / "b.json", saved):
        info = {entry["name"]: entry["extra_info"] for entry in json.loads(path.read_text())["benchmarks"]}
        assert info["test_both"]["mine"] == 1
        assert info["test_both"]["servegate"]["behaviour.completion_tokens"] == 24
        assert info["test_alone"] == {}


def test_without_it_installed_a_fixture_of_the_same_name_is_let_alone(project) -> None:
    project.makepyfile(
        test_it="""
        import pytest

        @pytest.fixture
        def benchmark():
            return 1

        @pytest.mark.servegate(change="5%")
        def test_it(benchmark):
            pass
        """
    )
    project.runpytest_inprocess("-p", "no:benchmark").assert_outcomes(passed=1)


def stats(median: float) -> dict[str, object]:
    return {"median": median, "rounds": 20, "data": [median * (0.99 + k / 1000) for k in range(20)]}


def document(path: Path, *, cpu: str = "A", **medians_s: float) -> Path:
    """A file of pytest-benchmark 5.3, reduced to what is read."""
    entries = [{"fullname": name, "stats": stats(median)} for name, median in medians_s.items()]
    machine = {
        "node": path.stem,
        "system": "Linux",
        "machine": "x86_64",
        "cpu": {"brand_raw": cpu, "count": 4},
    }
    path.write_text(json.dumps({"benchmarks": entries, "machine_info": machine}))
    return path


@pytest.mark.parametrize(
    ("head", "outcome"),
    [
        ({"a": 0.0109, "b": 0.0201}, Outcome.PASS),
        ({"a": 0.022, "b": 0.0201}, Outcome.REGRESSED),
        ({"a": 0.015, "b": 0.0301}, Outcome.INCONCLUSIVE),
        ({"a": 0.0101}, Outcome.NO_DATA),
        ({"a": 0.0101, "b": 0.0201, "c": 1.0}, Outcome.PASS),
        ({"a": float("nan"), "b": 0.0201}, Outcome.FAILED),
        ({"a": 0.0, "b": 0.0201}, Outcome.FAILED),
    ],
    ids=["within", "slower", "near the limit", "vanished", "new", "nan", "zero"],
)
def test_two_files_are_judged(tmp_path: Path, head: dict[str, float], outcome: Outcome) -> None:
    base = document(tmp_path / "base.json", a=0.01, b=0.02)
    assert judge_files(base, document(tmp_path / "head.json", **head), change="50%").outcome is outcome


def test_a_median_without_its_rounds_is_no_evidence(tmp_path: Path) -> None:
    """`--benchmark-save` keeps no data unless it is told to."""
    arms = []
    for name, median in (("base", 0.01), ("head", 0.05)):
        path = document(tmp_path / f"{name}.json", a=median)
        content = json.loads(path.read_text())
        del content["benchmarks"][0]["stats"]["data"]
        path.write_text(json.dumps(content))
        arms.append(path)
    verdict = judge_files(*arms)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "the value of each round is not known" in verdict.headline


def test_files_of_two_machines_do_not_compare(tmp_path: Path) -> None:
    base = document(tmp_path / "base.json", a=0.01)
    verdict = judge_files(base, document(tmp_path / "head.json", cpu="B", a=0.01))
    assert verdict.outcome is Outcome.NO_DATA
    assert verdict.comparison.rows[0].state is State.NOT_COMPARABLE


def test_files_of_a_real_run_are_read(benchmarked) -> None:
    for name in ("base", "head"):
        benchmarked.runpytest_inprocess(*WITH, f"--benchmark-json={name}.json")
    verdict = judge_files(benchmarked.path / "base.json", benchmarked.path / "head.json", floor="9999s")
    assert verdict.outcome is Outcome.PASS
    (row,) = verdict.comparison.rows
    assert (row.workload, row.n_head >= 5) == ("test_it.py::test_sum", True)


@pytest.mark.parametrize("text", ["{", "[]", '{"benchmarks": [{}]}', '{"benchmarks": null}', "null"])
def test_a_file_that_is_none_of_its_own_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "head.json").write_text(text)
    with pytest.raises(UsageError, match=r"head.json: not a file of `pytest --benchmark-json`"):
        judge_files(document(tmp_path / "base.json", a=0.01), tmp_path / "head.json")


def test_a_file_proves_nothing_against_itself(tmp_path: Path) -> None:
    base = document(tmp_path / "base.json", a=0.01)
    with pytest.raises(UsageError, match="equals itself"):
        judge_files(base, base)
