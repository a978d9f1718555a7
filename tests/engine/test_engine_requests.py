"""What one request gets: admission, stops, finish reasons, scoring, meters."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict

import pytest
import torch
from fakes import (
    EOS,
    VOCAB,
    ByteTokenizer,
    Result,
    collect,
    favour,
    hash_logits,
    make_engine,
    make_request,
    prompt,
    run,
    run_alone,
    used_blocks,
)

from servegate_engine.batch import StepBatch
from servegate_engine.errors import ConfigError, InvariantError, QueueFullError, RequestError
from servegate_engine.request import FinishReason, Request, SamplingParams


def test_greedy_tokens_are_those_of_the_model() -> None:
    engine, _ = make_engine()
    request = make_request("a", prompt(6), max_tokens=5)
    result = run(engine, [request])["a"]
    tokens = list(prompt(6))
    for token_id, logprob in zip(result.token_ids, result.logprobs, strict=True):
        logits = torch.tensor(hash_logits(tuple(tokens)), dtype=torch.float64)
        assert token_id == int(logits.argmax())
        assert logprob == pytest.approx(float(logits.log_softmax(0)[token_id]), abs=1e-12)
        tokens.append(token_id)
    assert request.token_ids == tokens


@pytest.mark.parametrize("max_tokens", [0, 1, 2])
def test_max_tokens_is_exact(max_tokens: int) -> None:
    """engines.md 48 (nano-vllm): max_tokens=0 ran for ever."""
    engine, _ = make_engine()
    result = run(engine, [make_request("a", prompt(5), max_tokens)])["a"]
    assert len(result.token_ids) == max_tokens
    assert result.finish is FinishReason.LENGTH


def test_zero_tokens_cost_no_step() -> None:
    engine, _ = make_engine()
    run(engine, [make_request("a", prompt(5), max_tokens=0)])
    assert engine.counters.steps == 0


@pytest.mark.parametrize(
    ("eos_at", "tokens", "reason"),
    [(3, 3, FinishReason.STOP), (4, 4, FinishReason.STOP), (99, 4, FinishReason.LENGTH)],
)
def test_eos_before_at_and_after_max_tokens(eos_at: int, tokens: int, reason: FinishReason) -> None:
    """engines.md 45 (llama.cpp#7198, FastDeploy#4543, pegainfer#238): the reason was always the same one."""
    engine, _ = make_engine(logits_of=favour(EOS, after=5 + eos_at - 1), eos=[EOS])
    result = run(engine, [make_request("a", prompt(5), max_tokens=4, min_tokens=min(eos_at - 1, 4))])["a"]
    assert (len(result.token_ids), result.finish) == (tokens, reason)


@pytest.mark.parametrize("min_tokens", range(5))
def test_min_tokens_allows_eos_right_after(min_tokens: int) -> None:
    """engines.md 41 (vllm#46243): min_tokens=N forced N+1 tokens before the end."""
    engine, _ = make_engine(logits_of=favour(EOS), eos=[EOS])
    result = run(engine, [make_request("a", prompt(5), max_tokens=9, min_tokens=min_tokens)])["a"]
    assert len(result.token_ids) == min_tokens + 1
    assert EOS not in result.token_ids[:-1]
    assert result.finish is FinishReason.STOP


def test_min_tokens_equal_to_max_tokens_never_ends_in_eos() -> None:
    engine, _ = make_engine(logits_of=favour(EOS), eos=[EOS])
    result = run(engine, [make_request("a", prompt(5), max_tokens=3, min_tokens=3)])["a"]
    assert EOS not in result.token_ids
    assert result.finish is FinishReason.LENGTH


def test_min_tokens_masks_every_stop_id_also_after_a_round_trip_through_json() -> None:
    """engines.md 42 (vllm#5849, #15407): the second end-of-text id was not masked, or lost on the wire."""
    params = SamplingParams(max_tokens=9, min_tokens=4, stop_token_ids=(7,))
    sent = SamplingParams(**json.loads(json.dumps(asdict(params))))
    engine, _ = make_engine(logits_of=favour(EOS, base=favour(2, base=favour(7))), eos=[EOS, 2])
    result = run(engine, [Request("a", prompt(5), sent)])["a"]
    assert not {EOS, 2, 7} & set(result.token_ids[:-1])
    assert len(result.token_ids) == 5


def test_stop_string_waits_for_min_tokens() -> None:
    """engines.md 43 (vllm#21987, #26317): a stop string ended the request before min_tokens."""
    tokenizer = ByteTokenizer()
    letter = tokenizer.ids("X")[0]
    engine, _ = make_engine(logits_of=favour(letter), tokenizer=tokenizer)
    result = run(engine, [make_request("a", prompt(5), 9, min_tokens=3, stop=("X",))])["a"]
    assert result.token_ids == [letter] * 3
    assert result.text == "XX"
    assert result.finish is FinishReason.STOP


def test_ignore_eos_runs_to_the_length() -> None:
    engine, _ = make_engine(logits_of=favour(EOS), eos=[EOS])
    result = run(engine, [make_request("a", prompt(5), 4, ignore_eos=True, min_tokens=2)])["a"]
    assert result.token_ids == [EOS] * 4
    assert result.finish is FinishReason.LENGTH


def say(tokenizer: ByteTokenizer, ids: Sequence[int], prompt_length: int) -> Callable[..., Sequence[float]]:
    """A model that says ``ids`` after any prompt of that length, then EOS."""

    def logits_of(prefix: tuple[int, ...]) -> Sequence[float]:
        said = len(prefix) - prompt_length
        logits = [0.0] * VOCAB
        logits[ids[said] if said < len(ids) else EOS] = 9.0
        return logits

    return logits_of


def test_stop_string_across_tokens_is_cut_and_never_leaks() -> None:
    tokenizer = ByteTokenizer()
    engine, _ = make_engine(
        logits_of=say(tokenizer, tokenizer.ids("ABCDEF"), 3), eos=[EOS], tokenizer=tokenizer
    )
    engine.add(make_request("a", prompt(3), 20, stop=("CDE",)))
    texts = []
    results: dict[str, Result] = {}
    while engine.has_work:
        events = engine.step()
        texts += [event.text for event in events]
        collect(results, events)
    assert texts == ["A", "B", "", "", ""]
    assert results["a"].text == "AB"
    assert results["a"].token_ids == list(tokenizer.ids("ABCDE"))
    assert results["a"].finish is FinishReason.STOP


def test_held_back_text_is_released_at_the_length() -> None:
    tokenizer = ByteTokenizer()
    engine, _ = make_engine(logits_of=say(tokenizer, tokenizer.ids("ABCDEF"), 3), tokenizer=tokenizer)
    result = run(engine, [make_request("a", prompt(3), 4, stop=("CDE",))])["a"]
    assert (result.text, result.finish) == ("ABCD", FinishReason.LENGTH)


def test_stop_string_at_exactly_max_tokens_is_a_stop() -> None:
    tokenizer = ByteTokenizer()
    engine, _ = make_engine(logits_of=say(tokenizer, tokenizer.ids("ABCDEF"), 3), tokenizer=tokenizer)
    result = run(engine, [make_request("a", prompt(3), 5, stop=("DE",))])["a"]
    assert (result.text, result.finish) == ("ABC", FinishReason.STOP)


def test_stop_id_has_its_id_and_logprob_but_no_text() -> None:
    tokenizer = ByteTokenizer()
    stop_id = tokenizer.ids("C")[0]
    engine, _ = make_engine(logits_of=say(tokenizer, tokenizer.ids("ABCD"), 3), tokenizer=tokenizer)
    result = run(engine, [make_request("a", prompt(3), 9, stop_token_ids=(stop_id,), stop=("BX",))])["a"]
    assert result.text == "AB", "what was held for the stop string comes out first"
    assert result.token_ids == list(tokenizer.ids("ABC"))
    assert result.finish is FinishReason.STOP


def test_split_character_waits_for_its_second_byte() -> None:
    tokenizer = ByteTokenizer()
    engine, _ = make_engine(logits_of=say(tokenizer, [2, 3, 10], 3), eos=[EOS], tokenizer=tokenizer)
    engine.add(make_request("a", prompt(3), 9))
    texts = [event.text for _ in range(4) for event in engine.step()]
    assert texts == ["", "é", "G", ""]


def test_context_cap_ends_a_request() -> None:
    engine, _ = make_engine(max_position=10)
    result = run(engine, [make_request("a", prompt(7), max_tokens=50)])["a"]
    assert (len(result.token_ids), result.finish) == (3, FinishReason.CONTEXT)


def test_own_limit_comes_before_the_context() -> None:
    engine, _ = make_engine(max_position=10)
    assert run(engine, [make_request("a", prompt(7), max_tokens=3)])["a"].finish is FinishReason.LENGTH


def test_generation_that_outgrows_the_pool_ends_with_what_fits() -> None:
    """engines.md 19 (nano-vllm): 2 blocks of 4, prompt 6, max_tokens 50 was an assertion error."""
    engine, _ = make_engine(num_blocks=2)
    request = make_request("a", prompt(6), max_tokens=50)
    result = run(engine, [request])["a"]
    assert result.finish is FinishReason.NO_ROOM
    assert result.token_ids == run_alone(make_request("a", prompt(6), max_tokens=3)).token_ids


@pytest.mark.parametrize("max_model_len", [None, 12])
def test_over_long_prompt_is_refused_and_the_rest_goes_on(max_model_len: int | None) -> None:
    """engines.md 24 (sglang#3910, vllm#12600): an over-long prompt killed the engine or got no answer."""
    engine, _ = make_engine(max_position=12, max_model_len=max_model_len)  # type: ignore[arg-type]
    for length in (12, 13):
        with pytest.raises(RequestError, match="exceed the context of 12"):
            engine.add(make_request("long", prompt(length)))
    results = run(engine, [make_request("fits", prompt(11), 5)])
    assert len(results["fits"].token_ids) == 1


def test_context_cap_beyond_the_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_model_len is 13, it must be at most the model's 12"):
        make_engine(max_position=12, max_model_len=13)


@pytest.mark.parametrize("stop_id", [-1, VOCAB, VOCAB + 1])
def test_stop_id_outside_the_vocabulary_is_refused(stop_id: int) -> None:
    """engines.md 44 (gonka#1170): such an id with min_tokens crashed the engine."""
    engine, _ = make_engine()
    with pytest.raises(RequestError, match=f"stop id {stop_id} is not in 0..63"):
        engine.add(make_request("a", prompt(3), min_tokens=2, stop_token_ids=(stop_id,)))
    assert not engine.has_work


@pytest.mark.parametrize("eos", [-1, VOCAB])
def test_end_of_text_id_outside_the_vocabulary_is_refused(eos: int) -> None:
    with pytest.raises(ConfigError, match=f"end-of-text id {eos} is not in 0..63"):
        make_engine(eos=[eos])


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (make_request("a", (5, VOCAB)), "prompt id 64 is not in 0..63"),
        (make_request("a", (-1,)), "prompt id -1 is not in 0..63"),
        (make_request("a", (5,), score=(VOCAB,)), "score id 64 is not in 0..63"),
        (make_request("a", (5,), stop=("x",)), "stop strings need a tokenizer"),
        (
            make_request("a", (5,), min_tokens=1, stop_token_ids=tuple(range(VOCAB))),
            "every token is a stop id",
        ),
    ],
)
def test_bad_request_is_refused_alone(request_: Request, message: str) -> None:
    engine, _ = make_engine()
    engine.add(make_request("good", prompt(4), 2))
    with pytest.raises(RequestError, match=message):
        engine.add(request_)
    assert list(run(engine)) == ["good"]


