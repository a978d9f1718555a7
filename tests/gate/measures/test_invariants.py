"""What holds for every record: never an exception, never a pass out of nothing."""

from __future__ import annotations

import random
from typing import Any

import pytest
from arms import MS, latency, record, suite
from hypothesis import given, settings
from hypothesis import strategies as st

from servegate.compare import compare
from servegate.extract import facts
from servegate.facts import Facts
from servegate.metrics.table import METRICS
from servegate.record import RequestRecord, RunRecord
from servegate.verdict import DECIDED, Outcome, Verdict, decide

STAMPS = st.integers(-(2**61), 2**61) | st.integers(0, 10**10)
IDS = st.lists(st.integers(0, 2**32 - 1), max_size=4)
LOGPROBS = st.floats(-1e6, 0)
COUNTS = st.integers(0, 2**40) | st.integers(0, 20)
SMALL = st.text(max_size=3)
SIZES = SMALL | st.just("16")


@st.composite
def requests(draw: st.DrawFn, index: int) -> dict[str, Any]:
    arrivals = draw(st.lists(STAMPS, max_size=4))
    ids = draw(st.none() | IDS)
    return {
        "id": f"p{index}",
        "prompt_id": f"p{index}",
        "prompt_digest": draw(st.sampled_from("xy")),
        "scheduled_ns": draw(STAMPS),
        "sent_ns": draw(STAMPS),
        "arrivals_ns": arrivals,
        "frame_tokens": draw(st.none() | st.just([2] * len(arrivals))),
        "ended_ns": draw(STAMPS),
        "finish_reason": draw(st.none() | st.sampled_from(["stop", "length"])),
        "error": draw(st.none() | SMALL),
        "attempts": draw(st.integers(1, 3)),
        "token_ids": ids,
        "text": draw(st.none() | SMALL),
        "logprobs": None if ids is None else draw(st.none() | st.just([draw(LOGPROBS) for _ in ids])),
        "near_ties": draw(st.lists(st.integers(0, 4), max_size=2)),
        "usage": draw(
            st.none()
            | st.fixed_dictionaries(
                dict.fromkeys(("prompt_tokens", "cached_tokens", "completion_tokens"), COUNTS)
            )
        ),
    }


@st.composite
def workloads(draw: st.DrawFn, name: str) -> dict[str, Any]:
    rounds = [
        {
            "wall_ns": draw(STAMPS),
            "requests": [draw(requests(i)) for i in range(draw(st.integers(0, 3)))],
            "counters": draw(st.dictionaries(st.sampled_from(["steps", "peak_blocks"]), COUNTS)),
        }
        for _ in range(draw(st.integers(0, 2)))
    ]
    forced = [
        {"prompt_id": f"p{i}", "completion_ids": ids, "logprobs": [draw(LOGPROBS) for _ in ids]}
        for i, ids in enumerate(draw(st.lists(IDS, max_size=2)))
    ]
    return {
        "name": name,
        "kind": "closed",
        "numerics": draw(st.sampled_from(["reference", "native"])),
        "offered": draw(st.dictionaries(st.just("requests"), st.sampled_from("12"))),
        "rounds": rounds,
        "forced": forced,
    }


@st.composite
def records(draw: st.DrawFn) -> RunRecord:
    names = draw(st.lists(st.sampled_from("abc"), unique=True, max_size=2))
    return RunRecord.model_validate(
        {
            "suite": "s",
            "suite_digest": draw(SMALL),
            "prompt_set_digest": draw(SMALL),
            "created": draw(st.sampled_from(["2026-10-01T00:00:00Z", "yesterday", ""])),
            "fingerprint": {
                "machine": draw(st.dictionaries(st.just("cpu"), st.sampled_from("ab"))),
                "software": {},
                "served": draw(
                    st.dictionaries(
                        st.sampled_from(["engine.block_size", "engine.num_blocks"]), SMALL | st.just("16")
                    )
                ),
            },
            "workloads": [draw(workloads(name)) for name in names],
            "complete": draw(st.booleans()),
        }
    )


