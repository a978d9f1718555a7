"""What a comparison of two arms gives, prompt by prompt, where neither arm has a number of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from servegate.facts import Sample, WorkloadFacts
from servegate.metrics.matching import Matching

SHOWN: Final = 10
"""Prompts named in a row's detail."""


@dataclass(frozen=True)
class Finding:
    """``base`` is what equal arms give, so that a finding is judged by the rules of any metric."""

    base: Sample
    head: Sample
    base_text: str | None = None
    """Shown in place of the number."""
    head_text: str | None = None
    detail: tuple[str, ...] = ()


Between = Callable[[WorkloadFacts, WorkloadFacts, Matching], Finding | None]
"""(base, head, matching prompts) -> finding, or None where the arms do not hold what it needs."""


def shortened(lines: Sequence[str]) -> tuple[str, ...]:
    if len(lines) <= SHOWN:
        return tuple(lines)
    return (*lines[:SHOWN], f"and {len(lines) - SHOWN} more")
