"""Suite files as test items: one a gating row, measured once, and nobody surprised."""

import json
import xml.etree.ElementTree as ElementTree

import pytest
from suite_project import PROMPTS, SUITE, TIMED_SUITE

pytest_plugins = ["pytester"]

ROWS = ["behaviour.completion_tokens", "behaviour.token_ids", "behaviour.error_rate", "other-rows"]


@pytest.fixture
def accepted(project, suite, measured):
    """The suite has its baselines."""
    project.runpytest_inprocess("--servegate-update", "servegate.yaml").assert_outcomes(passed=4)
    measured()
    return suite


def test_rows_are_known_before_anything_is_measured(project, suite, measured) -> None:
    result = project.runpytest_inprocess("--collect-only", "-q", "servegate.yaml")
    assert [line for line in result.outlines if "::" in line] == [f"servegate.yaml::{row}" for row in ROWS]
    assert measured() == 0
    assert not (project.path / "servegate-out").exists()


def test_one_measurement_serves_all_rows_in_any_order(project, accepted, measured) -> None:
    project.syspathinsert()
    project.makepyfile(backwards="def pytest_collection_modifyitems(items):\n    items.reverse()\n")
    result = project.runpytest_inprocess("-p", "backwards", "-v", "-W", "error", "servegate.yaml")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines([f"servegate.yaml::{row} PASSED*" for row in reversed(ROWS)])
    result.stdout.fnmatch_lines(
        ["servegate.yaml: PASS: *", "  look closer: servegate explain servegate-out/*/verdict.json"]
    )
    assert measured() == 1


