"""What a metric may look at beside the workload's own record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from servegate.facts import QualityFact
from servegate.fingerprint import Fingerprint
from servegate.metrics.timeline import Timeline, timeline
from servegate.record import WorkloadRecord
from servegate.suite.schema import MachinePrices, TokenPrices


@dataclass(frozen=True)
class Context:
    """Computed once for a workload, read by every metric."""

    rounds: tuple[Timeline, ...]
    fingerprint: Fingerprint
    prices: TokenPrices | MachinePrices | None
    quality: tuple[QualityFact, ...]

    @classmethod
    def of(
        cls,
        workload: WorkloadRecord,
        fingerprint: Fingerprint,
        prices: TokenPrices | MachinePrices | None = None,
        quality: Sequence[QualityFact] = (),
    ) -> Context:
        rounds = tuple(timeline(round_) for round_ in workload.rounds)
        return cls(rounds, fingerprint, prices, tuple(quality))


def stable(value: float) -> float:
    """Ten significant digits: what is stored, compared and recomputed, so that no file rounds differently."""
    return float(f"{value:.10g}")
