"""Latencies, from arrival stamps to the number that is judged."""

from __future__ import annotations

import pytest
from arms import failed, latency, measured, record, request, round_of, value, workload

from servegate.extract import facts


def many(n: int, **settings: object) -> list:
    return [request(f"p{i}", **settings) for i in range(n)]


def test_ttft_counts_from_the_scheduled_send_and_beside_it_from_the_actual_one() -> None:
    """vllm#54101: with a cap on concurrency the service shows 506 ms, and who asked waited 1,932 ms."""
    late = many(20, due=0, sent=1432, first=1938)
    assert value("ttft_p95", *late) == 1938
    assert value("ttft_sent_p95", *late) == 506


def test_the_first_token_is_not_an_inter_token_latency() -> None:
    """vllm#7242, sglang#1005: TTFT was appended to the list of gaps."""
    requests = many(20, first=1000, gaps=[10] * 4)
    assert value("itl_p95", *requests) == 10
    assert value("decode_p95", *requests) == 10


def test_frames_of_several_tokens_are_divided_by_their_tokens() -> None:
    """llmperf#99, vllm#27485: the gap between chunks was called the gap between tokens."""
    requests = many(20, first=1000, gaps=[30] * 4, frame_tokens=[1, 3, 3, 3, 3])
    assert value("itl_p95", *requests) == 10
    sample = measured("decode_p95", *requests)
    assert sample is not None
    assert sample.value == 10
    assert sample.note == "80 of 80 frames hold several tokens; their gap is shared out among them"


def test_tokens_of_the_first_frame_are_not_part_of_the_decode_time() -> None:
    """aiperf#1279: 8 of 10 tokens came bundled in the first chunk, and (n - 1) made decode look fast."""
    requests = many(2, first=500, gaps=[20, 20], frame_tokens=[8, 1, 1])
    assert value("itl_p50", *requests) == 20


def test_chunks_whose_tokens_are_unknown_are_labelled_as_chunks() -> None:
    """vllm#27485: without a count in the stream, usage still tells that chunks held five tokens each."""
    requests = many(20, first=100, gaps=[50] * 9, usage=(10, 0, 50))
    assert value("itl_p50", *requests) == pytest.approx(9 * 50 / 49)
    sample = measured("decode_p95", *requests)
    assert sample is not None
    assert sample.note is not None
    assert "gaps between chunks, not tokens: usage counts 800 more tokens" in sample.note


def test_frames_of_one_read_are_one_frame() -> None:
    sample = measured("decode_p95", *many(20, gaps=[0, 30, 0, 0]))  # frames of 2 and 3 tokens, 30 ms apart
    assert sample is not None
    assert sample.value == 10
    assert sample.n == 20


def test_one_stall_in_fifty_gaps_shows_in_stall_and_not_in_decode() -> None:
    """peers: 40 requests, 50 tokens at 10 ms and one stall of 200 ms in each. p95 of pooled gaps is 10 ms."""
    requests = many(40, gaps=[10] * 48 + [200])
    assert value("decode_p95", *requests) == 10
    assert value("stall_p95", *requests) == 200
    assert value("stall_max", *requests) == 200
    assert value("itl_p95", *requests) == pytest.approx((48 * 10 + 200) / 49)


def test_end_to_end_ends_at_the_last_token() -> None:
    """tokenomics#16: latency ended when the usage chunk came, 300 ms after the last token."""
    requests = [request(f"p{i}", first=100, gaps=[10, 10], due=20, ended_ns=420_000_000) for i in range(2)]
    assert value("e2e_p50", *requests) == 100


@pytest.mark.parametrize(
    ("n", "p50", "p95", "p99"),
    [(1, None, None, None), (3, 2.0, None, None), (10, 5.5, None, None), (19, 10.0, None, None),
     (20, 10.5, 19.05, None), (99, 50.0, 94.1, None), (100, 50.5, 95.05, 99.01)],
)  # fmt: skip
def test_percentiles_interpolate_and_need_their_minimum_n(
    n: int, p50: float | None, p95: float | None, p99: float | None
) -> None:
    """cs249r_book#1936, agentic_security#329, metagraphed#1526, hey#120: p99 of three was the median."""
    requests = [request(f"p{i}", first=i + 1) for i in range(n)]
    assert value("ttft_p50", *requests) == p50
    assert value("ttft_p95", *requests) == p95
    assert value("ttft_p99", *requests) == p99


def test_too_few_says_how_many_are_needed() -> None:
    sample = measured("ttft_p95", *many(19))
    assert sample is not None
    assert (sample.value, sample.n, sample.invalid) == (None, 19, False)
    assert sample.note == "needs 20 values, has 19"


