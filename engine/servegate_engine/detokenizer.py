"""From tokens to text, released token by token while nothing can still change.

A release is whole tokens with exactly their text. A token waits while

- it ends inside a UTF-8 sequence, or
- its text may be the beginning of a stop string (the longest such ending of the text counts),

and every token behind it waits too, so that the releases, concatenated, are the final result.

The text is ``bytes.decode("utf-8", "replace")`` of all token bytes at once: bytes that are no UTF-8 become
U+FFFD, and so does a sequence that the end of the request cuts off. If the prompt itself ends inside a
sequence, the completion's first bytes complete it: prompt text plus completion text is the text of the whole.

Stop strings are matched against that text, across tokens, and a match is decided by the text alone, never by
how it was cut into tokens: the match that ends first wins, and of several that end at one character the one
that starts first. The release that stops has every token so far; its text ends before the match.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from servegate_engine.request import TokenLogprob


class TokenBytes(Protocol):
    """What is needed of a tokenizer."""

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes one token stands for; none for a special token."""
        ...


@dataclass(frozen=True, slots=True)
class Released:
    """Tokens whose text is settled, and that text."""

    tokens: tuple[TokenLogprob, ...] = ()
    text: str = ""
    stopped: str | None = None
    """The stop string that was found. Nothing may be pushed after it."""


class Detokenizer:
    """The text of one request's completion. Work and memory are linear in its length."""

    def __init__(self, tokenizer: TokenBytes, stop: tuple[str, ...], prompt_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._matchers = tuple(_StopMatcher(text) for text in stop)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._decoder.decode(_last_bytes(tokenizer, prompt_ids))
        self._held: deque[tuple[TokenLogprob, str]] = deque()
        """Tokens not yet released, with the text each one completed."""
        self._cuts: deque[tuple[int, int]] = deque()
        """``(tokens, characters)`` since the start, at each held token that ends between two characters."""
        self._num_tokens = 0
        self._num_characters = 0
        self._released_tokens = 0
        self._released_characters = 0
        self._check_stop = True
        self._stopped = False

    def push(self, token: TokenLogprob, check_stop: bool = True) -> Released:
        """Take the next token, and release what is settled.

        With ``check_stop`` false a stop string that ends in this token is ordinary text: pass false for the
        first ``min_tokens - 1`` tokens. One that begins there and ends in a later token does stop.
        """
        if self._stopped:
            raise RuntimeError("a token was pushed after the stop string")
        text = self._decoder.decode(self._tokenizer.token_bytes(token.token_id))
        self._held.append((token, text))
        self._num_tokens += 1
        self._check_stop = check_stop
        stop = self._read(text)
        if stop is not None:
            return self._stop_at(stop)
        inside_a_character = self._decoder.getstate()[0]
        if not inside_a_character:
            self._cuts.append((self._num_tokens, self._num_characters))
        settled = self._num_characters - max((matcher.matched for matcher in self._matchers), default=0)
        num_tokens = self._released_tokens
        while self._cuts and self._cuts[0][1] <= settled:
            num_tokens, _ = self._cuts.popleft()
        return Released(*self._release(num_tokens - self._released_tokens))

    def flush(self) -> Released:
        """Release everything: the request is over.

        A sequence that never ended becomes U+FFFD. Should that complete a stop string, it is a match like
        any other, under the ``check_stop`` of the last token.
        """
        rest = self._decoder.decode(b"", final=True)
        if rest and self._held:  # nothing held: the unfinished sequence is the prompt's
            token, text = self._held.pop()
            self._held.append((token, text + rest))
            stop = self._read(rest)
            if stop is not None:
                return self._stop_at(stop)
        return Released(*self._release(len(self._held)))

    def _read(self, text: str) -> str | None:
        """Move the matchers over new text, up to the end of the first stop string that counts."""
        if not self._matchers:
            self._num_characters += len(text)
            return None
        for character in text:
            self._num_characters += 1
            found = [matcher.stop for matcher in self._matchers if matcher.feed(character)]
            if found and self._check_stop:
                return max(found, key=len)
        return None

    def _stop_at(self, stop: str) -> Released:
        """The last release: ``stop`` ends at the last character read."""
        self._stopped = True
        length = self._num_characters - len(stop) - self._released_characters
        tokens, text = self._release(len(self._held))
        return Released(tokens, text[:length], stop)

    def _release(self, count: int) -> tuple[tuple[TokenLogprob, ...], str]:
        """Let go of the first ``count`` held tokens and their text."""
        taken = [self._held.popleft() for _ in range(count)]
        text = "".join(text for _, text in taken)
        self._released_tokens += count
        self._released_characters += len(text)
        return tuple(token for token, _ in taken), text


class _StopMatcher:
    """Finds one string in a text that comes character by character (Knuth, Morris, Pratt 1977)."""

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.matched = 0
        """Length of the longest proper prefix of ``stop`` that the text so far ends in."""
        self._fallback = [0] * len(stop)
        """``[i]``: the same, within ``stop`` itself, for ``stop[1 : i + 1]``."""
        for i in range(1, len(stop)):
            self._fallback[i] = self._extend(self._fallback[i - 1], stop[i])

    def feed(self, character: str) -> bool:
        """Take the next character; true if ``stop`` ends with it."""
        self.matched = self._extend(self.matched, character)
        complete = self.matched == len(self.stop)
        if complete:
            self.matched = self._fallback[-1]
        return complete

    def _extend(self, matched: int, character: str) -> int:
        while matched and self.stop[matched] != character:
            matched = self._fallback[matched - 1]
        return matched + (self.stop[matched] == character)


def _last_bytes(tokenizer: TokenBytes, token_ids: Sequence[int]) -> bytes:
    """At least the last three bytes of ``token_ids``: no unfinished UTF-8 sequence is longer."""
    tail = b""
    for token_id in reversed(token_ids):
        if len(tail) >= 3:
            break
        tail = tokenizer.token_bytes(token_id) + tail
    return tail