def test_empty_prompt_is_refused() -> None:
    with pytest.raises(RequestError, match="the prompt has no tokens"):
        make_request("a", ())


def test_id_in_use_and_served_request_are_refused() -> None:
    engine, _ = make_engine()
    request = make_request("a", prompt(4), 2)
    engine.add(request)
    with pytest.raises(RequestError, match="this id is in use"):
        engine.add(make_request("a", prompt(4), 2))
    run(engine)
    with pytest.raises(RequestError, match="has been served already"):
        engine.add(request)
    assert list(run(engine, [make_request("a", prompt(4), 2)])) == ["a"], "an id is free once it has ended"


def test_shed_request_leaves_nothing_behind() -> None:
    engine, _ = make_engine(max_queue=1)
    engine.add(make_request("a", prompt(4)))
    shed = make_request("b", prompt(4))
    with pytest.raises(QueueFullError):
        engine.add(shed)
    engine.step()
    engine.add(shed)
    assert sorted(run(engine)) == ["a", "b"]
    assert engine.counters.shed == 1


def test_non_finite_logits_end_that_request_only() -> None:
    def logits_of(prefix: tuple[int, ...]) -> Sequence[float]:
        broken = prefix[:3] == prompt(3, 1) and len(prefix) == 6
        return [math.nan] * VOCAB if broken else hash_logits(prefix)

    engine, _ = make_engine(logits_of=logits_of)
    good, bad = make_request("good", prompt(4)), make_request("bad", prompt(3, 1))
    results = run(engine, [good, bad])
    assert results["bad"].finish is FinishReason.ERROR
    assert results["bad"].token_ids == run_alone(bad).token_ids[:3]
    assert results["good"].token_ids == run_alone(good).token_ids
    assert used_blocks(engine) == 0


