"""The times of one round's answered requests, as arrays: what every latency is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from servegate.record import RequestRecord, RoundRecord

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

NS_PER_MS = 1e6


def failure(request: RequestRecord) -> str | None:
    """Why the request has no usable answer, or None. It then has no latency, and improves none.

    Usage that counts tokens of which none was seen is a failure too: its TTFT would read as zero.
    """
    if request.error is not None:
        return request.error
    usage = request.usage
    if not request.arrivals_ns and usage is not None and usage.completion_tokens > 0:
        return f"usage counts {usage.completion_tokens} completion tokens, and none arrived"
    return None


def tokens_seen(request: RequestRecord) -> int:
    """Completion tokens as the client counted them: ids where there are some, else frame by frame."""
    if request.token_ids is not None:
        return len(request.token_ids)
    if request.frame_tokens is not None:
        return sum(request.frame_tokens)
    return len(request.arrivals_ns)


def completion_tokens(request: RequestRecord) -> int:
    """The engine's own meter first; the client's count where there is none."""
    return request.usage.completion_tokens if request.usage is not None else tokens_seen(request)


@dataclass(frozen=True)
class Timeline:
    """One entry a request for the first group, one entry a gap for the second.

    Only requests that were answered with at least one token. Frames with equal stamps came in one read and
    are merged, so that a gap is never zero by accident. Two frames out of order give a negative gap, which
    no metric accepts.
    """

    num_requests: int
    num_failed: int
    wall_ns: int

    scheduled_ns: Ints
    sent_ns: Ints
    first_ns: Ints
    last_ns: Ints
    tokens: Ints
    """Completion tokens by the engine's meter."""
    first_frame_tokens: Ints
    largest_gap_ns: Ints
    """0 where there is no gap: such a request has no stall."""
    computed_prompt_tokens: Ints
    """Prompt tokens that no cache spared; -1 where the engine does not say."""

    gap_ns: Ints
    gap_tokens: Ints
    """Tokens in the frame that ends the gap."""

    @property
    def num_answered(self) -> int:
        return self.num_requests - self.num_failed


def timeline(round_: RoundRecord, answered: Sequence[RequestRecord]) -> Timeline:
    """The times of the round's answered requests."""
    requests = [request for request in answered if request.arrivals_ns]
    stamps, tokens, first, last = _frames(requests)
    is_gap = np.ones(len(stamps), dtype=bool)
    is_gap[first] = False
    gap_ns = np.diff(stamps, prepend=0)
    largest = np.maximum.reduceat(np.where(is_gap, gap_ns, 0), first) if requests else np.zeros(0, np.int64)
    return Timeline(
        num_requests=len(round_.requests),
        num_failed=len(round_.requests) - len(answered),
        wall_ns=round_.wall_ns,
        scheduled_ns=_column(requests, lambda r: r.scheduled_ns),
        sent_ns=_column(requests, lambda r: r.sent_ns),
        first_ns=stamps[first],
        last_ns=stamps[last],
        tokens=_column(requests, completion_tokens),
        first_frame_tokens=tokens[first],
        largest_gap_ns=largest,
        computed_prompt_tokens=_column(requests, _computed_prompt_tokens),
        gap_ns=gap_ns[is_gap],
        gap_tokens=tokens[is_gap],
    )


def _computed_prompt_tokens(request: RequestRecord) -> int:
    usage = request.usage
    if usage is None or usage.cached_tokens is None:
        return -1
    return usage.prompt_tokens - usage.cached_tokens


def _column(requests: Sequence[RequestRecord], of: Callable[[RequestRecord], int]) -> Ints:
    return np.fromiter((of(request) for request in requests), dtype=np.int64, count=len(requests))


def _frames(requests: Sequence[RequestRecord]) -> tuple[Ints, Ints, Ints, Ints]:
    """Every request's frames end to end: stamps, tokens, index of each request's first and last frame."""
    if not requests:
        empty = np.zeros(0, dtype=np.int64)
        return empty, empty, empty, empty
    lengths = _column(requests, lambda r: len(r.arrivals_ns))
    starts = np.cumsum(lengths) - lengths
    stamps = np.concatenate([r.arrivals_ns.array for r in requests]).astype(np.int64, copy=False)
    tokens = np.ones(len(stamps), dtype=np.int64)
    for start, request in zip(starts, requests, strict=True):
        if request.frame_tokens is not None:
            tokens[start : start + len(request.frame_tokens)] = request.frame_tokens.array
    kept = np.diff(stamps, prepend=0) != 0
    kept[starts] = True
    frame = np.cumsum(kept) - 1  # index, after merging, of the frame that each arrival belongs to
    last_arrival = starts + lengths - 1
    return stamps[kept], np.add.reduceat(tokens, np.flatnonzero(kept)), frame[starts], frame[last_arrival]