def test_all_requests_failed_is_no_value_and_never_zero() -> None:
    """vllm/benchmarks/serve.py: an empty list of latencies was reported as 0, the best there is."""
    for metric in ("ttft_p50", "itl_p50", "decode_p95", "stall_max", "e2e_p50", "throughput", "prefill"):
        sample = measured(metric, *[failed(f"p{i}") for i in range(30)])
        assert sample is not None, metric
        assert (sample.value, sample.n, sample.invalid) == (None, 0, True), metric
        assert sample.note == "all 30 requests failed"


@pytest.mark.parametrize("first", [0, -1_700_000_000_000])
def test_a_latency_of_zero_or_less_makes_the_metric_invalid(first: float) -> None:
    """guidellm#216: a TTFT of -1.7e12 ms. mlcommons/inference#1788: TTFT 0 passed every limit."""
    sample = measured("ttft_p95", *many(19), request("broken", first=first))
    assert sample is not None
    assert (sample.value, sample.invalid) == (None, True)
    assert sample.note == "1 of 20 values are zero or negative: the clock or the record is broken"


def test_frames_out_of_order_make_the_gaps_invalid() -> None:
    sample = measured("decode_p95", *many(19), request("broken", gaps=[10, -5, 10]))
    assert sample is not None
    assert sample.invalid


def test_a_reply_in_one_piece_has_no_gaps_at_all() -> None:
    """sglang#12389, sglang#6525: ITL printed as 0 ms for replies that do not stream."""
    requests = many(20, gaps=[], frame_tokens=[50])
    assert value("ttft_p95", *requests) == 100
    for metric in ("itl_p50", "decode_p95", "stall_p95"):
        assert measured(metric, *requests) is None


def test_tokens_that_were_metered_and_never_seen_are_a_failure() -> None:
    """llm_context_benchmarks#10: the server renamed its field, and TTFT became 0 without a word."""
    unseen = request("p0", usage=(10, 0, 500), arrivals_ns=[], token_ids=None)
    assert value("error_rate", unseen, request("p1")) == 0.5
    sample = measured("ttft_p50", unseen)
    assert sample is not None
    assert sample.invalid


def test_failed_requests_never_improve_a_latency() -> None:
    slow = [request(f"p{i}", first=1000) for i in range(20)]
    assert value("ttft_p95", *slow, *[failed(f"x{i}") for i in range(20)]) == 1000
    assert value("throughput", *slow) == value("throughput", *slow, failed())


def test_throughput_is_tokens_over_wall_time() -> None:
    run = record(workload(round_of(request(), request("p1"), wall=500), round_of(request(), wall=500)))
    sample = facts(run).workloads["latency"].metrics["throughput"]
    assert sample.value == 15  # three answers of five tokens in a second
    assert sample.per_round == (20, 10)
    assert facts(run).workloads["latency"].metrics["request_throughput"].value == 3


def test_prefill_counts_the_tokens_that_were_computed() -> None:
    assert value("prefill", request(first=100, usage=(300, 100, 5))) == 2000  # 200 tokens in 0.1 s
    assert measured("prefill", request(usage=None)) is None


def test_each_round_is_kept_beside_the_whole() -> None:
    rounds = [round_of(*[request(f"p{i}", first=first) for i in range(20)]) for first in (100, 200)]
    sample = facts(record(workload(*rounds))).workloads["latency"].metrics["ttft_p50"]
    assert (sample.value, sample.n, sample.per_round) == (150, 40, (100, 200))


def test_reference_numerics_keep_no_time() -> None:
    run = record(workload(round_of(*many(20)), numerics="reference"), latency(*many(20), name="native"))
    kept = facts(run).workloads
    assert "ttft_p95" in kept["native"].metrics
    assert not {"ttft_p95", "throughput", "stall_max"} & kept["latency"].metrics.keys()
    assert "completion_tokens" in kept["latency"].metrics


def test_an_answer_without_tokens_divides_nothing() -> None:
    """sglang#26497: a chunk that re-tokenised to no tokens was a division by zero."""
    silent = [request(f"e{i}", arrivals_ns=[], usage=(10, 0, 0)) for i in range(3)]
    for metric in ("ttft_p50", "itl_p50", "decode_p95", "throughput", "prefill"):
        assert measured(metric, *silent) is None
    assert value("error_rate", *silent) == 0
    assert measured("itl_p50", request(usage=(10, 0, 1)), request("b", usage=(10, 0, 0))) is None


def test_two_poisoned_samples_of_ten_do_not_move_a_median() -> None:
    """poseidon-http-server#129: two of ten at 1.8 times gave the mean an interval of 51 %."""
    clean = [request(f"p{i}", first=100 + i) for i in range(8)]
    poisoned = [request(f"q{i}", first=180) for i in range(2)]
    assert value("ttft_p50", *clean, *poisoned) == 104.5
