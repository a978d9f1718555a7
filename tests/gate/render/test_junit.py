"""JUnit XML: one test case for each row that gates, and a file that every parser reads."""

from xml.etree import ElementTree

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from servegate.render import junit
from servegate.verdict import Outcome, State

SHAPE = {
    "testsuites": ({"name"}, {"testsuite"}),
    "testsuite": ({"name", "tests", "failures", "errors", "skipped", "time"}, {"testcase"}),
    "testcase": ({"classname", "name", "time"}, {"failure", "error", "skipped"}),
    "failure": ({"message", "type"}, set()),
    "error": ({"message", "type"}, set()),
    "skipped": ({"message"}, set()),
}
"""Attributes and children of each element, within what junit-10.xsd and the Ant schema both allow."""


def parsed(text: str) -> ElementTree.Element:
    root = ElementTree.fromstring(text.encode())
    for element in root.iter():
        attributes, children = SHAPE[element.tag]
        assert set(element.attrib) == attributes
        assert {child.tag for child in element} <= children
    suite = root[0]
    for total, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(suite.attrib[total]) == len(list(suite.iter(tag)))
    assert int(suite.attrib["tests"]) == len(suite)
    return suite


def test_each_gating_row_is_a_case_and_the_reason_is_the_message(row, verdict) -> None:
    told = verdict(
        row(),
        row(metric="steps", state=State.PASS, head=1.0),
        row(metric="itl_p50", gating=False),
        row(metric="ttft_p99", state=State.INCONCLUSIVE, reason="too few values"),
        row(metric="e2e_p95", state=State.INVALID, reason="the clock is broken"),
    )
    cases = {case.attrib["name"]: case for case in parsed(junit.render(told))}
    assert list(cases) == ["ttft_p95", "steps", "ttft_p99", "e2e_p95"]
    assert cases["ttft_p95"].attrib["classname"] == "quickstart.latency"
    failure = cases["ttft_p95"].find("failure")
    assert failure is not None
    assert failure.attrib == {"message": "50 % slower, 10 % is allowed", "type": "regressed"}
    assert "base 100 ms (n 0), head 150 ms (n 0): 50 % slower" in (failure.text or "")
    assert len(cases["steps"]) == 0
    assert cases["ttft_p99"][0].attrib["message"] == "inconclusive: too few values"
    assert cases["e2e_p95"][0].tag == "error"


def test_what_no_row_says_is_never_green(row, verdict) -> None:
    """An interrupted run, or one that compared nothing."""
    for rows in ((), (row(state=State.PASS),)):
        told = verdict(*rows, outcome=Outcome.FAILED, exit_code=4, headline="MEASUREMENT FAILED: interrupted")
        suite = parsed(junit.render(told))
        assert suite[-1].attrib["name"] == "verdict"
        assert suite[-1][0].attrib["message"] == "MEASUREMENT FAILED: interrupted"


def test_a_pass_has_no_failure(row, verdict) -> None:
    told = verdict(row(state=State.PASS), outcome=Outcome.PASS, exit_code=0, headline="PASS: 1 row")
    suite = parsed(junit.render(told))
    assert (suite.attrib["failures"], suite.attrib["errors"], suite.attrib["tests"]) == ("0", "0", "1")


def test_a_missing_row_fails_only_where_the_policy_says_so(row, verdict) -> None:
    missing = row(metric="itl_p50", state=State.MISSING, head=None)
    for outcome, tag in ((Outcome.NO_DATA, "failure"), (Outcome.PASS, "skipped")):
        suite = parsed(junit.render(verdict(row(state=State.PASS), missing, outcome=outcome)))
        assert [child.tag for child in suite[1]] == [tag]


def test_details_may_quote_a_model_and_stay_out(row, verdict) -> None:
    assert "secret words" not in junit.render(verdict(row(detail=("secret words of the model",))))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(st.text(max_size=40), st.sampled_from(["\x00\x1b[31m\ufffe", "]]></failure><x>", '"&<\ud83d']))
)
def test_no_text_breaks_the_file(row, verdict, text: str) -> None:
    told = verdict(
        row(workload=text, metric=text, reason=text, tolerance=text, base=text, head=text, change=None),
        headline=text,
        suite=text,
    )
    assert len(parsed(junit.render(told))) == 1
