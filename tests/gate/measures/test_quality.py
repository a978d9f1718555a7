"""Quality checks on answers."""

from __future__ import annotations

import threading

import pytest
from arms import behaviour, failed, record, request, suite

from servegate.errors import UsageError
from servegate.extract import facts
from servegate.facts import QualityFact
from servegate.metrics import quality

CITY = {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}


def check(text: str, **check: object) -> QualityFact:
    run = record(behaviour(request("p0", text=text)))
    (fact,) = facts(run, suite(quality=[{"prompt": "p0", **check}])).workloads["behaviour"].quality
    return fact


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        ({"contains": "30 days"}, "within 30 days.", "within a month"),
        ({"regex": r"^\d+ days$"}, "30 days", "thirty days"),
        ({"exact": "yes"}, "yes", "yes."),
        ({"json_schema": CITY}, '{"city": "Oslo"}', '{"town": "Oslo"}'),
        ({"json_schema": CITY}, '{"city": "Oslo"}', "Oslo"),
        ({"json_schema": {"type": "number"}}, "1", "NaN"),
        ({"json_schema": {}}, "1", "[" * 100_000),
    ],
)
def test_each_check_accepts_and_rejects(rule: dict, good: str, bad: str) -> None:
    assert check(good, **rule).passed
    rejected = check(bad, **rule)
    assert not rejected.passed
    assert rejected.detail


def test_the_pass_rate_is_over_checks_and_prompts() -> None:
    run = record(behaviour(request("a", text="yes"), request("b", text="no"), failed("c")))
    rules = suite(quality=[{"prompt": "*", "contains": "yes"}, {"prompt": "a", "exact": "yes"}])
    workload = facts(run, rules).workloads["behaviour"]
    assert [(f.prompt_id, f.passed) for f in workload.quality] == [
        ("a", True), ("b", False), ("c", False), ("a", True)
    ]  # fmt: skip
    assert workload.metrics["quality_pass_rate"].value == 0.5
    assert workload.quality[2].detail == "no answer: HTTP 500"


def test_every_round_has_to_pass() -> None:
    first, second = (behaviour(request("a", text=text)).rounds[0] for text in ("yes", "no"))
    run = record(behaviour(request("a")).model_copy(update={"rounds": (first, second)}))
    (fact,) = facts(run, suite(quality=[{"prompt": "a", "exact": "yes"}])).workloads["behaviour"].quality
    assert not fact.passed


def test_a_pattern_that_backtracks_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality, "MAX_SECONDS", 0.2)
    fact = check("a" * 40 + "!", regex=r"^(a+)+$")
    assert not fact.passed
    assert fact.detail == "the check took over 0.2 s of processor time"
    hidden = check('"' + "a" * 40 + '!"', json_schema={"type": "string", "pattern": "^(a+)+$"})
    assert "processor time" in hidden.detail


def test_an_answer_too_long_to_check_is_not_checked() -> None:
    assert "too many to check" in check("a" * 1_000_001, regex="a").detail


def test_a_pattern_is_never_run_without_its_guard() -> None:
    raised = []

    def elsewhere() -> None:
        try:
            check("a", regex="a")
        except UsageError as error:
            raised.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "main thread" in str(raised[0])
