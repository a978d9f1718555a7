"""Lengths, usage, errors, counters and cost."""

from __future__ import annotations

import pytest
from arms import behaviour, failed, measured, record, request, round_of, suite, value, workload

from servegate.extract import facts

TOKEN_PRICES = {
    "per": 1000, "prompt": 1.0, "cached": 0.5, "completion": 4.0, "currency": "USD", "source": "a contract",
    "date": "2026-10-01",
}  # fmt: skip


def test_completion_tokens_do_not_depend_on_how_often_a_round_was_repeated() -> None:
    once = round_of(request("a", gaps=[10] * 9), request("b", gaps=[10] * 4))
    for rounds in ([once], [once, once, once]):
        metrics = facts(record(workload(*rounds))).workloads["latency"].metrics
        assert metrics["completion_tokens"].value == 15
        assert metrics["completion_tokens_mean"].value == 7.5


def test_usage_comes_first_and_a_mismatch_is_counted() -> None:
    """inference-perf#564: a client tokenizer added one BOS a chunk and nobody saw it for two months."""
    inflated = request("a", gaps=[10] * 9, ids=range(20), usage=(10, 0, 10))
    assert value("completion_tokens", inflated) == 10
    assert value("usage_mismatch", inflated, request("b")) == 1
    assert value("usage_mismatch", request("b")) == 0


def test_without_usage_there_is_no_usage_metric() -> None:
    for metric in ("prompt_tokens", "cached_tokens", "usage_mismatch"):
        assert measured(metric, request(usage=None)) is None
    assert value("completion_tokens", request(usage=None)) == 5


def test_half_of_the_answers_empty_is_seen() -> None:
    """tenstorrent/vllm#354: outputs had either 128 or 0 tokens, and the mean looked fine."""
    empty = [request(f"e{i}", arrivals_ns=[], usage=(10, 0, 0)) for i in range(2)]
    assert value("empty_answers", *empty, request("a"), request("b")) == 0.5
    assert measured("ttft_p50", *empty) is None


def test_an_answer_that_differs_between_rounds_is_unstable() -> None:
    rounds = [round_of(request("a", ids=[1, 2, 3, 4, last]), request("b", ids=[1])) for last in (5, 6)]
    sample = facts(record(workload(*rounds))).workloads["latency"].metrics["unstable_prompts"]
    assert (sample.value, sample.n) == (1, 2)
    assert measured("unstable_prompts", request("a", ids=[1])) is None


def test_recomputed_tokens_are_not_cached_ones() -> None:
    """vllm#25787: preempted tokens counted as prefix hits, a hit rate of 30 % where it was 0.2 %."""
    preempted = request(usage=(100, 2, 5, 98))
    assert value("cached_tokens", preempted) == 2
    assert value("recomputed_tokens", preempted) == 98


def test_counters_are_totals_and_peaks_of_a_round() -> None:
    run = record(
        workload(
            round_of(request(), counters={"steps": 10, "peak_blocks": 7}),
            round_of(request(), counters={"steps": 12, "peak_blocks": 5}),
        )
    )
    metrics = facts(run).workloads["latency"].metrics
    assert (metrics["steps"].value, metrics["peak_blocks"].value) == (11, 7)
    assert "evictions" not in metrics


def test_kv_concurrency_is_how_many_of_the_longest_requests_fit() -> None:
    """100 blocks of 16; the longest request has 10 + 23 = 33 tokens and takes 3 blocks."""
    run = record(
        behaviour(request("a", gaps=[10] * 22), request("b")),
        served={"engine.block_size": "16", "engine.num_blocks": "100"},
    )
    assert facts(run).workloads["behaviour"].metrics["kv_concurrency"].value == 33


def test_cost_prices_each_kind_of_token() -> None:
    """(60 computed * 1 + 40 cached * 0.5 + 5 completion * 4) / 1000 = 0.1."""
    assert value("cost_per_request", request(usage=(100, 40, 5)), prices=TOKEN_PRICES) == pytest.approx(0.1)


def test_every_attempt_is_charged_and_recompute_is_not() -> None:
    once = value("cost_per_request", request(usage=(100, 0, 5)), prices=TOKEN_PRICES)
    assert once is not None
    again = value("cost_per_request", request(usage=(100, 0, 5), attempts=3), prices=TOKEN_PRICES)
    assert again == pytest.approx(3 * once)
    recomputed = request(usage=(100, 0, 5, 500))
    assert value("cost_per_request", recomputed, prices=TOKEN_PRICES) == once


def test_an_answer_without_usage_has_an_unknown_cost_and_not_none() -> None:
    sample = measured("cost_per_request", request(usage=None), request("b"), prices=TOKEN_PRICES)
    assert sample is not None
    assert (sample.value, sample.invalid) == (None, True)
    assert sample.note == "1 answers came without usage: their cost is unknown, and not zero"


def test_failures_do_not_make_answers_cheaper() -> None:
    """A failed request that used tokens is paid for, and spread over those that answered."""
    paid = request("x", error="cut off", usage=(100, 0, 5))
    alone = value("cost_per_request", request(usage=(100, 0, 5)), prices=TOKEN_PRICES)
    assert alone is not None
    assert value("cost_per_request", request(usage=(100, 0, 5)), paid, prices=TOKEN_PRICES) == 2 * alone
    assert value("cost_per_request", request(usage=(100, 0, 5)), failed(), prices=TOKEN_PRICES) == alone


def test_a_machine_hour_is_shared_by_the_answers() -> None:
    """3.6 an hour is 0.001 a second; two answers in one second. Reference numerics have no such cost."""
    prices = {"machine_hour": 3.6, "currency": "USD", "source": "a list", "date": "2026-10-01"}
    assert value("cost_per_request", request(), request("b"), prices=prices) == pytest.approx(0.0005)
    assert (
        "cost_per_request"
        not in facts(record(behaviour(request())), suite(prices=prices)).workloads["behaviour"].metrics
    )
