"""How far the head's logprobs lie from the base's, on the very tokens that the base generated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from servegate.facts import Sample, WorkloadFacts
from servegate.metrics.context import stable
from servegate.metrics.drift import first_difference
from servegate.metrics.finding import Finding
from servegate.metrics.matching import Matching
from servegate.metrics.timeline import Floats

RESOLUTION: Final = 1e-9
"""nat. What reference numerics hold across machines; a smaller difference reads as zero."""


@dataclass(frozen=True)
class Scored:
    prompt_id: str
    base: Floats
    head: Floats
    forced: bool
    """Teacher-forced; otherwise the prefix that both arms generated alike."""


def logprob_delta(base: WorkloadFacts, head: WorkloadFacts, matching: Matching) -> Finding | None:
    """max over all positions of ``|head - base|``, nat."""
    found = list(scored(base, head, matching))
    if not found:
        return None
    deltas = [_delta(item) for item in found]
    index = max(range(len(found)), key=lambda i: float(deltas[i].max()))
    position = int(deltas[index].argmax())
    worst, item = float(deltas[index][position]), found[index]
    line = (
        f"worst at prompt {item.prompt_id!r}, token {position}: "
        f"base {item.base[position]:.10f}, head {item.head[position]:.10f} nat"
    )
    return _finding(found, worst, (line,) if worst > 0 else ())


def logprob_delta_mean(base: WorkloadFacts, head: WorkloadFacts, matching: Matching) -> Finding | None:
    """mean over all positions of ``|head - base|``, nat."""
    found = list(scored(base, head, matching))
    if not found:
        return None
    return _finding(found, float(np.concatenate([_delta(item) for item in found]).mean()), ())


def scored(base: WorkloadFacts, head: WorkloadFacts, matching: Matching) -> Iterator[Scored]:
    """Each matched prompt's logprobs on the same tokens, as both arms gave them.

    Scores of head are held against base's own scores where there are some: a server scores by other kernels
    than it generates by, and the difference between the two is no change.
    """
    for base_id, head_id in matching.pairs:
        b, h = base.prompts[base_id], head.prompts[head_id]
        own, forced = base.forced.get(base_id), head.forced.get(head_id) or head.forced.get(base_id)
        before = own.logprobs if own is not None and own.completion_ids == b.completion_ids else b.logprobs
        if before and forced is not None and forced.completion_ids == b.completion_ids:
            yield Scored(base_id, np.array(before), np.array(forced.logprobs), forced=True)
            continue
        if not b.logprobs:
            continue
        parts_at = first_difference(b.completion_ids, h.completion_ids)
        shared = len(b.completion_ids) if parts_at is None else parts_at
        if shared and h.logprobs:
            yield Scored(base_id, np.array(b.logprobs[:shared]), np.array(h.logprobs[:shared]), forced=False)


def _delta(item: Scored) -> Floats:
    delta = np.abs(item.head - item.base)
    return np.where(delta < RESOLUTION, 0.0, delta)


def _finding(found: list[Scored], value: float, detail: tuple[str, ...]) -> Finding:
    n = sum(len(item.base) for item in found)
    by_prefix = sum(not item.forced for item in found)
    note = f"{by_prefix} of {len(found)} prompts by their common prefix, not teacher-forced"
    return Finding(
        base=Sample(value=0.0, n=n),
        head=Sample(value=stable(value), n=n, note=note if by_prefix else None),
        detail=detail,
    )