def test_only_the_rows_that_changed_fail_and_say_why(project, accepted) -> None:
    accepted(tokens=24)
    result = project.runpytest_inprocess("servegate.yaml", "--junit-xml=junit.xml")
    assert result.ret == 1
    result.assert_outcomes(failed=2, passed=2)
    result.stdout.fnmatch_lines(
        [
            "*_ servegate.yaml: behaviour.completion_tokens _*",
            "FAIL: completion tokens doubled in behaviour*",
            "accept, if it is meant: servegate baseline update servegate.yaml",
            "*_ servegate.yaml: behaviour.token_ids _*",
            "*prompt 'a' parts at token 12*",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    cases = {
        case.get("name"): case for case in ElementTree.parse(project.path / "junit.xml").iter("testcase")
    }
    failure = cases["behaviour.token_ids"].find("failure")
    assert failure is not None
    assert "parts at token 12" in (failure.text or "")
    notes = [json.loads(p.get("value", "")) for p in cases["behaviour.error_rate"].iter("property")]
    assert [note["verdict"] for note in notes] == ["pass"]


def test_last_failed_and_reruns_use_the_rows(project, accepted, measured) -> None:
    """A rerun of a row is not another measurement: it cannot pass by luck."""
    accepted(tokens=24)
    project.runpytest_inprocess("servegate.yaml").assert_outcomes(failed=2, passed=2)
    measured()
    again = project.runpytest_inprocess(
        "servegate.yaml", "--lf", "-p", "pytest_rerunfailures", "--reruns", "1"
    )
    again.assert_outcomes(failed=2, deselected=2)
    again.stdout.fnmatch_lines(["servegate.yaml::behaviour.token_ids*regressed (attempt 2)*"])
    assert measured() == 1


def test_a_row_can_be_asked_for_by_its_id(project, accepted) -> None:
    accepted(tokens=24)
    project.runpytest_inprocess("servegate.yaml::behaviour.error_rate").assert_outcomes(passed=1)
    project.runpytest_inprocess("servegate.yaml", "-k", "token_ids").assert_outcomes(failed=1, deselected=3)


def test_a_row_that_is_expected_to_fail(project, accepted) -> None:
    conftest = project.path / "conftest.py"
    conftest.write_text(
        conftest.read_text()
        + "\n\ndef pytest_collection_modifyitems(items):\n"
        + "    [item.add_marker(pytest.mark.xfail(strict=True)) for item in items if 'token' in item.name]\n"
    )
    accepted(tokens=24)
    result = project.runpytest_inprocess("servegate.yaml")
    result.assert_outcomes(xfailed=2, passed=2)
    assert result.ret == 0


def test_files_are_collected_only_where_they_are_asked_for(project, suite) -> None:
    (project.path / "sub").mkdir()
    for name in ("servegate-fast.yaml", "other.yaml", "sub/servegate.yaml"):
        (project.path / name).write_text(SUITE)
    (project.path / "sub" / "prompts.yaml").write_text((project.path / "prompts.yaml").read_text())

    def collected(*arguments: str) -> set[str]:
        lines = project.runpytest_inprocess("--collect-only", "-q", *arguments).outlines
        return {line.partition("::")[0] for line in lines if "::" in line}

    assert collected() == set()
    assert collected("servegate-fast.yaml") == {"servegate-fast.yaml"}
    assert collected("other.yaml") == set()
    assert collected("-o", "servegate_suites=sub/*.yaml") == {"sub/servegate.yaml"}
    assert collected("-o", "servegate_suites=*.yaml", "sub") == {"sub/servegate.yaml"}


def test_without_a_baseline_nothing_is_green(project, suite) -> None:
    result = project.runpytest_inprocess("servegate.yaml", "-rs")
    result.assert_outcomes(failed=1, passed=1, skipped=2)
    result.stdout.fnmatch_lines(["*_ servegate.yaml: other-rows _*", "NO COMPARABLE DATA: *"])


def test_what_no_row_stands_for_fails_in_other_rows(project, accepted) -> None:
    (project.path / "prompts.yaml").write_text("version: 1\nname: small\nprompts:\n  - {id: a, text: one}\n")
    result = project.runpytest_inprocess("servegate.yaml::other-rows")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*behaviour.prompts missing: 1 prompt of the base*"])


def test_a_rule_that_nothing_measures_fails_once(project, accepted) -> None:
    (project.path / "servegate.yaml").write_text(SUITE + "  preemptions: {max: 0}\n")
    result = project.runpytest_inprocess("servegate.yaml")
    result.assert_outcomes(failed=1, passed=4)
    result.stdout.fnmatch_lines(["FAILED servegate.yaml::behaviour.preemptions*"])


def test_a_suite_that_cannot_be_read_is_one_line_of_collection(project, suite) -> None:
    (project.path / "servegate.yaml").write_text("version: 1\nnaem: x\n")
    result = project.runpytest_inprocess("servegate.yaml")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*servegate.yaml:2: naem: unknown key*"])
    result.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("MeasurementError", "servegate: engine down"),
        (
            "RuntimeError",
            "servegate: internal: RuntimeError: engine down; `servegate check servegate.yaml` *",
        ),
    ],
)
def test_a_target_that_is_down_is_tried_once(project, suite, measured, error: str, line: str) -> None:
    conftest = project.path / "conftest.py"
    raising = f'    from servegate.errors import MeasurementError\n    raise {error}("engine down")\n'
    conftest.write_text(
        conftest.read_text().replace("    return FakeTarget", raising + "    return FakeTarget")
    )
    result = project.runpytest_inprocess("servegate.yaml")
    result.assert_outcomes(failed=4)
    result.stdout.fnmatch_lines([line])
    assert measured() == 1


def test_ctrl_c_ends_the_run(project, accepted) -> None:
    conftest = project.path / "conftest.py"
    conftest.write_text(
        conftest.read_text().replace("FakeTarget(plan", "FakeTarget(plan, interrupt_at='behaviour'")
    )
    result = project.runpytest_subprocess("servegate.yaml")
    assert result.ret == pytest.ExitCode.INTERRUPTED


def test_workers_share_one_measurement(project, accepted, measured) -> None:
    """pytest-benchmark under xdist measured nothing and exited 0: exact rows need no worker of their own."""
    accepted(tokens=24)
    result = project.runpytest_subprocess("-p", "xdist", "-n", "2", "servegate.yaml")
    result.assert_outcomes(failed=2, passed=2)
    assert measured() == 1


