"""The answers to one prompt in every round: what an engine that does not repeat itself is judged by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from servegate.facts import AnswerFacts, ForcedFacts
from servegate.metrics.timeline import completion_tokens, failure
from servegate.record import ForcedScore, RequestRecord, RoundRecord

NO_REASON: Final = "unknown"
"""Finish reason of an answer whose target gave none."""


def answer_facts(rounds: Sequence[RoundRecord]) -> dict[str, AnswerFacts]:
    """By request id; empty with fewer than two rounds, where nothing could repeat itself."""
    if len(rounds) < 2:
        return {}
    found: dict[str, list[RequestRecord | None]] = defaultdict(lambda: [None] * len(rounds))
    for number, round_ in enumerate(rounds):
        for request in round_.requests:
            if failure(request) is None:
                found[request.id][number] = request
    return {name: _answers(requests) for name, requests in sorted(found.items())}


def forced_facts(scores: Iterable[ForcedScore]) -> dict[str, ForcedFacts]:
    """By prompt id: the first score, and further ones of the same completion."""
    found: dict[str, ForcedFacts] = {}
    for score in scores:
        first, logprobs = found.get(score.prompt_id), rounded(score.logprobs)
        if first is None:
            ids = tuple(score.completion_ids)
            found[score.prompt_id] = ForcedFacts(completion_ids=ids, logprobs=logprobs)
        elif first.completion_ids == tuple(score.completion_ids):
            found[score.prompt_id] = first.model_copy(update={"again": (*first.again, logprobs)})
    return found


def rounded(logprobs: Iterable[float]) -> tuple[float, ...]:
    """10 decimals: below what reference numerics hold across machines. ``+ 0.0`` turns -0.0 into 0.0."""
    return tuple(round(value, 10) + 0.0 for value in logprobs)


def _answers(requests: Sequence[RequestRecord | None]) -> AnswerFacts:
    by_ids: dict[bytes, list[Sequence[float]]] = defaultdict(list)
    for request in requests:
        if request is not None and request.token_ids is not None:
            by_ids[request.token_ids.array.tobytes()].append(request.logprobs or ())
    return AnswerFacts(
        lengths=tuple(completion_tokens(r) if r is not None else None for r in requests),
        finish_reasons=tuple((r.finish_reason or NO_REASON) if r is not None else None for r in requests),
        distinct=len(by_ids),
        logprob_spread=max(map(_spread, by_ids.values()), default=0.0),
    )


def _spread(logprobs: Sequence[Sequence[float]]) -> float:
    """Largest difference of one position's logprob between answers with equal token ids."""
    scored = [tuple(row) for row in logprobs if len(row)]
    return round(float(np.ptp(np.array(scored), axis=0).max()), 10) if len(scored) > 1 else 0.0
