"""Prefix cache, block size and chunks: they change when a value is computed, never what it is."""

from __future__ import annotations

import pytest
from fakes import collect, make_engine, make_request, prompt, run, run_alone, used_blocks


@pytest.mark.parametrize("length", [4, 8, 12])
def test_prompt_of_whole_blocks_twice(length: int) -> None:
    """engines.md 1 (nano-vllm#114): everything cached, nothing left to compute, a launch error."""
    engine, _ = make_engine()
    cold, warm = make_request("cold", prompt(length)), make_request("warm", prompt(length))
    first = run(engine, [cold])["cold"]
    second = run(engine, [warm])["warm"]
    assert (first.token_ids, first.logprobs) == (second.token_ids, second.logprobs)
    assert warm.meter.computed == 4, "the last block is computed again: its last logits are needed"
    assert warm.meter.cached == length - 4


def test_engines_do_not_share_their_settings() -> None:
    """engines.md 7 (nano-vllm): a second engine with another block size changed the first."""
    small, _ = make_engine(block_size=4)
    large, _ = make_engine(block_size=8)
    requests = {engine: make_request("a", prompt(9, i), 12) for i, engine in enumerate((small, large))}
    results: dict[str, dict] = {}  # type: ignore[type-arg]
    for engine, request in requests.items():
        engine.add(request)
    while small.has_work or large.has_work:
        for name, engine in (("small", small), ("large", large)):
            collect(results.setdefault(name, {}), engine.step())
            engine.check()
    assert results["small"]["a"].token_ids == run_alone(requests[small]).token_ids
    assert results["large"]["a"].token_ids == run_alone(requests[large]).token_ids


def test_requests_finishing_in_their_first_step_leak_nothing() -> None:
    """engines.md 5 (sglang#10871): max_tokens=1 finished in prefill and kept its slot."""
    engine, _ = make_engine(num_blocks=16, max_queue=1000)
    for i in range(1000):
        engine.add(make_request(f"r{i}", prompt(3 + i % 7, i), max_tokens=1))
    while engine.has_work:
        engine.step()
    engine.check()
    assert used_blocks(engine) == 0


def test_two_requests_on_one_prefix_hold_it_once() -> None:
    """engines.md 6 (sglang#35270): shared pages were counted twice."""
    engine, _ = make_engine()
    run(engine, [make_request("warm", prompt(8), 1)])
    engine.reset_counters()
    run(engine, [make_request("a", prompt(9), 2), make_request("b", prompt(9), 3)])
    assert engine.counters.peak_blocks == 2 + 2, "two shared, one each for the rest"
    assert used_blocks(engine) == 0


def test_same_prefix_computed_side_by_side_is_kept_once() -> None:
    engine, _ = make_engine()
    for name in "ab":
        engine.add(make_request(name, prompt(8), 3))
    engine.step()
    assert used_blocks(engine) == 2
    engine.check()


@pytest.mark.parametrize("warm_blocks", [0, 1, 2, 3])
@pytest.mark.parametrize("budget", [8, 64])
def test_any_hit_length_gives_the_same_result(warm_blocks: int, budget: int) -> None:
    """engines.md 15 (vllm#46592, #38561): the hit length changed the shape of the remaining chunk."""
    engine, _ = make_engine(max_batched_tokens=budget)
    if warm_blocks:
        run(engine, [make_request("warm", prompt(4 * warm_blocks), 1)])
    request = make_request("a", prompt(14))
    result = run(engine, [request])["a"]
    alone = run_alone(request)
    assert (result.token_ids, result.logprobs) == (alone.token_ids, alone.logprobs)
    assert request.meter.cached == 4 * warm_blocks


def test_three_identical_requests_in_a_row() -> None:
    """engines.md 12 (llama.cpp#4902): the cached repeat differed at temperature 0."""
    engine, _ = make_engine()
    results = [run(engine, [make_request("a", prompt(10))])["a"] for _ in range(3)]
    assert results[0].token_ids == results[1].token_ids == results[2].token_ids
    assert results[0].logprobs == results[1].logprobs == results[2].logprobs


def test_one_prompt_in_eight_seats_gives_one_completion() -> None:
    """engines.md 17 (llama.cpp#7052): eight slots, one prompt, five to eight different completions."""
    engine, _ = make_engine()
    results = run(engine, [make_request(f"r{i}", prompt(10), temperature=0.8, seed=3) for i in range(8)])
    assert len({tuple(result.token_ids) for result in results.values()}) == 1
    assert len({tuple(result.logprobs) for result in results.values()}) == 1


@pytest.mark.parametrize("block_size", [1, 2, 3, 5, 16, 64, 256])
@pytest.mark.parametrize("budget", [8, 11, 300])
def test_block_size_and_chunks_do_not_show_in_the_result(block_size: int, budget: int) -> None:
    engine, _ = make_engine(
        block_size=block_size, num_blocks=-(-512 // block_size), max_batched_tokens=budget
    )
    requests = [make_request(f"r{i}", prompt(1 + 9 * i, i % 2), 6, temperature=1.0) for i in range(5)]
    results = run(engine, requests)
    for request in requests:
        alone = run_alone(request)
        assert (results[request.id].token_ids, results[request.id].logprobs) == (
            alone.token_ids,
            alone.logprobs,
        )


def test_next_turn_of_a_chat_finds_prompt_and_answer() -> None:
    engine, _ = make_engine()
    first = make_request("turn1", prompt(10), 9)
    answer = run(engine, [first])["turn1"].token_ids
    second = make_request("turn2", (*prompt(10), *answer, *prompt(3, 5)), 2)
    run(engine, [second])
    assert second.meter.cached == 16, "18 tokens had KV: four whole blocks"


def test_cache_off_computes_everything() -> None:
    engine, _ = make_engine(prefix_cache=False)
    for _ in range(2):
        request = make_request("a", prompt(12))
        run(engine, [request])
        assert request.meter.cached == 0


def test_reset_prefix_cache_while_running() -> None:
    engine, _ = make_engine()
    request = make_request("a", prompt(9))
    engine.add(request)
    engine.step()
    engine.reset_prefix_cache()
    result = run(engine)["a"]
    assert result.token_ids == run_alone(request).token_ids[1:]
    again = make_request("b", prompt(9))
    run(engine, [again])
    assert again.meter.cached == 0


def test_only_whole_prefixes_of_full_ids_are_found() -> None:
    """engines.md 8 (vllm-mlx#444) on the engine: a prompt that differs in one early id shares nothing."""
    engine, _ = make_engine()
    run(engine, [make_request("a", prompt(12))])
    changed = make_request("b", (prompt(12)[0] ^ 1, *prompt(12)[1:]))
    result = run(engine, [changed])["b"]
    assert changed.meter.cached == 0
    assert result.token_ids == run_alone(changed).token_ids
