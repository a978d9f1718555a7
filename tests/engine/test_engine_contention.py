"""Too little room, preemption, cancellation: no result may depend on them."""

from __future__ import annotations

import pytest
from fakes import (
    EOS,
    Result,
    assert_as_alone,
    assert_meter_adds_up,
    collect,
    favour,
    hash_logits,
    make_engine,
    make_request,
    preempt,
    prompt,
    run,
    run_alone,
    used_blocks,
)

from servegate_engine.engine import Engine
from servegate_engine.errors import StalledError
from servegate_engine.request import FinishReason


def test_readmitted_request_hits_the_cache_it_filled() -> None:
    """engines.md 2 (nano-vllm#207, #211): the schedule was computed before the hit was known."""
    engine, _ = make_engine(num_blocks=5)
    requests = [make_request(name, (*prompt(4), *prompt(3, i)), 9) for i, name in enumerate("ab")]
    results = run(engine, requests)
    assert engine.counters.preemptions > 0
    for request in requests:
        assert_as_alone(request, results[request.id])


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("at", range(14))
def test_preemption_at_every_step_changes_nothing(at: int, cache: bool) -> None:
    """engines.md 26 (vllm-gaudi#524): a resumed request appended twice or took up decode too early."""
    engine, _ = make_engine(max_batched_tokens=4, max_num_seqs=2, prefix_cache=cache)
    requests = [make_request("a", prompt(9), 6), make_request("b", prompt(6, 1), 6)]
    for request in requests:
        engine.add(request)
    results: dict[str, Result] = {}
    for step in range(100):
        if step in (at, at + 1):
            preempt(engine)
        collect(results, engine.step(), step)
        engine.check()
        if not engine.has_work:
            break
    for request in requests:
        assert_as_alone(request, results[request.id])
        assert_meter_adds_up(request, results[request.id])


@pytest.mark.parametrize("generated", [1, 2, 5])
def test_resumed_request_recomputes_prompt_and_output(generated: int) -> None:
    """engines.md 27 (vllm-ascend#11334): the resume took the prompt's length, not the current one."""
    engine, backend = make_engine(prefix_cache=False)
    engine.add(make_request("a", prompt(7), 9))
    for _ in range(generated):
        engine.step()
    preempt(engine)
    engine.step()
    assert backend.batches[-1].positions == tuple(range(7 + generated))


def test_recompute_is_counted_apart() -> None:
    """engines.md 54: recompute must not inflate what is billed."""
    engine, _ = make_engine(prefix_cache=False)
    request = make_request("a", prompt(7), 9)
    engine.add(request)
    for _ in range(3):
        engine.step()
    preempt(engine)
    run(engine)
    assert (request.meter.computed, request.meter.recomputed, request.meter.completion) == (7, 9, 9)
    assert request.meter.preemptions == 1
    counters = engine.counters
    assert (counters.prefill_tokens, counters.recomputed_tokens, counters.decode_tokens) == (16, 9, 9)


def test_preemption_in_the_middle_of_a_prompt_keeps_the_meter_right() -> None:
    engine, _ = make_engine(max_batched_tokens=8)
    request = make_request("a", prompt(22), 2)
    engine.add(request)
    engine.step()
    preempt(engine)
    run(engine)
    assert (request.meter.cached, request.meter.computed, request.meter.recomputed) == (0, 22, 0)
    assert_meter_adds_up(request, run_alone(request))


def test_tokens_that_a_neighbour_computed_meanwhile_are_cached_not_computed() -> None:
    engine, _ = make_engine(max_batched_tokens=12)
    ahead, behind = make_request("ahead", prompt(22), 2), make_request("behind", prompt(22), 2)
    engine.add(ahead)
    engine.add(behind)
    engine.step()
    assert (ahead.num_computed, behind.num_computed) == (9, 3)
    preempt(engine)
    results = run(engine)
    assert (behind.meter.cached, behind.meter.computed) == (8 - 3, 3 + 22 - 8)
    assert engine.counters.cached_tokens == 5
    assert_meter_adds_up(behind, results["behind"])


