"""The step loop: schedule, run the model, sample, and tell each request what it got.

After each token of a request these checks run, and the first that holds ends it:

1. ERROR: its logits were not finite, so there is no token.
2. STOP: a stop id, the model's end-of-text ids included. The id and its logprob are released, without text.
3. STOP: a stop string. The text ends before it.
4. LENGTH: ``max_tokens`` are out. So a stop at exactly ``max_tokens`` is STOP.
5. CONTEXT: prompt plus completion reach the context cap.
6. NO_ROOM: the whole block pool could not hold the KV of one more token.

``min_tokens`` = N: the first N tokens cannot be stop ids (they are masked, never drawn), and a stop string
counts from the N-th token on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from servegate_engine.backends.base import Backend
from servegate_engine.clock import Clock, MonotonicClock
from servegate_engine.config import EngineConfig
from servegate_engine.detokenizer import Detokenizer, Released, TokenBytes
from servegate_engine.errors import ConfigError, InvariantError, RequestError
from servegate_engine.planning import build_batch
from servegate_engine.request import Counters, FinishReason, Request, RequestEvent, TokenLogprob
from servegate_engine.sampling import SampleRow
from servegate_engine.scheduler import Scheduler


@dataclass(slots=True)
class _Live:
    """A request that has not ended, with what the loop needs beside its scheduling state."""

    request: Request
    stop_ids: frozenset[int]
    suppress: tuple[int, ...]
    """Stop ids, to be masked for the first ``min_tokens`` tokens."""
    detokenizer: Detokenizer | None

    def flush(self) -> Released:
        """The tokens and text still held back."""
        return self.detokenizer.flush() if self.detokenizer else Released()


class Engine:
    """Serves requests on one backend. Not thread-safe: one thread makes every call.

    ``add`` a request, call ``step`` while ``has_work``, and read the events: a request's events,
    concatenated, are its result, and the last one carries its finish reason. The ``Request`` object shows
    its state and its meter at any time.
    """

    def __init__(
        self,
        backend: Backend,
        config: EngineConfig,
        *,
        vocab_size: int,
        max_position: int,
        eos_token_ids: Sequence[int] = (),
        tokenizer: TokenBytes | None = None,
        clock: Clock | None = None,
    ) -> None:
        """``max_position``: the model's longest context, in tokens. Without a ``tokenizer`` there is no text.

        Raises:
            ConfigError: ``config.max_model_len`` exceeds ``max_position``, or an end-of-text id lies outside
                the vocabulary.
        """
        max_context = config.max_model_len or max_position
        if max_context > max_position:
            raise ConfigError(
                f"engine: max_model_len is {max_context}, it must be at most the model's {max_position}"
            )
        outside = [token_id for token_id in eos_token_ids if not 0 <= token_id < vocab_size]
        if outside:
            raise ConfigError(f"model: end-of-text id {outside[0]} is not in 0..{vocab_size - 1}")
        self._backend = backend
        self._block_size = config.block_size
        self._vocab_size = vocab_size
        self._eos_token_ids = tuple(eos_token_ids)
        self._tokenizer = tokenizer
        self._clock = clock or MonotonicClock()
        self._scheduler = Scheduler(config, max_context)
        self._live: dict[str, _Live] = {}
        self._events: list[RequestEvent] = []
        """What the next ``step`` returns."""

    @property
    def has_work(self) -> bool:
        """Whether ``step`` has anything to do or to tell."""
        return bool(self._live or self._events)

    @property
    def counters(self) -> Counters:
        """A copy of the counters as they stand."""
        return self._scheduler.snapshot()

    def add(self, request: Request) -> None:
        """Take a fresh request. An error concerns this request only; nothing of it stays behind.

        Raises:
            RequestError: it cannot be served: too long, ids outside the vocabulary, stop strings without a
                tokenizer, an id that is in use.
            QueueFullError: the queue is at its bound.
        """
        self._validate(request)
        params = request.params
        stop_ids = frozenset(() if params.ignore_eos else (*self._eos_token_ids, *params.stop_token_ids))
        if params.min_tokens and len(stop_ids) >= self._vocab_size:
            raise RequestError(
                f"request {request.id!r}: every token is a stop id, none is left for min_tokens"
            )
        request.arrival_ns = self._clock.now_ns()
        if not request.score_ids and params.max_tokens == 0:
            self._scheduler.validate(request)
            request.finish_reason = FinishReason.LENGTH
            self._tell(request, Released(), request.arrival_ns)
            return
        self._scheduler.add(request)
        detokenizer = None
        if self._tokenizer is not None and not request.score_ids:
            detokenizer = Detokenizer(self._tokenizer, params.stop, request.prompt_ids)
        self._live[request.id] = _Live(request, stop_ids, tuple(sorted(stop_ids)), detokenizer)

    def abort(self, request_id: str) -> bool:
        """Cancel a request in whatever state; its last event comes from the next ``step``.

        False, and no effect, when there is no such request or it has ended.
        """
        live = self._live.get(request_id)
        if live is None:
            return False
        self._end(live, FinishReason.ABORTED)
        self._tell(live.request, live.flush(), self._clock.now_ns())
        return True

    def step(self) -> list[RequestEvent]:
        """Run one step of the model, if any request can use it, and return what there is to tell.

        When the backend raises, nothing is lost: the next call runs the same tokens again.

        Raises:
            StalledError: requests exist and none can run; a fault of the engine, never of a request.
        """
        scheduled = self._scheduler.schedule()
        if scheduled:
            self._run(scheduled)
        events, self._events = self._events, []
        return events

    def reset_counters(self) -> None:
        """Count from zero; peaks start at what is in use now."""
        self._scheduler.reset_counters()

    def reset_prefix_cache(self) -> None:
        """Forget all cached prefixes; running requests go on."""
        self._scheduler.pool.reset_cache()

    def check(self) -> None:
        """Prove the invariants of the engine, its scheduler and its pool; may be called between any steps.

        Raises:
            InvariantError: with a report.
        """
        self._scheduler.check()
        queued = {request.id for request in (*self._scheduler.running, *self._scheduler.waiting)}
        if queued != self._live.keys():
            raise InvariantError(f"live and queued requests differ: {sorted(queued ^ self._live.keys())}")

    def _validate(self, request: Request) -> None:
        params = request.params
        name = f"request {request.id!r}"
        if request.id in self._live:
            raise RequestError(f"{name}: this id is in use")
        if request.finished or request.num_reached or request.logprobs:
            raise RequestError(f"{name}: this request has been served already")
        for what, ids in (
            ("prompt id", request.prompt_ids),
            ("score id", request.score_ids),
            ("stop id", params.stop_token_ids),
        ):
            for token_id in ids:
                if not 0 <= token_id < self._vocab_size:
                    raise RequestError(f"{name}: {what} {token_id} is not in 0..{self._vocab_size - 1}")
        if params.stop and self._tokenizer is None:
            raise RequestError(f"{name}: stop strings need a tokenizer")

    def _run(self, scheduled: list[Request]) -> None:
        lives = [self._live[request.id] for request in scheduled]
        wanted = [request.logit_positions for request in scheduled]
        batch = build_batch(scheduled, wanted, self._block_size)
        rows: list[SampleRow] = []
        for live, positions in zip(lives, wanted, strict=True):
            rows += _sample_rows(live, positions)
        results = self._backend.sample(self._backend.forward(batch), rows)
        now_ns = self._clock.now_ns()
        first = 0
        for live, positions in zip(lives, wanted, strict=True):
            tokens = results[first : first + len(positions)]
            first += len(positions)
            self._scheduler.advance(live.request)
            if live.request.score_ids:
                self._score(live, tokens, now_ns)
            elif tokens:
                self._generate(live, tokens[0], now_ns)

    def _generate(self, live: _Live, token: TokenLogprob | None, now_ns: int) -> None:
        request = live.request
        if token is None:
            self._fail(live, now_ns)
            return
        request.logprobs.append(token)
        reason = self._scheduler.append(request, token.token_id)
        if token.token_id in live.stop_ids:
            reason = FinishReason.STOP
            released = _join(live.flush(), Released((token,)))
        elif live.detokenizer is None:
            released = Released((token,))
        else:
            check_stop = request.meter.completion >= request.params.min_tokens
            released = live.detokenizer.push(token, check_stop)
            if reason is not None and released.stopped is None:
                released = _join(released, live.flush())
            if released.stopped is not None:
                reason = FinishReason.STOP
        if reason is not None:
            self._end(live, reason)
        self._tell(request, released, now_ns, num_generated=1)

    def _score(self, live: _Live, tokens: Sequence[TokenLogprob | None], now_ns: int) -> None:
        request = live.request
        scored = _leading(tokens)
        request.logprobs += scored
        if len(scored) < len(tokens):
            self._fail(live, now_ns, Released(scored))
            return
        if request.num_uncomputed == 0:
            self._end(live, FinishReason.LENGTH)
        if scored or request.finished:
            self._tell(request, Released(scored), now_ns)

    def _fail(self, live: _Live, now_ns: int, released: Released | None = None) -> None:
        """The next logits are not finite: release what is settled and end the request."""
        self._end(live, FinishReason.ERROR)
        self._tell(live.request, released or live.flush(), now_ns)

    def _end(self, live: _Live, reason: FinishReason) -> None:
        self._scheduler.finish(live.request, reason)
        del self._live[live.request.id]

    def _tell(self, request: Request, released: Released, now_ns: int, num_generated: int = 0) -> None:
        self._events.append(
            RequestEvent(
                request.id,
                tuple([token.token_id for token in released.tokens]),
                released.text,
                released.tokens,
                request.finish_reason,
                now_ns,
                num_generated,
            )
        )


def _sample_rows(live: _Live, positions: range) -> list[SampleRow]:
    """What to draw, or which given token to score, from the logits at each of ``positions``."""
    request = live.request
    if request.score_ids:
        return [
            SampleRow(request.params, request.prompt_ids, (), given_token=request.token_ids[position + 1])
            for position in positions
        ]
    if not positions:
        return []
    suppress = live.suppress if request.meter.completion < request.params.min_tokens else ()
    return [SampleRow(request.params, request.prompt_ids, request.completion_ids, suppress)]


def _leading(tokens: Sequence[TokenLogprob | None]) -> tuple[TokenLogprob, ...]:
    """The tokens before the first that is missing."""
    leading: list[TokenLogprob] = []
    for token in tokens:
        if token is None:
            break
        leading.append(token)
    return tuple(leading)


def _join(first: Released, second: Released) -> Released:
    return Released(first.tokens + second.tokens, first.text + second.text, first.stopped or second.stopped)
