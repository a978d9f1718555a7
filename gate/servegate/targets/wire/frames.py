"""A frame of an OpenAI-compatible stream, and its fold into one answer. Pure.

The forms are those of vLLM's `/v1/completions` and `/v1/chat/completions` with ``return_token_ids``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from servegate.record import Usage
from servegate.targets.wire.sse import EventReader
from servegate.wording import count

END: Final = "[DONE]"
NO_VALUE: Final = -9999.0
"""What vLLM writes in place of minus infinity, which JSON cannot hold."""
FAILED: Final = frozenset({"abort", "error"})
"""Finish reasons of answers that the server gave up."""

Read = tuple[int, bytes]
"""(ns of arrival, bytes)."""


class _Wire(BaseModel):
    """Servers add keys as they please."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


TokenId = Annotated[int, Field(ge=0, lt=2**32)]
Count = Annotated[int, Field(ge=0, le=2**40)]


class _Delta(_Wire):
    content: str | None = None


class _TokenLogprob(_Wire):
    logprob: float | None = None


class _Logprobs(_Wire):
    content: list[_TokenLogprob] | None = None
    """Of the chat route."""
    token_logprobs: list[float | None] | None = None
    """Of the completions route."""

    def values(self) -> list[float | None]:
        if self.content is not None:
            return [token.logprob for token in self.content]
        return self.token_logprobs or []


class _Choice(_Wire):
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None
    token_ids: list[TokenId] | None = None
    prompt_token_ids: list[TokenId] | None = None
    """On the completions route; the chat route has it beside ``choices``."""
    logprobs: _Logprobs | None = None

    @property
    def shown(self) -> str:
        return self.text or (self.delta.content if self.delta else None) or ""


class _PromptDetails(_Wire):
    cached_tokens: Count | None = None


class _Usage(_Wire):
    prompt_tokens: Count
    completion_tokens: Count = 0
    prompt_tokens_details: _PromptDetails | None = None

    def metered(self) -> Usage:
        details = self.prompt_tokens_details
        return Usage(
            prompt_tokens=self.prompt_tokens,
            cached_tokens=details.cached_tokens if details is not None else None,
            completion_tokens=self.completion_tokens,
        )


class _Frame(_Wire):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None
    prompt_token_ids: list[TokenId] | None = None


@dataclass
class Answer:
    """What one stream said. A stream with an ``error`` has no usable answer, whatever else it said."""

    arrivals_ns: list[int] = field(default_factory=list)
    """Of each frame that carried tokens: neither the frame with the role nor a comment does."""
    frame_tokens: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    prompt_ids: list[int] | None = None
    text: str = ""
    logprobs: list[float] | None = None
    """None where the server gave none, or not one for each token."""
    finish_reason: str | None = None
    usage: Usage | None = None
    error: str | None = None


def read_answer(reads: Sequence[Read]) -> Answer:
    """The answer of a stream that came in these reads."""
    events, fold = EventReader(), _Fold()
    for arrived_ns, chunk in reads:
        for data in events.feed(chunk):
            fold.take(arrived_ns, data)
    return fold.ended(truncated=events.truncated)


class _Fold:
    def __init__(self) -> None:
        self._answer = Answer()
        self._logprobs: list[float | None] = []
        self._done = False

    def take(self, arrived_ns: int, data: str) -> None:
        if data.strip() == END:
            self._done = True
            return
        try:
            frame = _Frame.model_validate_json(data)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            self._fail(f"the server sent a frame that cannot be read: {where or data[:60]!r}: {first['msg']}")
            return
        if frame.error is not None:
            self._fail(f"the server says: {told(frame.error)}")
        if frame.usage is not None:
            self._answer.usage = frame.usage.metered()  # cumulative: the last one counts
        self._answer.prompt_ids = self._answer.prompt_ids or frame.prompt_token_ids
        for choice in frame.choices:
            self._choice(arrived_ns, choice)

    def _choice(self, arrived_ns: int, choice: _Choice) -> None:
        answer = self._answer
        answer.prompt_ids = answer.prompt_ids or choice.prompt_token_ids
        answer.text += choice.shown
        if choice.token_ids:
            answer.arrivals_ns.append(arrived_ns)
            answer.frame_tokens.append(len(choice.token_ids))
            answer.token_ids += choice.token_ids
        elif choice.shown and not answer.token_ids:
            self._fail(
                "the server gives no token ids: servegate needs `return_token_ids`, vLLM 0.10.2 or newer"
            )
        if choice.logprobs is not None:
            self._logprobs += choice.logprobs.values()
        if choice.finish_reason:
            if answer.finish_reason is not None:
                self._fail(f"the answer ended twice: {answer.finish_reason}, then {choice.finish_reason}")
            answer.finish_reason = choice.finish_reason

    def ended(self, *, truncated: bool) -> Answer:
        answer = self._answer
        seen = f"after {count(len(answer.token_ids), 'token')}"
        if answer.finish_reason in FAILED:
            self._fail(f"the server gave the answer up {seen}: finish reason {answer.finish_reason!r}")
        elif truncated or answer.finish_reason is None:
            self._fail(f"the stream was cut {seen}")
        elif not self._done:
            self._fail(f"the stream ended {seen} without {END}: it may have been cut")
        known = [value for value in self._logprobs if value is not None and value > NO_VALUE]
        if answer.token_ids and len(known) == len(answer.token_ids):
            answer.logprobs = known
        return answer

    def _fail(self, why: str) -> None:
        """The first reason is the cause; what follows from it adds nothing."""
        self._answer.error = self._answer.error or why


def told_body(body: bytes) -> str:
    """What a refusal says: its message where it is JSON, its text where it is not."""
    text = body.decode("utf-8", errors="replace")
    try:
        return told(json.loads(text))
    except ValueError:
        return told(text)


def told(error: object) -> str:
    """The message of an error, in whichever of the known forms, on one line."""
    if isinstance(error, dict):
        inner = error.get("error", error)
        error = inner.get("message", inner) if isinstance(inner, dict) else inner
    return " ".join(str(error).split())[:300]
