"""What is held against what, and what is not."""

from __future__ import annotations

from typing import Any

import pytest
from arms import (
    MACHINE,
    answer,
    behaviour,
    compared,
    failed,
    latency,
    record,
    request,
    row,
    suite,
    verdict,
)  # fmt: skip

from servegate.baseline import Baseline
from servegate.compare import compare
from servegate.errors import UsageError
from servegate.extract import facts
from servegate.facts import Facts
from servegate.record import ClientFacts, MachineLoad, RunRecord
from servegate.verdict import Outcome, State, decide

TIMED = {"ttft_p50": {"change": "10%"}}
PRICES = {
    "per": 1000, "prompt": 1.0, "cached": 0.5, "completion": 4.0, "currency": "USD", "source": "a contract",
    "date": "2026-10-01",
}  # fmt: skip


def test_a_measurement_held_against_itself_proves_nothing() -> None:
    """aprender#956: a test compared one commit with itself."""
    run = facts(record(latency(request())))
    with pytest.raises(UsageError, match="same measurement"):
        compare(run, run)
    assert compare(run, run, allow_same=True).rows


def test_another_machine_is_not_comparable_and_both_are_named() -> None:
    """TensorRT-LLM#19074, codspeed#409: values of one cluster raised the alarm on another."""
    base = record(latency(request(first=100), request("p1")))
    head = record(latency(request(first=900), request("p1")), machine={**MACHINE, "cores": "64"})
    comparison = compared(base, head, TIMED)
    found = row(comparison, "ttft_p50")
    assert found.state is State.NOT_COMPARABLE
    assert base.fingerprint.hardware_key in found.reason
    assert head.fingerprint.hardware_key in found.reason
    assert "cores 2 -> 64" in found.reason
    assert row(comparison, "completion_tokens").state is State.PASS
    assert [(c.group, c.name, c.base, c.head) for c in comparison.environment] == [
        ("machine", "cores", "2", "64")
    ]


def test_an_absolute_limit_needs_no_comparable_base() -> None:
    base = record(latency(request(), request("p1")))
    head = record(latency(request(first=900), request("p1", first=900)), machine={"cpu": "other"})
    for limit, state in (("500ms", State.REGRESSED), ("1s", State.PASS)):
        assert row(compared(base, head, {"ttft_p50": {"max": limit}}), "ttft_p50").state is state


def test_another_offered_load_is_not_comparable() -> None:
    base = record(latency(request(), request("p1")))
    head = record(
        latency(request(), request("p1"), offered={"kind": "closed", "concurrency": "8", "requests": "2"})
    )
    comparison = compared(base, head, TIMED | {"error_rate": {"change": "0%"}})
    assert row(comparison, "ttft_p50").reason == "another load was offered: concurrency 4 -> 8"
    assert row(comparison, "completion_tokens").state is State.NOT_COMPARABLE
    assert row(comparison, "error_rate").state is State.PASS  # a share does not depend on the load


def test_costs_at_other_prices_are_not_comparable() -> None:
    run, rules = record(latency(request())), suite({"cost_per_request": {"change": "3%"}}, prices=PRICES)
    dearer = suite({"cost_per_request": {"change": "3%"}}, prices=PRICES | {"completion": 8.0})
    newer = suite({"cost_per_request": {"change": "3%"}}, prices=PRICES | {"date": "2026-11-01"})
    found = row(compare(facts(run, rules), facts(run, dearer), dearer), "cost_per_request")
    assert found.state is State.NOT_COMPARABLE
    assert "completion 4.0" in found.reason
    assert "completion 8.0" in found.reason
    found = row(compare(facts(run, rules), facts(run, newer), newer), "cost_per_request")
    assert found.state is State.PASS


def test_the_cost_of_a_machine_hour_is_judged_as_a_time() -> None:
    prices = {"machine_hour": 3.6, "currency": "USD", "source": "a list", "date": "2026-10-01"}
    base, head = record(latency(request())), record(latency(request()), machine={"cpu": "other"})
    found = row(compared(base, head, prices=prices), "cost_per_request")
    assert (found.kind, found.state) == ("timed", State.NOT_COMPARABLE)


def test_no_common_workload_is_no_comparable_data() -> None:
    """aragora#7847, libvroom#578: no common names, and "PASSED: 0 benchmarks"."""
    base = record(latency(request(), name="old"))
    head = record(behaviour(request(), name="new"))
    result = verdict(base, head, {"completion_tokens": {"change": "5%"}})
    assert (result.outcome, result.exit_code) == (Outcome.NO_DATA, 3)
    assert [(r.workload, r.state) for r in result.comparison.rows if r.metric == "workload"] == [
        ("old", State.MISSING), ("new", State.NEW)
    ]  # fmt: skip


