"""Rows -> outcome, exit code and one line in words."""

from __future__ import annotations

import pytest
from arms import answer, behaviour, latency, record, request, suite, verdict

from servegate.suite.schema import Policy
from servegate.verdict import Comparison, Outcome, Row, State, decide


def a_row(state: State, *, gating: bool = True, kind: str = "exact", metric: str = "steps") -> Row:
    return Row.model_validate(
        {"workload": "w", "metric": metric, "kind": kind, "unit": "steps", "better": "lower",
         "gating": gating, "base": 1.0, "head": 2.0, "tolerance": "equal", "state": state, "reason": "why"}
    )  # fmt: skip


def outcome(*rows: Row, complete: bool = True, **policy: str) -> Outcome:
    return decide(Comparison(suite="s", rows=rows, complete=complete), Policy.model_validate(policy)).outcome


PASS, IMPROVED, REGRESSED = (a_row(s) for s in (State.PASS, State.IMPROVED, State.REGRESSED))
INCONCLUSIVE, INVALID, NEW = (a_row(s) for s in (State.INCONCLUSIVE, State.INVALID, State.NEW))
MISSING, NOT_COMPARABLE = a_row(State.MISSING), a_row(State.NOT_COMPARABLE)


@pytest.mark.parametrize(
    ("rows", "policy", "expected"),
    [
        ([PASS, IMPROVED], {}, Outcome.PASS),
        ([PASS, REGRESSED, INVALID, MISSING], {}, Outcome.REGRESSED),
        ([PASS, INVALID], {}, Outcome.FAILED),
        ([PASS, MISSING], {}, Outcome.NO_DATA),
        ([PASS, MISSING], {"missing": "pass"}, Outcome.PASS),
        ([PASS, NOT_COMPARABLE], {}, Outcome.PASS),
        ([PASS, NOT_COMPARABLE], {"not_comparable": "fail"}, Outcome.NO_DATA),
        ([PASS, INCONCLUSIVE], {}, Outcome.PASS),
        ([PASS, INCONCLUSIVE], {"inconclusive": "fail"}, Outcome.INCONCLUSIVE),
        ([INCONCLUSIVE], {}, Outcome.INCONCLUSIVE),  # nothing was decided
        ([NOT_COMPARABLE, NEW], {}, Outcome.NO_DATA),
        ([], {}, Outcome.NO_DATA),
        ([a_row(State.PASS, gating=False)], {}, Outcome.NO_DATA),
        ([a_row(State.REGRESSED, gating=False), PASS], {}, Outcome.PASS),
        ([a_row(State.PASS, kind="pin")], {}, Outcome.NO_DATA),
        ([a_row(State.REGRESSED, kind="pin"), PASS], {}, Outcome.REGRESSED),
    ],
)
def test_the_worst_row_under_the_policy(rows: list[Row], policy: dict[str, str], expected: Outcome) -> None:
    assert outcome(*rows, **policy) is expected


def test_an_interrupted_run_never_passes_and_still_shows_a_regression() -> None:
    assert outcome(PASS, complete=False) is Outcome.FAILED
    assert outcome(PASS, REGRESSED, complete=False) is Outcome.REGRESSED
    run = record(latency(request()))
    cut = record(latency(request()), complete=False)
    for base, head in ((run, cut), (cut, run)):
        assert verdict(base, head, {"completion_tokens": {"equal": True}}).exit_code == 4


def test_exit_codes_are_fixed_however_many_rows_fail() -> None:
    """asv#865: the number of failures as exit status is 0 for 256 of them."""
    result = decide(Comparison(suite="s", rows=(REGRESSED,) * 256), Policy.model_validate({}))
    assert result.exit_code == 1
    codes = {outcome.value: code for outcome, code in _codes().items()}
    assert codes == {
        "pass": 0, "regressed": 1, "inconclusive": 3, "no comparable data": 3, "measurement failed": 4
    }  # fmt: skip


def _codes() -> dict[Outcome, int]:
    cases = {
        Outcome.PASS: PASS, Outcome.REGRESSED: REGRESSED, Outcome.INCONCLUSIVE: INCONCLUSIVE,
        Outcome.NO_DATA: MISSING, Outcome.FAILED: INVALID,
    }  # fmt: skip
    return {
        expected: decide(Comparison(suite="s", rows=(row,)), Policy.model_validate({})).exit_code
        for expected, row in cases.items()
    }


def test_a_verdict_is_read_by_machines() -> None:
    """icn#1789: a pattern over console text counted intervals as regressions."""
    content = verdict(record(latency(request())), record(latency(request()))).model_dump(mode="json")
    assert content["schema_version"] == 1
    assert {"outcome", "exit_code", "headline", "comparison"} <= content.keys()
    assert {"metric", "state", "unit", "base", "head"} <= content["comparison"]["rows"][0].keys()


# The line in words -----------------------------------------------------------------------------------------

PRICES = {
    "per": 1000, "prompt": 0.0, "cached": 0.0, "completion": 1.0, "currency": "USD", "source": "a contract",
    "date": "2026-10-01",
}  # fmt: skip


def test_length_is_the_cause_and_cost_follows() -> None:
    base = record(behaviour(answer("a", [1, 2, 3, 4], digest="old")))
    head = record(behaviour(answer("a", [1, 2, 3, 4, 5, 6, 7, 8], digest="new")))
    rules = {"completion_tokens": {"change": "5%"}, "cost_per_request": {"change": "3%"}}
    assert verdict(base, head, rules, prices=PRICES).headline == (
        "FAIL: completion tokens doubled in behaviour (4 tokens -> 8 tokens, +100 %); "
        "behaviour.cost_per_request follows; changed: the text of 1 prompt"
    )


