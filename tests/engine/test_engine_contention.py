"""Too little room: preemption, cancellation and everything at once. No result may depend on it."""

from __future__ import annotations

import pytest
from fakes import (
    EOS,
    HashBackend,
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
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from servegate_engine.engine import Engine
from servegate_engine.errors import QueueFullError, RequestError, StalledError
from servegate_engine.request import FinishReason, Request


def preempt(engine: Engine) -> None:
    """Force what the scheduler does when room runs out."""
    if engine._scheduler.running:
        engine._scheduler._preempt(engine._scheduler.running[-1])


def assert_as_alone(request: Request, result: Result, **alone: object) -> None:
    expected = run_alone(request, **alone)
    assert (result.token_ids, result.logprobs, result.finish) == (
        expected.token_ids,
        expected.logprobs,
        expected.finish,
    )


def assert_meter_adds_up(request: Request, result: Result) -> None:
    meter = request.meter
    assert meter.prompt == len(request.prompt_ids)
    assert meter.scored == len(request.score_ids)
    assert meter.completion == (0 if request.score_ids else len(result.token_ids))
    if result.token_ids:
        assert meter.prompt == meter.cached + meter.computed


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


class EngineMachine(RuleBasedStateMachine):
    """Any order of calls on a small engine: invariants hold, and each output is that of the request alone."""

    engine: Engine
    backend: HashBackend

    @initialize(
        block_size=st.integers(1, 8),
        num_blocks=st.integers(2, 12),
        seats=st.integers(1, 4),
        budget=st.integers(4, 20),
        max_prefill=st.sampled_from([None, 1, 5]),
        cache=st.booleans(),
    )
    def start(
        self, block_size: int, num_blocks: int, seats: int, budget: int, max_prefill: int | None, cache: bool
    ) -> None:
        self.capacity = block_size * num_blocks
        self.requests: dict[str, Request] = {}
        self.results: dict[str, Result] = {}
        self.engine, self.backend = make_engine(
            logits_of=favour(EOS, after=30),
            eos=[EOS],
            max_position=40,
            block_size=block_size,
            num_blocks=num_blocks,
            max_num_seqs=seats,
            max_batched_tokens=budget,
            max_prefill_tokens=max_prefill,  # type: ignore[arg-type]
            max_queue=5,
            prefix_cache=cache,
        )

    @rule(
        length=st.integers(1, 24),
        salt=st.integers(0, 1),
        max_tokens=st.integers(0, 12),
        score=st.integers(0, 9),
        seed=st.integers(0, 3),
        hot=st.booleans(),
    )
    def add(self, length: int, salt: int, max_tokens: int, score: int, seed: int, hot: bool) -> None:
        name = f"r{len(self.requests)}"
        given = prompt(score, seed) if hot else ()
        request = make_request(
            name, prompt(length, salt), max_tokens, given, temperature=float(hot), seed=seed
        )
        try:
            self.engine.add(request)
        except QueueFullError:
            assert len(self.engine._scheduler.waiting) >= 5, "preempted requests wait as well"
        except RequestError:
            assert length + len(given) > min(self.capacity, 39)
        else:
            self.requests[name] = request

    @rule(salts=st.lists(st.integers(0, 2), min_size=2, max_size=5), length=st.integers(2, 12))
    def burst(self, salts: list[int], length: int) -> None:
        for salt in salts:
            self.add(length, salt, 9, 0, salt, False)

    @rule()
    def step(self) -> None:
        scheduler = self.engine._scheduler
        running, preemptions = set(scheduler.running), scheduler.counters.preemptions
        collect(self.results, self.engine.step())
        if scheduler.counters.preemptions > preemptions:
            assert running.issuperset(scheduler.running), "a step that preempted admitted somebody"

    @rule(count=st.integers(2, 10))
    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()
            self.engine.check()

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.requests)))
        live = not self.requests[name].finished
        assert self.engine.abort(name) is live

    @rule()
    def preempt(self) -> None:
        preempt(self.engine)

    @rule()
    def reset_cache(self) -> None:
        self.engine.reset_prefix_cache()

    @invariant()
    def check(self) -> None:
        if hasattr(self, "engine"):
            self.engine.check()

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        for _ in range(2000):
            if not self.engine.has_work:
                break
            self.step()
            self.engine.check()
        assert not self.engine.has_work
        assert used_blocks(self.engine) == 0
        for name, request in self.requests.items():
            self.compare(request, self.results[name])

    def compare(self, request: Request, result: Result) -> None:
        alone = run_alone(request, logits_of=favour(EOS, after=30), eos=[EOS], max_position=40)
        count = len(result.token_ids)
        assert result.token_ids == alone.token_ids[:count]
        assert result.logprobs == alone.logprobs[:count]
        if result.finish is FinishReason.NO_ROOM:
            assert len(request.prompt_ids) + count == self.capacity + 1
        elif result.finish is not FinishReason.ABORTED:
            assert (result.finish, count) == (alone.finish, len(alone.token_ids))
            assert_meter_adds_up(request, result)


class TestEngineMachine(EngineMachine.TestCase):  # type: ignore[name-defined,misc]
    settings = settings(
        max_examples=50, stateful_step_count=30, deadline=None, derandomize=True, database=None
    )


@pytest.mark.slow
class TestEngineMachineAtLength(EngineMachine.TestCase):  # type: ignore[name-defined,misc]
    settings = settings(max_examples=1000, stateful_step_count=40, deadline=None, database=None)


def test_machine_finds_a_wrong_token() -> None:
    """Inverse: the comparison above fails when contention does change an output."""
    engine, _ = make_engine(num_blocks=5, prefix_cache=False)
    request = make_request("a", prompt(7), 6)
    engine.add(request)
    engine.step()
    request.token_ids[-1] = (request.token_ids[-1] + 1) % 64
    result = run(engine)["a"]
    with pytest.raises(AssertionError):
        assert_as_alone(request, result)


def test_fake_model_tells_any_two_prefixes_apart() -> None:
    assert hash_logits((5, 6)) != hash_logits((6, 5)) != hash_logits((5, 6, 0))