def test_latency_is_refused_beside_other_workers(project, suite, measured) -> None:
    (project.path / "servegate.yaml").write_text(TIMED_SUITE)
    result = project.runpytest_subprocess("-p", "xdist", "-n", "2", "servegate.yaml::latency.ttft_p95")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*suite small measures time, and 2 xdist workers share*run this test with `-n 0`*"]
    )
    assert measured() == 0


def test_latency_rows_are_judged(project, suite) -> None:
    (project.path / "servegate.yaml").write_text(TIMED_SUITE)
    assert project.runpytest_inprocess("--servegate-update", "servegate.yaml").ret == 0
    suite(gap_ms=20)
    result = project.runpytest_inprocess("servegate.yaml")
    result.assert_outcomes(failed=1, passed=6)
    result.stdout.fnmatch_lines(
        ["FAIL: ttft p95 doubled in latency*", "FAILED servegate.yaml::latency.ttft_p95*"]
    )


@pytest.mark.parametrize(("policy", "outcomes"), [("pass", {"skipped": 1}), ("fail", {"failed": 1})])
def test_timings_of_another_machine_are_skipped_or_fail_as_the_policy_says(
    project, suite, policy: str, outcomes: dict[str, int]
) -> None:
    (project.path / "servegate.yaml").write_text(TIMED_SUITE + f"  not_comparable: {policy}\n")
    assert project.runpytest_inprocess("--servegate-update", "servegate.yaml").ret == 0
    (timings,) = (project.path / "baselines").rglob("timing/*.json")
    timings.rename(timings.with_name("another-00000000.json"))
    result = project.runpytest_inprocess("servegate.yaml::latency.ttft_p95", "-rs")
    result.assert_outcomes(**outcomes)
    result.stdout.fnmatch_lines(["*no timing baseline for *"])


def test_evidence_goes_elsewhere_where_the_project_cannot_be_written(project, accepted) -> None:
    accepted(tokens=24)
    (project.path / "elsewhere").mkdir()
    evidence = project.path / "servegate-out"
    if evidence.is_dir():
        evidence.rename(project.path / "elsewhere" / "moved")
    evidence.write_text("a file in the way, since root may write to any folder")
    result = project.runpytest_inprocess("servegate.yaml")
    result.assert_outcomes(failed=2, passed=2)
    result.stdout.fnmatch_lines(["  look closer: servegate explain *servegate-out-*/verdict.json"])


FIXTURE = """
def test_suite(servegate):
    verdict = servegate.check("servegate.yaml")
    assert verdict is None or verdict.suite == "small"
"""


def test_the_fixture_judges_a_suite_inside_a_test(project, accepted) -> None:
    project.makepyfile(test_it=FIXTURE)
    passed = project.runpytest_inprocess()
    passed.assert_outcomes(passed=1)
    passed.stdout.fnmatch_lines(["test_it.py::test_suite*servegate.yaml*pass*PASS: *"])
    accepted(tokens=24)
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


def test_the_fixture_updates_a_suite(project, suite) -> None:
    project.makepyfile(test_it=FIXTURE)
    project.runpytest_inprocess("--servegate-update").assert_outcomes(passed=1)
    assert (project.path / "baselines" / "small" / "behaviour.json").is_file()


def test_a_secret_in_a_name_or_a_fault_is_in_no_report(project, accepted, monkeypatch) -> None:
    token, value = "ghp_" + "a1B2" * 9, "p4ss-word-of-40"
    monkeypatch.setenv("DEPLOY_TOKEN", value)
    (project.path / "prompts.yaml").write_text(PROMPTS.replace("id: a", f"id: {token}"))
    accepted(tokens=24)
    (project.path / "broken.yaml").write_text(f"version: {value}\n")
    project.makepyfile(
        test_it="""
        def test_check(servegate):
            servegate.check("servegate.yaml")

        def test_broken(servegate):
            servegate.check("broken.yaml")
        """
    )
    result = project.runpytest_inprocess("servegate.yaml", "test_it.py", "--junit-xml=junit.xml", "-rA")
    assert "    a -> ***" in result.outlines
    result.stdout.fnmatch_lines(["servegate: *broken.yaml*'[*][*][*]'*"])
    told = str(result.stdout) + (project.path / "junit.xml").read_text()
    assert token not in told
    assert value not in told