def test_a_workload_with_another_name_and_the_same_load_is_a_rename() -> None:
    base, head = record(latency(request(), name="old")), record(latency(request(), name="new"))
    comparison = compared(base, head, {"new.completion_tokens": {"equal": True}})
    assert row(comparison, "workload").state is State.RENAMED
    assert row(comparison, "completion_tokens").state is State.PASS


def test_a_missing_workload_is_not_a_pass_unless_the_policy_says_so() -> None:
    """foundry#15720: a missing result on the head's side was inconclusive, and passed."""
    base = record(latency(request()), behaviour(answer("a", [1])))
    head = record(latency(request()))
    rules = {"latency.completion_tokens": {"equal": True}}
    assert verdict(base, head, rules).outcome is Outcome.NO_DATA
    assert verdict(base, head, rules | {"missing": "pass"}).outcome is Outcome.PASS


def test_a_metric_that_the_head_no_longer_has_is_missing() -> None:
    base = record(behaviour(answer("a", [1]), round={"counters": {"steps": 4}}))
    head = record(behaviour(answer("a", [1])))
    rules = {"steps": {"change": "1%"}, "token_ids": {"equal": True}}
    result = verdict(base, head, rules)
    assert row(result.comparison, "steps").state is State.MISSING
    assert result.outcome is Outcome.NO_DATA


def test_a_rule_that_nothing_measures_is_a_gate_that_does_not_work() -> None:
    """pybroker#287: a filter that matched nothing passed."""
    run = record(behaviour(answer("a", [1])))
    result = verdict(run, run, {"token_ids": {"equal": True}, "ttft_p95": {"change": "10%"}})
    assert result.outcome is Outcome.NO_DATA
    assert row(result.comparison, "ttft_p95").state is State.MISSING


def test_a_rule_for_one_workload_wins_over_the_rule_for_all() -> None:
    base = record(behaviour(answer("a", [1, 2])), latency(request()))
    head = record(behaviour(answer("a", [1, 2, 3])), latency(request()))
    rules = {"completion_tokens": {"equal": True}, "behaviour.completion_tokens": {"change": "60%"}}
    comparison = compared(base, head, rules)
    assert row(comparison, "completion_tokens", "behaviour").tolerance == "±60 %"
    assert row(comparison, "completion_tokens", "latency").tolerance == "equal"


def test_the_environment_is_listed_once_with_both_values() -> None:
    base = record(latency(request()), software={"torch": "2.8.0"}, served={"num_blocks": "512"})
    head = record(latency(request()), software={"torch": "2.9.1"}, served={"dtype": "bfloat16"})
    assert [(c.name, c.base, c.head) for c in compared(base, head).environment] == [
        ("torch", "2.8.0", "2.9.1"), ("dtype", "absent", "bfloat16"), ("num_blocks", "512", "absent")
    ]  # fmt: skip


def test_an_old_base_is_said_to_be_old() -> None:
    """attune#714: a cache key that was not tied to the source gave ever older baselines."""
    run = record(latency(request()), created="2026-07-01T00:00:00Z")
    head = record(latency(request()), created="2026-10-01T00:00:00Z")
    (note,) = compared(run, head).notes
    assert note.startswith("base recorded 2026-07-01T00:00:00Z, 92 days before the head; it is old")
    assert "old" not in compared(head, head).notes[0]


# Stored baselines ------------------------------------------------------------------------------------------

RULES = {"token_ids": {"equal": True}, "ttft_p50": {"change": "10%"}}


def against(baseline: Baseline, head: Facts, policy: dict | None = None) -> Any:
    rules = suite(RULES | (policy or {}))
    return decide(compare(baseline, head, rules), rules.policy)


def both_kinds() -> Any:
    return facts(record(behaviour(answer("a", [1, 2])), latency(request(), request("p1"))))


def test_on_other_hardware_exact_rows_gate_and_timed_rows_are_not_comparable() -> None:
    head = both_kinds()
    stored = head.model_copy(update={"workloads": {"behaviour": head.workloads["behaviour"]}})
    that = head.fingerprint.model_copy(update={"machine": {**head.fingerprint.machine, "cpu": "that"}})
    baseline = Baseline(head.fingerprint.hardware_key, stored, None, elsewhere=(that,))
    result = against(baseline, head)
    assert result.outcome is Outcome.PASS
    assert "1 gating row not comparable" in result.headline
    timed = row(result.comparison, "ttft_p50")
    assert timed.state is State.NOT_COMPARABLE
    assert timed.reason.startswith(f"no timing baseline for {head.fingerprint.hardware_key}; ")
    assert f"there is one for {that.hardware_key} (cpu that -> " in timed.reason
    assert against(baseline, head, {"not_comparable": "fail"}).exit_code == 3


