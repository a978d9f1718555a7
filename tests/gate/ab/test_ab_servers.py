"""Arms that are servers: what nobody restarted, and a client that is itself too slow."""

from __future__ import annotations

from judging_fakes import ab_record, noisy, row_of, suite, verdict
from paired_fakes import launches

from servegate.ab.judging import is_decided, judge_ab
from servegate.ab.schedule import Role
from servegate.record import ClientFacts, RoundRecord
from servegate.verdict import State


def test_servers_that_no_launch_restarts_count_as_one_launch_of_assumed_luck() -> None:
    measured = launches(6, 6, noisy(1.12))
    restarted = row_of(judge_ab(ab_record(measured), suite()))
    servers = row_of(judge_ab(ab_record(measured).model_copy(update={"restarted": False}), suite()))
    assert restarted.evidence is not None
    assert servers.evidence is not None
    assert (restarted.evidence.launches, servers.evidence.launches) == (6, 1)
    assert restarted.evidence.blocks == servers.evidence.blocks
    (low, high), (lower, higher) = restarted.evidence.interval or (0, 0), servers.evidence.interval or (0, 0)
    assert lower < low < high < higher


def test_servers_that_no_launch_restarts_are_looked_at_once_at_the_end() -> None:
    measured = launches(6, 6, noisy())
    rules = suite({"decode_p95": {"change": "5%"}})
    assert is_decided(measured, 12, rules, ["latency"])
    assert not is_decided(measured, 12, rules, ["latency"], restarted=False)


def test_a_client_that_waits_for_a_cpu_judges_nothing() -> None:
    clean = noisy(1.3)

    def rounds(launch: int, block: int, role: Role) -> RoundRecord:
        round_ = clean(launch, block, role)
        starved = round_.wall_ns // 10 if role == "head" else 0
        return round_.model_copy(update={"client": ClientFacts(starved_ns=starved)})

    row = row_of(verdict(rounds))
    assert row.state is State.INCONCLUSIVE
    assert row.reason == "client too slow: on head it waited for a CPU 10 % of the time"
