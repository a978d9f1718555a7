"""Continuous batching: which tokens of which requests the next step runs.

One rule covers prefill, chunked prefill, prefix hits, recompute and decode: a request has ``num_computed``
tokens with KV and a target, ``len(token_ids)``; a step closes part of that gap. The order within a step:

1. **Decode first.** Every running request that lacks one token gets it, so no prefill can hold up a decode.
2. **Then prefill, halves.** Running prefills in order of admission, then the queue: each may take half of
   the budget that is left, and what nobody wanted goes round again from the front. The oldest prompt gets
   at least half of every step, and a short prompt behind it does not wait until a long one is done.
3. **Admission** is first come, first served, and only with room for the whole sequence, for what running
   prefills still need, and for one more block per running request: a newcomer must not cause the next
   preemption.
4. **Preemption** frees the request that was admitted last and puts it at the head of the queue, to be
   recomputed. By 3 a step that preempted admits nobody: the rest of what the victim gave up cannot hold it.

Progress is certain: the first running request is the last to be preempted, it gets tokens in every step,
and a request that could not fit into the empty pool is refused by ``add`` or ended by ``append``.

Plain Python on integers: no tensors, no clock.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace
from itertools import chain

from servegate_engine.blocks import BlockPool, blocks_for
from servegate_engine.config import EngineConfig
from servegate_engine.errors import InvariantError, QueueFullError, RequestError, StalledError
from servegate_engine.request import Counters, FinishReason, Request


class Scheduler:
    """Owns the queue, the running requests and the block pool. Drive it in this order, step by step::

        for request in scheduler.schedule():      # num_scheduled tokens each
            scheduler.advance(request)            # their KV is written now
            reason = scheduler.append(request, token)       # when the gap is closed
            scheduler.finish(request, reason)     # when there is one

    ``add`` and ``finish`` may come between any two steps. Not thread-safe.
    """

    def __init__(self, config: EngineConfig, max_context: int) -> None:
        """``max_context``: most tokens of prompt plus completion of one request."""
        self.pool = BlockPool(config.num_blocks, config.block_size)
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        """In order of admission. Only its end is ever preempted."""
        self.counters = Counters()
        self._config = config
        self._max_context = max_context
        self._capacity = config.num_blocks * config.block_size
        self._max_prefill = config.max_prefill_tokens or config.max_batched_tokens

    def validate(self, request: Request) -> None:
        """Raise RequestError when ``request`` is too long to be served at all."""
        length = request.num_given
        generates = not request.score_ids and request.params.max_tokens > 0
        if length + (1 if generates else 0) > self._max_context:
            raise RequestError(
                f"request {request.id!r}: {length} tokens{' and one to generate' if generates else ''} "
                f"exceed the context of {self._max_context}"
            )
        if length > self._capacity:
            raise RequestError(
                f"request {request.id!r}: {length} tokens, the whole block pool holds {self._capacity}"
            )

    def add(self, request: Request) -> None:
        """Queue ``request``.

        Raises:
            RequestError: it is too long to be served at all.
            QueueFullError: ``max_queue`` requests wait already.
        """
        self.validate(request)
        if len(self.waiting) >= self._config.max_queue:
            self.counters.shed += 1
            raise QueueFullError(f"request {request.id!r}: {len(self.waiting)} requests wait already")
        self.waiting.append(request)

    def schedule(self) -> list[Request]:
        """The requests of the next step, in order of admission, each with ``num_scheduled`` >= 1.

        Empty when there is nothing to do.

        Raises:
            StalledError: there are requests and none of them can run; it can only be a fault in here.
        """
        prefills = self._schedule_decodes()
        budget = self._config.max_batched_tokens - (len(self.running) - len(prefills))
        self._schedule_prefills(prefills, min(budget, self._max_prefill))
        scheduled = [request for request in self.running if request.num_scheduled]
        if scheduled:
            self.counters.steps += 1
            self.counters.peak_running = max(self.counters.peak_running, len(self.running))
        elif self.running or self.waiting:
            raise StalledError(self._report())
        return scheduled

    def advance(self, request: Request) -> None:
        """The scheduled tokens of ``request`` have run: count them, and let others find the full blocks."""
        start = request.num_computed
        end = start + request.num_scheduled
        request.num_computed = end
        request.num_scheduled = 0
        if start < request.num_reached or start < request.num_given:
            self._meter(request, start, end)
        if end > request.num_reached:
            request.num_reached = end
        if self._config.prefix_cache:
            size = self.pool.block_size
            for index in range(start // size, end // size):
                self.pool.publish(request.blocks, index, request.token_ids)

    def append(self, request: Request, token_id: int) -> FinishReason | None:
        """Add a generated token; returns the limit that it reaches, if any, the request's own first."""
        request.token_ids.append(token_id)
        request.meter.completion += 1
        self.counters.decode_tokens += 1
        length = len(request.token_ids)
        if request.meter.completion >= request.params.max_tokens:
            return FinishReason.LENGTH
        if length >= self._max_context:
            return FinishReason.CONTEXT
        if length > self._capacity:
            return FinishReason.NO_ROOM
        return None

    def finish(self, request: Request, reason: FinishReason) -> None:
        """End ``request``, waiting or running, and free what it holds.

        KV of a request that ended in ERROR is not trusted: no later request will find it.
        """
        if request.finish_reason is not None:
            raise InvariantError(f"request {request.id!r} finished {request.finish_reason}, now {reason}")
        if request in self.running:
            self.running.remove(request)
        else:
            self.waiting.remove(request)
        if reason is FinishReason.ERROR:
            self.pool.discard(request.blocks)
        else:
            self.pool.free(request.blocks)
        request.blocks = []
        request.num_scheduled = 0
        request.finish_reason = reason

    def reset_counters(self) -> None:
        self.counters = Counters()
        self.pool.reset_counters()

    def snapshot(self) -> Counters:
        """The counters as they stand, the pool's included."""
        return replace(self.counters, evictions=self.pool.num_evictions, peak_blocks=self.pool.peak_used)

    def check(self) -> None:
        """Prove the invariants of queue, requests and pool. Holds between any two calls.

        Raises:
            InvariantError: with every fault found, one to a line.
        """
        self.pool.check([request.blocks for request in chain(self.running, self.waiting)])
        faults = []
        size = self.pool.block_size
        for request in chain(self.running, self.waiting):
            if request.finished:
                faults.append(f"request {request.id!r} is queued and finished")
            if not 0 <= request.num_computed <= min(len(request.token_ids), len(request.blocks) * size):
                faults.append(
                    f"request {request.id!r}: {request.num_computed} computed tokens, "
                    f"{len(request.token_ids)} tokens, {len(request.blocks)} blocks"
                )
            for index, block in enumerate(request.blocks):
                held = self.pool.tokens_of(block)
                if held is not None and list(held) != request.token_ids[index * size : (index + 1) * size]:
                    faults.append(f"request {request.id!r}: block {block} holds other tokens")
        faults += [f"request {r.id!r} waits and holds blocks" for r in self.waiting if r.blocks]
        times_queued = Counter(r.id for r in chain(self.running, self.waiting))
        faults += [f"request {id_!r} is queued {n} times" for id_, n in times_queued.items() if n > 1]
        if faults:
            raise InvariantError("scheduler:\n" + "\n".join(faults))

    def _schedule_decodes(self) -> list[Request]:
        """Give one token to each running request that lacks one; returns those that lack more."""
        prefills = []
        size = self.pool.block_size
        for request in self.running:  # safe: a preemption only takes from the end of the list
            if len(request.token_ids) - request.num_computed > 1:
                prefills.append(request)
            elif request.num_computed < len(request.blocks) * size or self._grow(request, 1):
                request.num_scheduled = 1
        return prefills

    def _schedule_prefills(self, prefills: list[Request], left: int) -> None:
        """Share ``left`` tokens among ``prefills`` and, as room allows, the head of the queue."""
        grants = []
        for request in prefills:
            grants.append(min(request.num_uncomputed, (left + 1) // 2))
            left -= grants[-1]
        spare = self._spare_blocks(prefills)
        while left and (admitted := self._admit(spare)) is not None:
            request, taken = admitted
            spare -= taken
            prefills.append(request)
            grants.append(min(request.num_uncomputed, (left + 1) // 2))
            left -= grants[-1]
        preemptions = self.counters.preemptions
        for request, grant in zip(prefills, grants, strict=True):
            extra = min(request.num_uncomputed - grant, left)
            left -= extra
            if grant + extra and self._grow(request, grant + extra):
                request.num_scheduled = grant + extra
            if self.counters.preemptions != preemptions:
                return  # what follows in ``prefills`` may be queued again

    def _spare_blocks(self, prefills: list[Request]) -> int:
        """Free blocks that neither running prefills nor the next block of each running request will need."""
        size = self.pool.block_size
        promised = sum(blocks_for(len(r.token_ids), size) - len(r.blocks) for r in prefills)
        return self.pool.num_free - promised - len(self.running)

    def _admit(self, spare: int) -> tuple[Request, int] | None:
        """Move the head of the queue to running if ``spare`` blocks suffice for all of it.

        Returns the request, which holds its prefix hits and nothing else yet, and the spare blocks that it
        takes; ``None`` when nobody can be admitted.
        """
        if not self.waiting or len(self.running) >= self._config.max_num_seqs:
            return None
        request = self.waiting[0]
        hits: list[int] = []
        if self._config.prefix_cache:
            hits = self.pool.lookup(request.token_ids, request.num_cacheable)
        size = self.pool.block_size
        needed = blocks_for(len(request.token_ids), size) - len(hits) + self.pool.num_free_among(hits)
        if needed > spare:
            return None
        self.waiting.popleft()
        self.running.append(request)
        self.pool.share(hits)
        request.blocks = hits
        request.num_computed = len(hits) * size
        spared = request.num_computed - request.num_reached
        if spared > 0:
            request.num_reached = request.num_computed
            request.meter.cached += spared
            self.counters.cached_tokens += spared
        return request, needed + 1

    def _grow(self, request: Request, num_tokens: int) -> bool:
        """Give ``request`` the blocks for ``num_tokens`` more, preempting later ones as needed.

        False when ``request`` itself turned out to be the last one and was preempted.
        """
        missing = blocks_for(request.num_computed + num_tokens, self.pool.block_size) - len(request.blocks)
        while (blocks := self.pool.allocate(max(missing, 0))) is None:
            victim = self.running[-1]
            self._preempt(victim)
            if victim is request:
                return False
        request.blocks += blocks
        return True

    def _preempt(self, victim: Request) -> None:
        self.running.pop()
        self.waiting.appendleft(victim)
        self.pool.free(victim.blocks)
        victim.blocks = []
        victim.num_computed = 0
        victim.num_scheduled = 0
        victim.meter.preemptions += 1
        self.counters.preemptions += 1

    def _meter(self, request: Request, start: int, end: int) -> None:
        """Count the tokens [start, end): run again, or for the first time by what they are."""
        fresh = min(max(start, request.num_reached), end)
        prompt_end = min(max(fresh, len(request.prompt_ids)), end)
        given_end = min(max(prompt_end, request.num_given), end)
        request.meter.recomputed += fresh - start
        request.meter.computed += prompt_end - fresh
        request.meter.scored += given_end - prompt_end
        self.counters.recomputed_tokens += fresh - start
        self.counters.prefill_tokens += given_end - start

    def _report(self) -> str:
        states = [f"{self.pool.num_free} of {self.pool.num_blocks} blocks are free"]
        for name, requests in (("running", self.running), ("waiting", self.waiting)):
            states += [
                f"{name} {request.id!r}: {request.num_computed} of {len(request.token_ids)} tokens computed, "
                f"{len(request.blocks)} blocks"
                for request in requests
            ]
        return "no request can run:\n" + "\n".join(states)