def test_penalties_and_min_tokens_survive_preemption() -> None:
    """engines.md 25 (vllm#5349): after recompute, outputs were counted as prompt."""
    params = {"presence_penalty": 1.5, "frequency_penalty": 0.5, "repetition_penalty": 1.2, "min_tokens": 6}
    logits_of = favour(EOS, after=12, base=favour(9))
    requests = [make_request(f"r{i}", prompt(7, i), 12, **params) for i in range(3)]
    engine, _ = make_engine(logits_of=logits_of, eos=[EOS], num_blocks=8)
    results = run(engine, requests)
    assert engine.counters.preemptions > 0
    for request in requests:
        assert_as_alone(request, results[request.id], logits_of=logits_of, eos=[EOS])
        assert EOS not in results[request.id].token_ids[:6]


def test_preempted_scoring_goes_on_where_it_was() -> None:
    engine, _ = make_engine(max_batched_tokens=3, max_num_seqs=2)
    request = make_request("s", prompt(6), score=prompt(15, 1))
    engine.add(request)
    results: dict[str, Result] = {}
    for step in range(40):
        if not engine.has_work:
            break
        if step % 3 == 2:
            preempt(engine)
        collect(results, engine.step(), step)
        engine.check()
    assert request.meter.preemptions > 1
    assert_as_alone(request, results["s"])
    assert_meter_adds_up(request, results["s"])


def test_request_too_big_for_now_runs_as_soon_as_there_is_room() -> None:
    """engines.md 20 (inference-sim#1061): the head could not allocate and nothing ran again."""
    engine, _ = make_engine(num_blocks=4)
    results = run(
        engine,
        [make_request("a", prompt(6), 6), make_request("big", prompt(15, 1), 2), make_request("b", (5,), 2)],
    )
    assert {name: result.finish for name, result in results.items()} == dict.fromkeys(
        ("a", "big", "b"), FinishReason.LENGTH
    )


def test_engine_that_cannot_go_on_says_so() -> None:
    """engines.md 21 (vllm#45387): running 0, waiting N, for ever."""
    engine, _ = make_engine(num_blocks=2)
    engine._scheduler.pool.allocate(1)  # a leak
    engine.add(make_request("a", prompt(8)))
    with pytest.raises(StalledError, match="no request can run"):
        engine.step()


def test_decode_never_waits_for_a_prompt() -> None:
    """engines.md 22 (sglang#32549): one decode step in 24 seconds while prompts kept coming."""
    engine, _ = make_engine(num_blocks=500, max_batched_tokens=16)
    engine.add(make_request("decoder", prompt(4), 30))
    results: dict[str, Result] = {}
    for step in range(30):
        collect(results, engine.step(), step)
        engine.add(make_request(f"r{step}", prompt(40, step), 1))
    assert results["decoder"].steps == list(range(30))


def test_outputs_of_many_requests_in_a_tiny_pool() -> None:
    engine, _ = make_engine(num_blocks=9, max_batched_tokens=16)
    requests = [
        make_request(f"r{i}", prompt(3 + i, i % 3), 4 + i, temperature=1.0, seed=i) for i in range(12)
    ]
    results = run(engine, requests)
    counters = engine.counters
    assert counters.preemptions > 0
    assert counters.evictions > 0
    for request in requests:
        assert_as_alone(request, results[request.id])
        assert_meter_adds_up(request, results[request.id])
    meters = [request.meter for request in requests]
    assert counters.prefill_tokens == sum(meter.computed + meter.recomputed for meter in meters)
    assert counters.recomputed_tokens == sum(meter.recomputed for meter in meters)
    assert counters.cached_tokens == sum(meter.cached for meter in meters)
    assert counters.decode_tokens == sum(meter.completion for meter in meters)
    assert counters.preemptions == sum(meter.preemptions for meter in meters)
    assert counters.peak_blocks <= 9