def test_faster_because_shorter() -> None:
    """perf-eval#77: chat runs stopped at 63 tokens, raw ones at 1,024, and throughput was compared."""
    base = record(latency(*[request(f"p{i}", gaps=[10] * 99) for i in range(20)], repeat=3))
    head = record(latency(*[request(f"p{i}", gaps=[10] * 9) for i in range(20)], repeat=3))
    rules = {"e2e_p95": {"change": "5%"}, "completion_tokens": {"change": "200%"}}
    line = verdict(base, head, rules).headline
    assert line.startswith("PASS: ")
    assert "latency.e2e_p95 is faster because shorter: completion tokens fell" in line
    assert "-90 %" in line


def test_a_trade_between_prefill_and_decode_is_named() -> None:
    """vllm#44594: a cache watermark took ITL from 40.6 to 17.7 ms and TTFT from 6.6 to 11.2 s."""
    base = record(latency(*[request(f"p{i}", first=6600, gaps=[40.6] * 4) for i in range(20)], repeat=3))
    head = record(latency(*[request(f"p{i}", first=11200, gaps=[17.7] * 4) for i in range(20)], repeat=3))
    rules = {"ttft_p50": {"change": "10%"}, "itl_p95": {"change": "10%"}}
    result = verdict(base, head, rules)
    assert {r.metric: r.state for r in result.comparison.rows if r.gating} == {
        "ttft_p50": State.REGRESSED, "itl_p95": State.IMPROVED
    }  # fmt: skip
    assert "a trade-off: latency.itl_p95 improved (40.6 ms -> 17.7 ms, -56 %)" in result.headline
    assert "as latency.ttft_p50 got worse" in result.headline
    assert result.headline.startswith("FAIL: ttft p50 rose in latency (6.6 s -> 11.2 s, +70 %)")


@pytest.mark.parametrize(
    ("unit", "base", "head", "said"),
    [
        ("ns", 40_600_000.0, 17_700_000.0, "(40.6 ms -> 17.7 ms, -56 %)"),
        ("s", 4.06e-5, 1.77e-5, "(40.6 µs -> 17.7 µs, -56 %)"),
        ("ms", 2.0, 1.0, "(2 ms -> 1 ms, -50 %)"),
    ],
)
def test_a_trade_off_is_told_in_the_unit_that_reads_best(
    unit: str, base: float, head: float, said: str
) -> None:
    timed = {"workload": "latency", "unit": unit}
    better = a_row(State.IMPROVED, kind="timed", metric="itl_p95").model_copy(
        update={**timed, "base": base, "head": head, "change": head / base - 1}
    )
    worse = a_row(State.REGRESSED, kind="timed", metric="ttft_p50").model_copy(update=timed)
    line = decide(Comparison(suite="s", rows=(worse, better)), Policy()).headline
    assert f"a trade-off: latency.itl_p95 improved {said} as latency.ttft_p50 got worse" in line


def test_the_settings_that_changed_are_the_suspect() -> None:
    base = record(
        behaviour(answer("a", [1]), round={"counters": {"preemptions": 0}}), served={"num_blocks": "512"}
    )
    head = record(
        behaviour(answer("a", [1]), round={"counters": {"preemptions": 9}}), served={"num_blocks": "32"}
    )
    assert verdict(base, head, {"preemptions": {"change": "0%"}}).headline == (
        "FAIL: behaviour.preemptions: from zero to 9 times; changed: num_blocks 512 -> 32"
    )


def test_a_length_that_hardly_moved_explains_nothing() -> None:
    base = record(latency(*[request(f"p{i}", first=100, gaps=[10] * 99) for i in range(20)], repeat=3))
    longer = request("p0", first=900, gaps=[10] * 100)
    head = record(
        latency(longer, *[request(f"p{i}", first=900, gaps=[10] * 99) for i in range(1, 20)], repeat=3)
    )
    line = verdict(base, head, {"ttft_p50": {"change": "10%"}}).headline
    assert line.startswith("FAIL: ttft p50 rose in latency (100 ms -> 900 ms, +800 %)")


def test_a_length_without_a_rule_is_named_where_cost_failed() -> None:
    base, head = record(behaviour(answer("a", [1, 2]))), record(behaviour(answer("a", [1, 2, 3, 4])))
    line = verdict(base, head, {"cost_per_request": {"change": "3%"}}, prices=PRICES).headline
    assert line == (
        "FAIL: completion tokens doubled in behaviour (2 tokens -> 4 tokens, +100 %); "
        "behaviour.cost_per_request follows"
    )


def test_an_invalid_number_fails_without_a_rule() -> None:
    run = record(behaviour(answer("a", [1])), latency(request(first=0)))
    result = verdict(run, run, {"token_ids": {"equal": True}})
    assert result.outcome is Outcome.FAILED


def test_a_pin_that_does_not_hold_leads() -> None:
    run = record(behaviour(answer("a", [1])), software={"engine": "servegate 0.2.0"})
    result = verdict(run, run, {"token_ids": {"equal": True}}, pins={"engine": "servegate 0.1"})
    assert result.headline == "FAIL: pin engine: pinned to servegate 0.1, found servegate 0.2.0"


def test_a_pass_says_how_much_was_compared() -> None:
    run = record(behaviour(answer("a", [1])))
    assert verdict(run, run, {"token_ids": {"equal": True}}).headline == (
        "PASS: 1 gating row compared, none beyond its tolerance"
    )


def test_a_headline_is_one_line_whatever_the_names_hold() -> None:
    run = record(behaviour(answer("a", [1]), name="x\ny"))
    assert "\n" not in verdict(run, run, {"token_ids": {"equal": True}}).headline
    assert suite().policy.rules == {}
