"""Any order of calls, drawn by hypothesis: invariants hold and each output is that of the request alone."""

from __future__ import annotations

import pytest
from fakes import (
    EOS,
    HashBackend,
    Result,
    assert_as_alone,
    assert_meter_adds_up,
    collect,
    favour,
    make_engine,
    make_request,
    preempt,
    prompt,
    run,
    run_alone,
    used_blocks,
)
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from servegate_engine.engine import Engine
from servegate_engine.errors import QueueFullError, RequestError
from servegate_engine.request import FinishReason, Request


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