def test_kv_of_a_failed_request_is_not_found_again() -> None:
    broken = True

    def logits_of(prefix: tuple[int, ...]) -> Sequence[float]:
        return [math.nan] * VOCAB if broken else hash_logits(prefix)

    engine, _ = make_engine(logits_of=logits_of)
    assert run(engine, [make_request("a", prompt(9))])["a"].finish is FinishReason.ERROR
    broken = False
    again = make_request("b", prompt(9))
    run(engine, [again])
    assert again.meter.cached == 0


def test_step_that_raised_can_be_run_again() -> None:
    engine, backend = make_engine()
    request = make_request("a", prompt(9), 4)
    engine.add(request)
    engine.add(make_request("none", prompt(3), 0))
    forward = backend.forward

    def out_of_memory(batch: StepBatch) -> torch.Tensor:
        raise MemoryError

    backend.forward = out_of_memory  # type: ignore[method-assign]
    with pytest.raises(MemoryError):
        engine.step()
    engine.check()
    backend.forward = forward  # type: ignore[method-assign]
    results = run(engine)
    assert results["a"].token_ids == run_alone(request).token_ids
    assert results["none"].finish is FinishReason.LENGTH
    assert request.meter.computed == 9


@pytest.mark.parametrize("budget", [2, 3, 7, 64])
@pytest.mark.parametrize("prompt_length", [1, 3, 4, 5])
def test_scoring_gives_the_logprobs_that_generation_gave(budget: int, prompt_length: int) -> None:
    given = prompt(prompt_length)
    generated = run_alone(make_request("a", given, 9))
    engine, _ = make_engine(max_batched_tokens=budget, max_num_seqs=2)
    request = make_request("s", given, score=generated.token_ids)
    result = run(engine, [request])["s"]
    assert result.token_ids == generated.token_ids
    assert result.logprobs == generated.logprobs
    assert result.finish is FinishReason.LENGTH
    assert (request.meter.completion, request.meter.scored) == (0, 9)
    assert engine.counters.decode_tokens == 0