def test_model_runs_exactly_the_tokens_that_are_counted() -> None:
    engine, backend = make_engine(num_blocks=9, max_batched_tokens=16)
    requests = [make_request(f"r{i}", prompt(3 + i, i % 3), 4 + i) for i in range(12)]
    run(engine, requests)
    decode_inputs = sum(request.meter.completion - 1 for request in requests)
    ran = sum(len(batch.token_ids) for batch in backend.batches)
    assert ran == engine.counters.prefill_tokens + decode_inputs
    assert engine.counters.steps == len(backend.batches)


def in_queue(engine: Engine) -> None:
    """Not started."""


def mid_chunk(engine: Engine) -> None:
    engine.step()


def decoding(engine: Engine) -> None:
    for _ in range(5):
        engine.step()


def preempted(engine: Engine) -> None:
    decoding(engine)
    preempt(engine)


@pytest.mark.parametrize("reach", [in_queue, mid_chunk, decoding, preempted])
def test_abort_releases_in_every_state(reach: object) -> None:
    """engines.md 4 (sglang#20182): abort while waiting leaked what matching had taken."""
    engine, _ = make_engine(max_batched_tokens=8)
    engine.add(make_request("a", prompt(22), 9))
    reach(engine)  # type: ignore[operator]
    results: dict[str, Result] = {}
    assert engine.abort("a") is True
    assert engine.abort("a") is False, "a second abort does nothing"
    engine.check()
    assert used_blocks(engine) == 0
    collect(results, engine.step())
    assert results["a"].finish is FinishReason.ABORTED
    assert not engine.has_work


def test_abort_of_unknown_and_finished_requests_does_nothing() -> None:
    engine, _ = make_engine()
    result = run(engine, [make_request("a", prompt(4), 1)])["a"]
    assert result.finish is FinishReason.LENGTH
    assert engine.abort("a") is False
    assert engine.abort("nobody") is False
    assert not engine.has_work


def test_abort_of_siblings_releases_all() -> None:
    """engines.md 28 (vllm#14512): aborting an n=3 parent left its children running."""
    engine, _ = make_engine()
    names = [f"parent/{i}" for i in range(3)]
    for i, name in enumerate(names):
        engine.add(make_request(name, prompt(9), 20, temperature=1.0, seed=i))
    engine.step()
    engine.step()
    assert [engine.abort(name) for name in names] == [True] * 3
    assert used_blocks(engine) == 0
    assert [event.finish_reason for event in engine.step()] == [FinishReason.ABORTED] * 3


def test_neighbours_of_an_aborted_request_do_not_notice() -> None:
    engine, _ = make_engine(num_blocks=12)
    stays, goes = make_request("stays", prompt(9), 9), make_request("goes", prompt(9), 9)
    results: dict[str, Result] = {}
    for request in (goes, stays):
        engine.add(request)
    for step in range(3):
        collect(results, engine.step(), step)
    engine.abort("goes")
    while engine.has_work:
        collect(results, engine.step())
        engine.check()
    assert_as_alone(stays, results["stays"])
    assert results["goes"].token_ids == results["stays"].token_ids[:3]


def test_wrong_page_is_noticed() -> None:
    """Inverse: the backend of these tests does catch a table that points at other KV."""
    engine, backend = make_engine()
    engine.add(make_request("a", prompt(9), 9))
    engine.step()
    backend.pages[1], backend.pages[2] = backend.pages[2], backend.pages[1]
    with pytest.raises(AssertionError, match="reads the KV of position"):
        engine.step()


def test_fake_model_tells_any_two_prefixes_apart() -> None:
    assert hash_logits((5, 6)) != hash_logits((6, 5)) != hash_logits((5, 6, 0))
