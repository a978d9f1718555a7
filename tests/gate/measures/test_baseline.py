"""Stored baselines: where they are, what an update changes, who may make one."""

from __future__ import annotations

from pathlib import Path

import pytest
from arms import answer, behaviour, latency, record, request, suite

from servegate.baseline import load_baseline, plan_update, write_baseline
from servegate.compare import compare
from servegate.errors import UsageError
from servegate.extract import facts
from servegate.facts import Facts
from servegate.files import write_facts
from servegate.verdict import Outcome, decide


@pytest.fixture(autouse=True)
def _outside_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)


def both(*ids: int, machine: str = "EPYC", **more: object) -> Facts:
    run = record(
        behaviour(answer("a", ids or (1, 2))),
        latency(request(**more)),
        machine={"cpu": machine},  # type: ignore[arg-type]
    )
    return facts(run)


def test_behaviour_is_stored_once_and_timings_by_machine(tmp_path: Path) -> None:
    here, there = both(), both(machine="Xeon")
    keys = [f.fingerprint.hardware_key for f in (here, there)]
    for new in (here, there):
        write_baseline(tmp_path, new, reason="first")
    stored = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.json"))
    assert stored == ["support/behaviour.json", *sorted(f"support/timing/{key}.json" for key in keys)]
    found = load_baseline(tmp_path, "support", keys[0])
    assert found.behaviour is not None
    assert found.timing is not None
    assert list(found.behaviour.workloads) == ["behaviour"]
    assert list(found.timing.workloads) == ["latency"]
    assert found.timing.fingerprint == here.fingerprint
    assert found.elsewhere == (there.fingerprint,)
    assert found.behaviour.reason == "first"


def test_nothing_stored_is_no_error(tmp_path: Path) -> None:
    found = load_baseline(tmp_path, "support", "any")
    assert (found.behaviour, found.timing, found.elsewhere, found.parts) == (None, None, (), ())


def test_two_suites_never_share_a_file(tmp_path: Path) -> None:
    """github-action-benchmark#231: two suites under one name overwrote each other's baseline."""
    write_baseline(tmp_path, both(), reason=None)
    write_baseline(tmp_path, both(7).model_copy(update={"suite": "other"}), reason=None)
    assert load_baseline(tmp_path, "support", "").behaviour != load_baseline(tmp_path, "other", "").behaviour
    (tmp_path / "other" / "behaviour.json").write_bytes(
        (tmp_path / "support" / "behaviour.json").read_bytes()
    )
    with pytest.raises(UsageError, match="a baseline of suite 'support', not of 'other'"):
        load_baseline(tmp_path, "other", "")


def test_an_update_is_told_old_to_new(tmp_path: Path) -> None:
    old = both(1, 2)
    key = old.fingerprint.hardware_key
    assert plan_update(load_baseline(tmp_path, "support", key), old)[0].startswith(
        "behaviour: new workload, "
    )
    write_baseline(tmp_path, old, reason=None)
    assert plan_update(load_baseline(tmp_path, "support", key), old) == []
    lines = plan_update(load_baseline(tmp_path, "support", key), both(1, 3, 4, 5, first=200))
    assert "behaviour: completion_tokens 2 tokens -> 4 tokens (+100 %)" in lines
    assert "behaviour: 1 prompt answered otherwise: a" in lines
    assert "latency: ttft_p50 none -> none" not in lines
    assert "latency: throughput 5 tokens/s -> 5 tokens/s" not in lines


def test_what_the_suite_no_longer_has_is_no_longer_stored(tmp_path: Path) -> None:
    old = both()
    key = old.fingerprint.hardware_key
    write_baseline(tmp_path, old, reason=None)
    new = old.model_copy(update={"workloads": {"behaviour": old.workloads["behaviour"]}})
    assert plan_update(load_baseline(tmp_path, "support", key), new) == ["latency: workload removed"]
    write_baseline(tmp_path, new, reason=None)
    assert load_baseline(tmp_path, "support", key).timing is None


def test_ci_accepts_no_change_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(UsageError, match="not updated in CI"):
        write_baseline(tmp_path, both(), reason=None)
    assert not list(tmp_path.iterdir())
    assert len(write_baseline(tmp_path, both(), reason=None, in_ci=True)) == 2


def test_an_interrupted_run_is_no_baseline(tmp_path: Path) -> None:
    cut = both().model_copy(update={"complete": False})
    with pytest.raises(UsageError, match="interrupted"):
        write_baseline(tmp_path, cut, reason=None)
    write_facts(tmp_path / "support" / "behaviour.json", cut)
    with pytest.raises(UsageError, match="interrupted"):
        load_baseline(tmp_path, "support", "")


def test_a_changed_answer_is_a_small_diff(tmp_path: Path) -> None:
    texts = []
    for ids in ((1, 2, 3), (1, 9, 3)):
        write_baseline(tmp_path, both(*ids), reason=None)
        texts.append((tmp_path / "support" / "behaviour.json").read_text().splitlines())
    changed = [(old, new) for old, new in zip(*texts, strict=True) if old != new]
    assert changed == [('          "completion_ids": [1, 2, 3],', '          "completion_ids": [1, 9, 3],')]


def test_a_verdict_never_becomes_the_next_baseline(tmp_path: Path) -> None:
    """dbt-bouncer#645: a pull request was compared with its own earlier pushes, and 0.6 s more became 0 %."""
    rules = suite({"token_ids": {"equal": True}})
    write_baseline(tmp_path, both(1, 2), reason=None)
    for _ in range(2):
        stored = load_baseline(tmp_path, "support", "any")
        assert decide(compare(stored, both(1, 3), rules), rules.policy).outcome is Outcome.REGRESSED
