"""One request: what was asked for, where it stands, and what it has used."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from servegate_engine.errors import RequestError


class FinishReason(StrEnum):
    """Why a request ended. Every admitted request ends with exactly one of these."""

    STOP = "stop"
    """A stop id (the model's end-of-text ids included) or a stop string."""
    LENGTH = "length"
    """``max_tokens`` were generated, or the whole given continuation was scored."""
    CONTEXT = "context"
    """Prompt plus completion reached the context cap."""
    NO_ROOM = "no_room"
    """The whole block pool is too small to hold one more token of this request."""
    ABORTED = "aborted"
    """Cancelled by the caller."""
    ERROR = "error"
    """The model gave non-finite logits for this request."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are drawn. Transforms apply in the order that ``sampling.py`` documents.

    Logprobs are always those of the raw distribution: log-softmax of the logits before any transform.
    """

    max_tokens: int = 16
    temperature: float = 0.0
    top_k: int = 0
    """Keep the k most likely tokens; 0 keeps all."""
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    """Over prompt and completion; above 1 discourages."""
    presence_penalty: float = 0.0
    """Over the completion only."""
    frequency_penalty: float = 0.0
    """Over the completion only."""
    seed: int = 0
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    """Besides the model's end-of-text ids."""
    ignore_eos: bool = False
    """Neither the model's end-of-text ids nor ``stop_token_ids`` end the request."""
    top_logprobs: int = 0
    """How many of the most likely tokens to report at each position."""

    def __post_init__(self) -> None:
        checks = (
            (self.max_tokens >= 0, "max_tokens", "at least 0"),
            (0 <= self.min_tokens <= self.max_tokens, "min_tokens", f"in 0..max_tokens ({self.max_tokens})"),
            (0.0 <= self.temperature < float("inf"), "temperature", "finite and at least 0"),
            (self.top_k >= 0, "top_k", "at least 0 (0 keeps all)"),
            (0.0 <= self.top_p <= 1.0, "top_p", "in 0..1"),
            (0.0 <= self.min_p <= 1.0, "min_p", "in 0..1"),
            (0.0 < self.repetition_penalty < float("inf"), "repetition_penalty", "finite and above 0"),
            (abs(self.presence_penalty) < float("inf"), "presence_penalty", "finite"),
            (abs(self.frequency_penalty) < float("inf"), "frequency_penalty", "finite"),
            (0 <= self.seed < 2**63, "seed", "in 0..2**63-1"),
            (0 <= self.top_logprobs <= 20, "top_logprobs", "in 0..20"),
            (all(self.stop), "stop", "made of non-empty strings"),
        )
        for ok, name, allowed in checks:
            if not ok:
                raise RequestError(f"{name} is {getattr(self, name)!r}, it must be {allowed}")


@dataclass(slots=True)
class Meter:
    """Tokens a request really used. ``prompt = cached + computed`` once its first token is out."""

    prompt: int = 0
    cached: int = 0
    """Prompt tokens this request never ran: the prefix cache had their KV."""
    computed: int = 0
    """Prompt tokens run through the model the first time."""
    scored: int = 0
    """Given continuation tokens run through the model the first time."""
    recomputed: int = 0
    """Tokens run through the model again after a preemption; never billed."""
    completion: int = 0
    """Tokens generated."""
    preemptions: int = 0


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One position's raw-distribution logprobs, in nat."""

    token_id: int
    logprob: float
    margin: float
    """Most likely minus second most likely logprob; below 1e-6 the choice is a near-tie."""
    top: tuple[tuple[int, float], ...] = ()
    """``(token id, logprob)``, most likely first, ties by lowest id; length ``top_logprobs``."""


@dataclass(slots=True, eq=False)
class Request:
    """A request and its state. The scheduler moves it; ``token_ids`` and the meter only grow.

    The one rule: ``num_computed`` tokens of ``token_ids`` have their KV in ``blocks``; a step closes part of
    the gap to ``len(token_ids)``. Prefill, chunked prefill, a prefix hit and recompute are all that gap::

        token_ids  | prompt_ids           | score_ids or generated |
                   | num_computed  | num_scheduled | not yet       |
    """

    id: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    score_ids: tuple[int, ...] = ()
    """Given continuation to score (teacher forcing): its logprobs, then done; nothing is drawn."""

    num_given: int = field(init=False)
    """Prompt and given continuation: the boundary to what the engine generates. It never moves."""
    token_ids: list[int] = field(init=False)
    """Prompt, given continuation, then every token generated so far."""
    num_computed: int = field(default=0, init=False)
    num_scheduled: int = field(default=0, init=False)
    """Tokens of the step being run; 0 between steps."""
    num_reached: int = field(default=0, init=False)
    """Highest ``num_computed`` so far: running a token below it again is recompute."""
    blocks: list[int] = field(default_factory=list, init=False)
    """Physical block of each logical block, in order."""
    logprobs: list[TokenLogprob] = field(default_factory=list, init=False)
    """Of every generated, or every scored, token so far."""
    finish_reason: FinishReason | None = field(default=None, init=False)
    arrival_ns: int = field(default=0, init=False)
    meter: Meter = field(default_factory=Meter, init=False)

    def __post_init__(self) -> None:
        if not self.prompt_ids:
            raise RequestError(f"request {self.id!r}: the prompt has no tokens")
        self.token_ids = [*self.prompt_ids, *self.score_ids]
        self.num_given = len(self.token_ids)
        self.meter.prompt = len(self.prompt_ids)

    @property
    def completion_ids(self) -> list[int]:
        """Tokens generated by the engine (scored tokens are given, not generated)."""
        return self.token_ids[self.num_given :]

    @property
    def num_uncomputed(self) -> int:
        return len(self.token_ids) - self.num_computed

    @property
    def num_cacheable(self) -> int:
        """Most leading tokens whose KV may come from the prefix cache.

        Every token from there on has to run: the last one for the logits of the next, and in a scoring
        request each one whose logits score the token after it.
        """
        if self.score_ids:
            return len(self.prompt_ids) - 1 + len(self.logprobs)
        return len(self.token_ids) - 1

    @property
    def logit_positions(self) -> range:
        """Positions in ``token_ids`` whose logits the scheduled step has to give."""
        end = self.num_computed + self.num_scheduled
        if self.score_ids:
            return range(max(self.num_computed, self.num_cacheable), min(end, len(self.token_ids) - 1))
        return range(end - 1, end) if end == len(self.token_ids) else range(0)

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclass(frozen=True, slots=True)
class RequestEvent:
    """What one step gave one request. A request's events, concatenated, are its final result."""

    request_id: str
    token_ids: tuple[int, ...]
    """Tokens released by this event: ids, logprobs and text of an event always belong together."""
    text: str
    logprobs: tuple[TokenLogprob, ...]
    finish_reason: FinishReason | None
    time_ns: int
    num_generated: int = 0
    """Tokens the model generated in this step, released or still held back for a stop string."""


@dataclass(slots=True)
class Counters:
    """What the engine has done since ``reset_counters``. Exact: equal runs give equal counters."""

    steps: int = 0
    prefill_tokens: int = 0
    """Tokens run through the model beside decode: the sum of ``computed + scored + recomputed``."""
    decode_tokens: int = 0
    """Tokens generated."""
    cached_tokens: int = 0
    """Prompt tokens that the prefix cache spared."""
    recomputed_tokens: int = 0
    """Tokens run again after a preemption, generated ones included."""
    preemptions: int = 0
    evictions: int = 0
    """Cached blocks given up to make room."""
    peak_blocks: int = 0
    peak_running: int = 0
    shed: int = 0
    """Requests refused because the queue was full."""
