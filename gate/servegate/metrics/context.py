"""What a metric may look at beside the workload's own record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from servegate.facts import QualityFact
from servegate.fingerprint import Fingerprint
from servegate.metrics.timeline import Timeline, failure, timeline
from servegate.record import RequestRecord, WorkloadRecord
from servegate.suite.schema import MachinePrices, TokenPrices


@dataclass(frozen=True)
class Context:
    """Computed once for a workload, read by every metric."""

    rounds: tuple[Timeline, ...]
    answered: tuple[tuple[RequestRecord, ...], ...]
    """Of each round, the requests with a usable answer."""
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
        answered = tuple(
            tuple(request for request in round_.requests if failure(request) is None)
            for round_ in workload.rounds
        )
        rounds = tuple(map(timeline, workload.rounds, answered))
        return cls(rounds, answered, fingerprint, prices, tuple(quality))

    @property
    def answers(self) -> Iterator[RequestRecord]:
        """Of all rounds."""
        return chain.from_iterable(self.answered)


def stable(value: float) -> float:
    """Ten significant digits: what is stored, compared and recomputed, so that no file rounds differently."""
    return float(f"{value:.10g}")
