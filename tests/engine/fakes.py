"""A model in a few lines of integer arithmetic, and helpers to drive an engine with it.

``HashBackend`` keeps real pages. It writes each token into its slot, and to give logits it reads the whole
history back through the block table, so that a wrong block, a stale page or a bad prefix hit changes the
result or is caught outright. The logits are a hash of that history: any two prefixes disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import torch

from servegate_engine import sampling
from servegate_engine.batch import StepBatch
from servegate_engine.clock import VirtualClock
from servegate_engine.config import EngineConfig
from servegate_engine.engine import Engine
from servegate_engine.request import FinishReason, Request, RequestEvent, SamplingParams, TokenLogprob
from servegate_engine.sampling import SampleRow

VOCAB = 64
EOS = 1

LogitsOf = Callable[[tuple[int, ...]], Sequence[float]]


@lru_cache(maxsize=100_000)
def hash_logits(prefix: tuple[int, ...]) -> tuple[float, ...]:
    """Logits in [0, 4) after ``prefix``: exact in float32, the same on every machine."""
    state = 0x9E3779B97F4A7C15
    for token_id in prefix:
        state = ((state ^ (token_id + 1)) * 0xBF58476D1CE4E5B9 + 1) & (2**64 - 1)
    mixed = [((state ^ (v * 0x94D049BB133111EB)) * 0xD6E8FEB86659FD93) & (2**64 - 1) for v in range(VOCAB)]
    return tuple((x >> 44) / 2**18 for x in mixed)


def favour(token_id: int, after: int = 0, base: LogitsOf = hash_logits) -> LogitsOf:
    """``base`` with +100 on ``token_id`` once the prefix has ``after`` tokens."""

    def logits_of(prefix: tuple[int, ...]) -> Sequence[float]:
        logits = list(base(prefix))
        if len(prefix) >= after:
            logits[token_id] += 100.0
        return logits

    return logits_of


class HashBackend:
    def __init__(self, num_blocks: int, block_size: int, logits_of: LogitsOf = hash_logits) -> None:
        self.block_size = block_size
        self.pages: list[tuple[int, int] | None] = [None] * (num_blocks * block_size)
        """(token id, position) of the token in each slot."""
        self.logits_of = logits_of
        self.batches: list[StepBatch] = []

    def forward(self, batch: StepBatch) -> torch.Tensor:
        self.batches.append(batch)
        assert len(set(batch.slots)) == len(batch.slots), "two tokens share a slot"
        for slot, token_id, position in zip(batch.slots, batch.token_ids, batch.positions, strict=True):
            self.pages[slot] = (token_id, position)
        rows = []
        for sequence in batch.sequences:
            history = self._history(sequence.block_table, sequence.context_length)
            for row in batch.logit_rows:
                if sequence.start <= row < sequence.start + sequence.length:
                    rows.append(self.logits_of(history[: batch.positions[row] + 1]))
        return torch.tensor(rows, dtype=torch.float64).reshape(-1, VOCAB)

    def sample(self, logits: torch.Tensor, rows: Sequence[SampleRow]) -> list[TokenLogprob | None]:
        return sampling.sample(logits, rows)

    def describe(self) -> dict[str, str]:
        return {"device": "hash"}

    def _history(self, block_table: Sequence[int], length: int) -> tuple[int, ...]:
        size = self.block_size
        tokens = []
        for position in range(length):
            page = self.pages[block_table[position // size] * size + position % size]
            assert page is not None, f"position {position} was never written"
            assert page[1] == position, f"position {position} reads the KV of position {page[1]}"
            tokens.append(page[0])
        return tuple(tokens)


class ByteTokenizer:
    """Token 2 is a raw byte 0xC3, 3 is 0xA9 (together "é"); others are one ASCII letter; EOS has no text."""

    def token_bytes(self, token_id: int) -> bytes:
        special = {EOS: b"", 2: b"\xc3", 3: b"\xa9"}
        return special.get(token_id, bytes([ord("A") + token_id - 4]))

    def ids(self, text: str) -> tuple[int, ...]:
        return tuple(ord(character) - ord("A") + 4 for character in text)


def make_engine(
    *,
    logits_of: LogitsOf = hash_logits,
    eos: Sequence[int] = (),
    max_position: int = 10_000,
    tokenizer: ByteTokenizer | None = None,
    **config: int | bool,
) -> tuple[Engine, HashBackend]:
    """An engine with small blocks (4 tokens) on a hash backend; ``config`` as in EngineConfig."""
    settings = EngineConfig(**{"block_size": 4, "num_blocks": 64, "max_batched_tokens": 64, **config})  # type: ignore[arg-type]
    backend = HashBackend(settings.num_blocks, settings.block_size, logits_of)
    engine = Engine(
        backend,
        settings,
        vocab_size=VOCAB,
        max_position=max_position,
        eos_token_ids=eos,
        tokenizer=tokenizer,
        clock=VirtualClock(),
    )
    return engine, backend


def make_request(
    id_: str, prompt: Iterable[int], max_tokens: int = 8, score: Iterable[int] = (), **params: object
) -> Request:
    return Request(id_, tuple(prompt), SamplingParams(max_tokens=max_tokens, **params), tuple(score))  # type: ignore[arg-type]


def prompt(length: int, salt: int = 0) -> tuple[int, ...]:
    """Token ids in 4..63, a different sequence for each ``salt``."""
    return tuple((7 * i + 13 * salt + i * i) % 60 + 4 for i in range(length))


@dataclass
class Result:
    """A request's events, put together."""

    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    logprobs: list[float] = field(default_factory=list)
    finish: FinishReason | None = None
    steps: list[int] = field(default_factory=list)
    """Index of the step that generated each token."""


def collect(results: dict[str, Result], events: Iterable[RequestEvent], step: int = 0) -> None:
    for event in events:
        result = results.setdefault(event.request_id, Result())
        assert result.finish is None, f"{event.request_id} got an event after its last"
        assert event.token_ids == tuple(token.token_id for token in event.logprobs)
        result.token_ids += event.token_ids
        result.text += event.text
        result.logprobs += [token.logprob for token in event.logprobs]
        result.steps += [step] * event.num_generated
        result.finish = event.finish_reason


def run(engine: Engine, requests: Iterable[Request] = (), max_steps: int = 10_000) -> dict[str, Result]:
    """Add ``requests``, step until nothing is left, checking every invariant after each step."""
    results: dict[str, Result] = {}
    for request in requests:
        engine.add(request)
    for step in range(max_steps):
        if not engine.has_work:
            return results
        collect(results, engine.step(), step)
        engine.check()
    raise AssertionError(f"not done after {max_steps} steps")


def run_alone(request: Request, **engine: object) -> Result:
    """What ``request`` gives with nothing beside it: fresh engine, ample pool, no cache."""
    fresh = Request(request.id, request.prompt_ids, request.params, request.score_ids)
    ample, _ = make_engine(**{"num_blocks": 256, "prefix_cache": False, **engine})  # type: ignore[arg-type]
    return run(ample, [fresh])[request.id]


def used_blocks(engine: Engine) -> int:
    return engine._scheduler.pool.num_used


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