PRICES = {
    "per": 1000, "prompt": 1.0, "cached": 0.5, "completion": 4.0, "currency": "USD", "source": "a contract",
    "date": "2026-10-01",
}  # fmt: skip
SUITE = suite(
    {"ttft_p50": {"change": "10%"}, "completion_tokens": {"change": "5%"}, "token_ids": {"equal": True},
     "logprob_delta": {"max": "1e-6"}, "error_rate": {"max": "50%"}, "steps": {"equal": True},
     "missing": "pass"},
    prices=PRICES,
    quality=[{"prompt": "*", "contains": "a"}],
    pins={"engine": "servegate 0.1"},
)  # fmt: skip


def judged(base: RunRecord, head: RunRecord) -> Verdict:
    rows = compare(facts(base, SUITE), facts(head, SUITE), SUITE, allow_same=True)
    return decide(rows, SUITE.policy)


@settings(max_examples=50, deadline=None)
@given(records(), records())
def test_any_two_records_get_a_verdict_and_never_a_pass_out_of_nothing(
    base: RunRecord, head: RunRecord
) -> None:
    result = judged(base, head)
    assert result.exit_code in (0, 1, 3, 4)
    gating = [row for row in result.comparison.rows if row.gating]
    if result.outcome is Outcome.PASS:
        assert any(row.state in DECIDED and row.kind not in ("pin", "prompt", "workload") for row in gating)
        assert base.complete
        assert head.complete
    assert result.headline
    assert "\n" not in result.headline


@settings(max_examples=30, deadline=None)
@given(records())
def test_facts_survive_the_file_and_are_computed_again_bit_for_bit(run: RunRecord) -> None:
    known = facts(run, SUITE)
    assert Facts.model_validate_json(known.model_dump_json()) == known
    again = RunRecord.model_validate_json(run.model_dump_json())
    assert again == run
    assert facts(again, SUITE) == known


@settings(max_examples=30, deadline=None)
@given(records())
def test_the_same_run_never_regresses_against_itself(run: RunRecord) -> None:
    rows = compare(facts(run, SUITE), facts(run, SUITE), SUITE, allow_same=True).rows
    limits = ("error_rate", "logprob_delta")  # absolute: a run may break them all by itself
    assert not [
        r for r in rows if r.state.value == "regressed" and r.kind != "pin" and r.metric not in limits
    ]


def plain(seed: int, n: int = 30, scale: int = 1) -> list[RequestRecord]:
    rng = random.Random(seed)
    found = []
    for index in range(n):
        stamps = [rng.randrange(50, 200) * MS]
        for _ in range(9):
            stamps.append(stamps[-1] + rng.randrange(5, 40) * MS)
        found.append(
            RequestRecord.model_validate(
                {"id": f"p{index}", "prompt_id": f"p{index}", "prompt_digest": str(index), "scheduled_ns": 0,
                 "sent_ns": 2 * MS * scale, "arrivals_ns": [s * scale for s in stamps],
                 "ended_ns": stamps[-1] * scale, "finish_reason": "stop",
                 "usage": {"prompt_tokens": 10, "cached_tokens": 0, "completion_tokens": 10}}
            )
        )  # fmt: skip
    return found


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_requests_changes_nothing(seed: int) -> None:
    given_order = plain(seed)
    shuffled = random.Random(seed).sample(given_order, len(given_order))
    one, other = (
        facts(record(latency(*order))).workloads["latency"].metrics for order in (given_order, shuffled)
    )
    assert one == other


@pytest.mark.parametrize("scale", [2, 10])
def test_times_scaled_are_latencies_scaled(scale: int) -> None:
    one, other = (facts(record(latency(*plain(1, scale=s)))).workloads["latency"].metrics for s in (1, scale))
    for name, spec in METRICS.items():
        if spec.unit == "ms" and one[name].value is not None:
            assert other[name].value == pytest.approx(scale * one[name].value, rel=1e-9), name


def test_every_metric_says_what_it_is() -> None:
    for name, spec in METRICS.items():
        assert spec.name == name
        assert (spec.measure is None) != (spec.between is None)
        assert spec.says
        assert spec.kind != "timed" or spec.unit == "ms" or spec.unit.endswith("/s")