def test_scoring_does_not_depend_on_what_is_cached() -> None:
    """engines.md 11 (vllm#42019): prompt logprobs of cached positions came from stale memory."""
    given, first, second = prompt(8), prompt(12, 1), prompt(12, 1)[:6] + prompt(6, 2)
    orders = []
    for order in ((first, second, first), (second, first, first)):
        engine, _ = make_engine()
        results = [run(engine, [make_request("s", given, score=ids)])["s"] for ids in order]
        orders.append({ids: result.logprobs for ids, result in zip(order, results, strict=True)})
    assert orders[0] == orders[1]
    assert orders[0][first] == run_alone(make_request("s", given, score=first)).logprobs


def test_scoring_uses_the_cache_up_to_the_first_position_it_needs() -> None:
    engine, _ = make_engine()
    for id_, cached in (("cold", 0), ("warm", 8)):
        request = make_request(id_, prompt(11), score=prompt(6, 1))
        run(engine, [request])
        assert request.meter.cached == cached


def test_events_say_how_many_tokens_were_generated_and_when() -> None:
    tokenizer = ByteTokenizer()
    engine, _ = make_engine(logits_of=say(tokenizer, tokenizer.ids("ABCDEF"), 3), tokenizer=tokenizer)
    engine.add(make_request("a", prompt(3), 4, stop=("ABX",)))
    events = [event for _ in range(4) for event in engine.step()]
    assert [event.num_generated for event in events] == [1, 1, 1, 1]
    assert [len(event.token_ids) for event in events] == [0, 0, 3, 1]
    assert {event.time_ns for event in events} == {0}


def test_meters_count_each_token_once() -> None:
    """engines.md 53 (vllm#8625, vllm-omni#2313): completion tokens were a sum of running totals."""
    engine, _ = make_engine()
    requests = [make_request(f"r{i}", prompt(5 + i, i), 3 + i, temperature=1.0, seed=i) for i in range(2)]
    results = run(engine, requests)
    for request in requests:
        assert request.meter.completion == len(results[request.id].token_ids) == request.params.max_tokens
        assert request.meter.prompt == len(request.prompt_ids)
    assert engine.counters.decode_tokens == sum(len(result.token_ids) for result in results.values())


def test_reset_counters_starts_from_zero() -> None:
    engine, _ = make_engine()
    run(engine, [make_request("a", prompt(9))])
    before = engine.counters
    engine.reset_counters()
    assert before.steps == 8, "a copy: it does not move"
    assert asdict(engine.counters) == dict.fromkeys(asdict(before), 0)


def test_check_reports_a_request_that_the_scheduler_lost() -> None:
    engine, _ = make_engine()
    engine.add(make_request("a", prompt(4)))
    engine._scheduler.waiting.clear()
    with pytest.raises(InvariantError, match=r"differ: \['a'\]"):
        engine.check()
