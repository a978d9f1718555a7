"""Record -> numbers: for each timed metric the paired log-ratios, launch by launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from servegate.ab.record import BlockRecord, LaunchRecord
from servegate.ab.schedule import ROLES, Role
from servegate.fingerprint import Fingerprint
from servegate.load import is_contended
from servegate.metrics.context import Context
from servegate.metrics.table import MetricSpec
from servegate.record import RoundRecord, WorkloadRecord
from servegate.stats.launches import InvalidSamplesError, Launch, log_ratios
from servegate.suite.schema import MachinePrices, TokenPrices

_NOWHERE: Final = Fingerprint(machine={}, software={}, served={})
"""No timed metric reads the fingerprint."""


@dataclass(frozen=True)
class Series:
    """One metric's block values in its own unit, one tuple a launch, and what they give in pairs."""

    values: dict[Role, tuple[tuple[float, ...], ...]]
    pairs: tuple[Launch, ...]
    """Head against base."""
    same: tuple[Launch, ...]
    """Base against base."""

    def as_one_launch(self) -> Series:
        """The same blocks, where no launch restarted what is measured: they share the luck of one start."""
        return replace(self, pairs=_joined(self.pairs), same=_joined(self.same))


class Rounds:
    """The rounds of one timed workload in all launches. Blocks that not all three arms finished are left out.

    A block of a metric is as many successive rounds of an arm as the metric needs for a value: a p95 of eight
    prompts a round is taken over three rounds, a p95 of hundreds of gaps over one.
    """

    def __init__(
        self, launches: Sequence[LaunchRecord], workload: str, prices: TokenPrices | MachinePrices | None
    ) -> None:
        self._workload, self._prices = workload, prices
        self._launches = [
            (launch.head_first, _complete(launch, workload))
            for launch in launches
            if any(_complete(launch, workload).values())
        ]
        self._contexts: dict[tuple[int, Role, int, int], tuple[WorkloadRecord, Context]] = {}

    def series(self, spec: MetricSpec) -> Series:
        """The metric's pairs. Raises InvalidSamplesError where a block has no usable value; says which."""
        needed = self._rounds_needed(spec)
        values: dict[Role, list[tuple[float, ...]]] = {role: [] for role in ROLES}
        pairs: list[Launch] = []
        same: list[Launch] = []
        others: tuple[tuple[Role, list[Launch]], ...] = (("head", pairs), ("again", same))
        for number, (head_first, blocks) in enumerate(self._launches):
            cuts = _cuts(len(blocks["base"]), needed)
            if not cuts:
                continue
            row = {r: tuple(self._value(spec, number, r, *cut) for cut in cuts) for r in ROLES}
            for role in ROLES:
                values[role].append(row[role])
            for other, found in others:
                marks = tuple(_marked(blocks["base"], blocks[other], *cut) for cut in cuts)
                found.append(Launch(log_ratios(row["base"], row[other]), head_first, marks))
        if not pairs:
            raise InvalidSamplesError("no launch has a block of all arms")
        return Series({role: tuple(rows) for role, rows in values.items()}, tuple(pairs), tuple(same))

    def _rounds_needed(self, spec: MetricSpec) -> int:
        """The fewest rounds of base that give the metric a value, by the longest launch."""
        longest = max((len(blocks["base"]) for _, blocks in self._launches), default=0)
        note = ""
        for number, (_, blocks) in enumerate(self._launches):
            if len(blocks["base"]) < longest:
                continue
            for rounds in range(1, longest + 1):
                record, context = self._context(number, "base", 0, rounds)
                sample = spec.measure(record, context) if spec.measure else None
                if sample is not None and sample.value is not None:
                    return rounds
                note = (sample.note if sample is not None else "") or ""
            break
        raise InvalidSamplesError(f"no launch has rounds enough for one value: {note}".rstrip(": "))

    def _value(self, spec: MetricSpec, launch: int, role: Role, start: int, stop: int) -> float:
        record, context = self._context(launch, role, start, stop)
        sample = spec.measure(record, context) if spec.measure else None
        if sample is None or sample.value is None or sample.invalid:
            why = (sample.note if sample is not None else None) or "no value"
            raise InvalidSamplesError(f"{role} in launch {launch + 1}, rounds {start + 1} to {stop}: {why}")
        return sample.value

    def _context(self, launch: int, role: Role, start: int, stop: int) -> tuple[WorkloadRecord, Context]:
        key = (launch, role, start, stop)
        if key not in self._contexts:
            rounds = [block.round for block in self._launches[launch][1][role][start:stop]]
            record = as_workload(self._workload, rounds)
            self._contexts[key] = (record, Context.of(record, _NOWHERE, self._prices))
        return self._contexts[key]


def _joined(launches: Sequence[Launch]) -> tuple[Launch, ...]:
    ratios = tuple(ratio for launch in launches for ratio in launch.log_ratios)
    marks = tuple(mark for launch in launches for mark in launch.contended)
    return (Launch(ratios, head_first=False, contended=marks),)


def as_workload(name: str, rounds: Sequence[RoundRecord]) -> WorkloadRecord:
    return WorkloadRecord(name=name, kind="closed", numerics="native", offered={}, rounds=tuple(rounds))


def _complete(launch: LaunchRecord, workload: str) -> dict[Role, list[BlockRecord]]:
    """Each arm's rounds in the order of blocks, of the blocks that all arms have."""
    arms = {role: {b.block: b for b in launch.rounds(role, workload)} for role in ROLES}
    common = sorted(set.intersection(*(set(blocks) for blocks in arms.values())))
    return {role: [blocks[number] for number in common] for role, blocks in arms.items()}


def _cuts(rounds: int, needed: int) -> list[tuple[int, int]]:
    """``rounds`` cut into as many runs of at least ``needed`` as there can be, of nearly equal length."""
    pieces = rounds // needed
    return [(i * rounds // pieces, (i + 1) * rounds // pieces) for i in range(pieces)]


def _marked(base: list[BlockRecord], other: list[BlockRecord], start: int, stop: int) -> bool:
    blocks = (*base[start:stop], *other[start:stop])
    return any(block.load is not None and is_contended(block.load) for block in blocks)
