"""The scheduler alone: no model, no tensors, tokens made up."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fakes import make_request, prompt

from servegate_engine.config import EngineConfig
from servegate_engine.errors import ConfigError, InvariantError, QueueFullError, RequestError, StalledError
from servegate_engine.request import FinishReason, Request
from servegate_engine.scheduler import Scheduler


def make_scheduler(max_context: int = 10_000, **config: int | bool) -> Scheduler:
    settings = {"block_size": 4, "num_blocks": 64, "max_num_seqs": 8, "max_batched_tokens": 64, **config}
    return Scheduler(EngineConfig(**settings), max_context)  # type: ignore[arg-type]


def step(scheduler: Scheduler) -> dict[str, int]:
    """Run one step with a made-up model; returns the tokens each request was scheduled."""
    scheduled = scheduler.schedule()
    shares = {request.id: request.num_scheduled for request in scheduled}
    for request in scheduled:
        scheduler.advance(request)
        if request.num_uncomputed == 0:
            reason = scheduler.append(request, 5 + len(request.token_ids) % 50)
            if reason is not None:
                scheduler.finish(request, reason)
    scheduler.check()
    return shares


def drain(scheduler: Scheduler, limit: int = 1000) -> list[dict[str, int]]:
    shares = []
    while scheduler.running or scheduler.waiting:
        assert len(shares) < limit
        shares.append(step(scheduler))
    return shares


def add(scheduler: Scheduler, *requests: Request) -> None:
    for request in requests:
        scheduler.add(request)


def test_nothing_to_do_is_an_empty_step() -> None:
    scheduler = make_scheduler()
    assert scheduler.schedule() == []
    assert scheduler.counters.steps == 0


def test_prompt_runs_in_chunks_of_the_budget_then_decodes() -> None:
    scheduler = make_scheduler(max_batched_tokens=8)
    add(scheduler, make_request("a", prompt(19), max_tokens=3))
    assert drain(scheduler) == [{"a": 8}, {"a": 8}, {"a": 3}, {"a": 1}, {"a": 1}]


def test_budget_is_never_exceeded_and_prefill_keeps_to_its_cap() -> None:
    scheduler = make_scheduler(max_batched_tokens=12, max_prefill_tokens=5)
    add(scheduler, *(make_request(f"r{i}", prompt(9 + i, i), max_tokens=4) for i in range(8)))
    while scheduler.running or scheduler.waiting:
        shares = step(scheduler)
        assert sum(shares.values()) <= 12
        assert sum(n for n in shares.values() if n > 1) <= 5


def test_budget_below_the_block_size_still_admits() -> None:
    """engines.md 16 (SGLang align sizes): a chunk budget below the align size admitted nothing for ever."""
    scheduler = make_scheduler(max_batched_tokens=2, max_num_seqs=2, block_size=4)
    add(scheduler, make_request("a", prompt(5), max_tokens=2))
    assert drain(scheduler) == [{"a": 2}, {"a": 2}, {"a": 1}, {"a": 1}]


def test_budget_below_the_seats_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_batched_tokens 4 is below max_num_seqs 8"):
        make_scheduler(max_batched_tokens=4)


def test_decode_gets_its_token_in_every_step_whatever_prefill_wants() -> None:
    """engines.md 22 (sglang#32549): prefill first let decodes starve."""
    scheduler = make_scheduler(num_blocks=1000, max_batched_tokens=16, max_queue=100)
    add(scheduler, make_request("decoder", prompt(3), max_tokens=40))
    step(scheduler)
    for i in range(39):
        add(scheduler, make_request(f"r{i}", prompt(50, i), max_tokens=1))
        assert step(scheduler)["decoder"] == 1


def test_long_prompt_does_not_hold_up_short_ones() -> None:
    """engines.md 23 (vllm#10774, sglang#34623): one long prompt monopolised prefill."""
    scheduler = make_scheduler(num_blocks=1000, max_batched_tokens=64)
    long = make_request("long", prompt(2000), max_tokens=1)
    short = [make_request(f"s{i}", prompt(20, i + 1), max_tokens=1) for i in range(5)]
    add(scheduler, long, *short)
    for _ in range(5):
        assert step(scheduler)["long"] >= 32, "the oldest keeps half"
    assert all(request.finished for request in short)
    assert not long.finished


def test_short_prompt_gets_past_several_long_ones() -> None:
    scheduler = make_scheduler(num_blocks=2000, max_batched_tokens=64)
    short = make_request("short", prompt(6, 9), max_tokens=1)
    add(scheduler, *(make_request(f"long{i}", prompt(1500, i), max_tokens=1) for i in range(3)), short)
    for _ in range(3):
        step(scheduler)
    assert short.finished


def test_budget_that_nobody_else_wants_goes_to_the_oldest() -> None:
    scheduler = make_scheduler()
    add(scheduler, make_request("a", prompt(200)), make_request("b", prompt(10, 1)))
    assert step(scheduler) == {"a": 54, "b": 10}


def test_seats_bound_what_runs() -> None:
    scheduler = make_scheduler(max_num_seqs=2)
    add(scheduler, *(make_request(f"r{i}", prompt(4, i), max_tokens=2) for i in range(5)))
    shares = drain(scheduler)
    assert max(len(share) for share in shares) == 2
    assert scheduler.counters.peak_running == 2


def test_queue_sheds_beyond_its_bound() -> None:
    scheduler = make_scheduler(max_queue=2)
    add(scheduler, make_request("a", prompt(4)), make_request("b", prompt(4)))
    with pytest.raises(QueueFullError, match="2 requests wait already"):
        scheduler.add(make_request("c", prompt(4)))
    assert scheduler.counters.shed == 1
    step(scheduler)
    scheduler.add(make_request("c", prompt(4)))


@pytest.mark.parametrize(("length", "max_tokens", "fits"), [(9, 1, True), (10, 1, False), (10, 0, True)])
def test_context_cap_leaves_room_for_one_token(length: int, max_tokens: int, fits: bool) -> None:
    """engines.md 24 (sglang#3910, vllm#12600): an over-long prompt killed the engine or got no answer."""
    scheduler = make_scheduler(max_context=10)
    request = make_request("a", prompt(length), max_tokens=max_tokens)
    if fits:
        scheduler.validate(request)
    else:
        with pytest.raises(RequestError, match="10 tokens and one to generate exceed the context of 10"):
            scheduler.add(request)


def test_scored_sequence_may_fill_the_context() -> None:
    scheduler = make_scheduler(max_context=10)
    scheduler.add(make_request("a", prompt(6), score=prompt(4)))
    with pytest.raises(RequestError, match="11 tokens exceed the context of 10"):
        scheduler.add(make_request("b", prompt(6), score=prompt(5)))


@pytest.mark.parametrize(("length", "fits"), [(8, True), (9, False), (19, False)])
def test_prompt_larger_than_the_pool_is_refused(length: int, fits: bool) -> None:
    """engines.md 19 (nano-vllm): a prompt that needs more blocks than exist hung the engine."""
    scheduler = make_scheduler(num_blocks=2)
    request = make_request("a", prompt(length), max_tokens=3)
    if fits:
        scheduler.add(request)
        drain(scheduler)
        assert request.finish_reason is FinishReason.NO_ROOM
        assert request.meter.completion == 1
    else:
        with pytest.raises(RequestError, match="the whole block pool holds 8"):
            scheduler.add(request)


def test_head_of_the_queue_that_cannot_fit_yet_runs_when_the_pool_is_empty() -> None:
    """engines.md 20 (inference-sim#1061): the head could not allocate, 173,622 retries, nothing ran."""
    scheduler = make_scheduler(num_blocks=4)
    small, big, last = (
        make_request("small", prompt(4), max_tokens=5),
        make_request("big", prompt(16, 1), max_tokens=1),
        make_request("last", prompt(4, 2), max_tokens=2),
    )
    add(scheduler, small, big, last)
    shares = drain(scheduler, limit=20)
    order = [request_id for share in shares for request_id in share]
    assert order.index("big") < order.index("last"), "nobody overtakes for room"
    assert big.finish_reason is FinishReason.LENGTH


def test_admission_waits_for_the_whole_sequence() -> None:
    scheduler = make_scheduler(num_blocks=8, max_batched_tokens=8, prefix_cache=False)
    add(
        scheduler, make_request("a", prompt(20), max_tokens=1), make_request("b", prompt(12, 1), max_tokens=1)
    )
    assert step(scheduler) == {"a": 8}, "b needs 3 blocks; a is promised 5 of 8 and may grow by one"


def test_admission_counts_a_free_hit_as_room_it_takes() -> None:
    scheduler = make_scheduler(num_blocks=6)
    add(scheduler, make_request("warm", prompt(8), max_tokens=1))
    drain(scheduler)
    add(scheduler, make_request("a", prompt(10, 1), max_tokens=9))
    step(scheduler)
    add(scheduler, make_request("b", prompt(12), max_tokens=1))
    assert step(scheduler) == {"a": 1}, "3 blocks are free, b takes 3, two of them hits; a may grow by one"


@pytest.mark.parametrize("block_size", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("max_tokens", [1, 2, 5, 9])
def test_blocks_held_always_match_the_tokens_with_kv(block_size: int, max_tokens: int) -> None:
    """engines.md 3 (nano-vllm#65, #66): append needs a block exactly when the new token starts one."""
    for length in range(1, 14):
        scheduler = make_scheduler(block_size=block_size)
        request = make_request("a", prompt(length), max_tokens=max_tokens)
        scheduler.add(request)
        while not request.finished:
            step(scheduler)
            assert len(request.blocks) == -(-request.num_computed // block_size) or request.finished
        assert scheduler.pool.num_used == 0


def test_preemption_takes_the_last_admitted_and_admits_nobody() -> None:
    scheduler = make_scheduler(num_blocks=5, prefix_cache=False)
    first, second, third = (make_request(name, prompt(8, i), max_tokens=9) for i, name in enumerate("abc"))
    add(scheduler, first, second, third)
    while not scheduler.counters.preemptions:
        assert third.id not in step(scheduler)
    assert [request.id for request in scheduler.running] == ["a"]
    assert [request.id for request in scheduler.waiting] == ["b", "c"]
    assert second.blocks == []
    assert second.num_computed == 0
    assert second.meter.preemptions == 1


def test_prefill_may_preempt_a_decode_that_came_later() -> None:
    scheduler = make_scheduler(num_blocks=10, max_batched_tokens=4, max_num_seqs=2, prefix_cache=False)
    early, late = (
        make_request("early", prompt(30), max_tokens=2),
        make_request("late", prompt(2), max_tokens=16),
    )
    add(scheduler, early, late)
    while not scheduler.counters.preemptions:
        shares = step(scheduler)
    assert shares == {"early": 3}, "late had its decode planned and gave its blocks up"
    drain(scheduler)
    assert (early.meter.preemptions, late.meter.preemptions) == (0, 1)
    assert (early.meter.completion, late.meter.completion) == (2, 16)


def test_prefill_that_was_preempted_in_this_step_gets_nothing_more() -> None:
    scheduler = make_scheduler(num_blocks=20, max_batched_tokens=8, prefix_cache=False)
    first, second = make_request("first", prompt(40), 1), make_request("second", prompt(36, 1), 1)
    add(scheduler, first, second)
    step(scheduler)
    scheduler.pool.allocate(scheduler.pool.num_free)  # somebody else takes all the room
    assert scheduler.schedule() == [first]
    assert list(scheduler.waiting) == [second]
    assert (second.blocks, second.num_scheduled) == ([], 0)


def test_leaked_blocks_end_in_a_report_and_not_in_a_hang() -> None:
    """engines.md 21 (vllm#45387): running 0, waiting N, for ever."""
    scheduler = make_scheduler(num_blocks=2)
    scheduler.pool.allocate(1)  # a leak
    add(scheduler, make_request("a", prompt(8)))
    with pytest.raises(StalledError, match=r"1 of 2 blocks are free\nwaiting 'a': 0 of 8 tokens computed"):
        scheduler.schedule()


def test_finishing_twice_is_an_error() -> None:
    scheduler = make_scheduler()
    request = make_request("a", prompt(4))
    add(scheduler, request)
    scheduler.finish(request, FinishReason.ABORTED)
    with pytest.raises(InvariantError, match="finished aborted, now stop"):
        scheduler.finish(request, FinishReason.STOP)


def test_schedule_is_a_function_of_the_requests_alone() -> None:
    def trace() -> list[dict[str, int]]:
        scheduler = make_scheduler(num_blocks=10, max_batched_tokens=16)
        add(scheduler, *(make_request(f"r{i}", prompt(3 + 2 * i, i % 3), max_tokens=6) for i in range(8)))
        return drain(scheduler)

    assert trace() == trace()


def claim_too_much(scheduler: Scheduler) -> None:
    scheduler.running[0].num_computed = 100


def keep_finished(scheduler: Scheduler) -> None:
    scheduler.running[0].finish_reason = FinishReason.STOP


def change_history(scheduler: Scheduler) -> None:
    scheduler.running[0].token_ids[0] += 1


def hold_while_waiting(scheduler: Scheduler) -> None:
    scheduler.waiting.append(scheduler.running.pop())


def queue_twice(scheduler: Scheduler) -> None:
    scheduler.waiting.append(make_request("a", prompt(3)))


@pytest.mark.parametrize(
    ("damage", "report"),
    [
        (claim_too_much, "100 computed tokens"),
        (keep_finished, "is queued and finished"),
        (change_history, "holds other tokens"),
        (hold_while_waiting, "waits and holds blocks"),
        (queue_twice, "is queued 2 times"),
    ],
)
def test_check_reports_each_kind_of_damage(damage: Callable[[Scheduler], None], report: str) -> None:
    scheduler = make_scheduler()
    add(scheduler, make_request("a", prompt(9)))
    step(scheduler)
    damage(scheduler)
    with pytest.raises(InvariantError, match=report):
        scheduler.check()