def test_a_behaviour_baseline_is_of_no_machine() -> None:
    head = both_kinds()
    elsewhere = head.fingerprint.model_copy(update={"machine": {"cpu": "other"}})
    stored = head.model_copy(
        update={"workloads": {"behaviour": head.workloads["behaviour"]}, "fingerprint": elsewhere}
    )
    comparison = against(Baseline("key", stored, None, ()), head).comparison
    assert comparison.environment == ()
    assert row(comparison, "token_ids").state is State.PASS


def test_no_baseline_at_all_is_no_comparable_data_and_says_what_to_do() -> None:
    """maxwellbloch#242, pytest-benchmark#276: the first run was a usage error. horus#177: green for weeks."""
    result = against(Baseline("key", None, None, ()), both_kinds())
    assert (result.outcome, result.exit_code) == (Outcome.NO_DATA, 3)
    assert "servegate baseline update" in result.comparison.notes[0]
    assert row(result.comparison, "ttft_p50").state is State.NEW


def test_limits_alone_do_not_make_a_lost_baseline_green() -> None:
    """horus#177: the cached baseline was evicted, every row was N/A, and the job passed for weeks."""
    lost = Baseline("key", None, None, ())
    limits = {"error_rate": {"max": "1%"}}
    assert against(lost, both_kinds(), limits).outcome is Outcome.NO_DATA


def test_all_requests_failed_fails_the_measurement() -> None:
    """vllm/benchmarks/serve.py: a server that always answers 500 gave the best latency of all."""
    base = record(latency(*[request(f"p{i}") for i in range(30)]))
    head = record(latency(*[failed(f"p{i}") for i in range(30)]))
    result = verdict(base, head, {"ttft_p95": {"change": "10%"}})
    assert (result.outcome, result.exit_code) == (Outcome.FAILED, 4)
    assert "all 30 requests failed" in result.headline


def test_a_time_that_moved_on_a_busy_machine_is_inconclusive_and_says_who_was_busy() -> None:
    """Identical code beside another process: stored timings must not cry wolf."""
    quiet = MachineLoad(cpus=2, arm=1.9, others=0.0, stolen=0.0, idle=0.1)
    busy = MachineLoad(cpus=2, arm=1.0, others=0.9, stolen=0.1, idle=0.0)
    base = timed_record(100, quiet)
    for load, state in ((quiet, State.REGRESSED), (busy, State.INCONCLUSIVE)):
        found = row(compared(base, timed_record(200, load), {"ttft_p50": {"change": "10%"}}), "ttft_p50")
        assert found.state is state
    assert "the machine was busy (head: others held 1.0 of 2 CPUs): measure again" in found.reason


def test_a_base_that_was_held_back_hides_no_slow_head() -> None:
    quiet = MachineLoad(cpus=2, arm=1.9, others=0.0, stolen=0.0, idle=0.1)
    busy = MachineLoad(cpus=2, arm=1.0, others=0.9, stolen=0.1, idle=0.0)
    for base, head, state in (
        (quiet, quiet, State.PASS),
        (quiet, busy, State.PASS),  # it only made the head slower
        (busy, quiet, State.INCONCLUSIVE),
    ):
        arms = timed_record(100, base), timed_record(101, head)
        assert row(compared(*arms, {"ttft_p50": {"change": "50%"}}), "ttft_p50").state is state


def test_a_time_that_moved_while_the_client_waited_for_a_cpu_is_inconclusive() -> None:
    """A client of a server stamps late what it reads late."""
    base = timed_record(100, None)
    wall = base.workloads[0].rounds[0].wall_ns
    for starved_ns, state in ((wall // 50, State.REGRESSED), (wall // 5, State.INCONCLUSIVE)):
        head = timed_record(200, None, starved_ns)
        found = row(compared(base, head, {"ttft_p50": {"change": "10%"}}), "ttft_p50")
        assert found.state is state
    assert "(head: its client waited for a CPU 20 % of the time): measure again" in found.reason


def timed_record(first: float, load: MachineLoad | None, starved_ns: int = 0) -> RunRecord:
    run = record(latency(*[request(f"p{i}", first=first) for i in range(20)]))
    update = {"load": load, "client": ClientFacts(starved_ns=starved_ns)}
    rounds = tuple(r.model_copy(update=update) for r in run.workloads[0].rounds * 3)
    return run.model_copy(update={"workloads": (run.workloads[0].model_copy(update={"rounds": rounds}),)})
