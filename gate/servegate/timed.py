"""A timed row of two stored runs: the rounds of both and a rule in; a decision, and what it rests on, out."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Final

from servegate.facts import Sample
from servegate.metrics.table import MetricSpec
from servegate.stats.launches import InvalidSamplesError
from servegate.stats.paired import Limit
from servegate.stats.unpaired import FIRST_TOKEN_RUN_SD, RUN_SD, TAIL_RUN_SD, Decision, decide, require_usable
from servegate.suite.schema import Rule
from servegate.verdict import Evidence
from servegate.wording import amount, percent

ALPHA: Final = 0.05
"""The chance that any gating row is wrongly called regressed, where each has moved by just its tolerance."""
_SMALLEST: Final = 1e-9
"""A tolerance of 0 % on a clock: any change is beyond it, and only an interval below zero is within."""
_LARGEST: Final = 0.999
"""Where a rule lets a rate fall by all of it, or more."""
_TAILS: Final = ("_p95", "_p99", "_max")
_FIRST_TOKEN: Final = ("ttft", "prefill")


def decided(spec: MetricSpec, rule: Rule, base: Sample, head: Sample, rows: int) -> Decision:
    """Judge head's rounds against base's; ``rows`` gating rows share the error (Bonferroni).

    Raises InvalidSamplesError where the rounds of an arm are not known, or one has no usable value.
    """
    for arm, sample in (("base", base), ("head", head)):
        if not sample.per_round:
            raise InvalidSamplesError(
                f"{arm}: the value of each round is not known, so neither is its noise: measure it again"
            )
        require_usable(arm, sample.per_round)
    level = ALPHA / max(rows, 1)
    return decide(base.per_round, head.per_round, limit_of(spec, rule, typical(base)), level, _run_sd(spec))


def typical(sample: Sample) -> float:
    """The median round, which no single one moves."""
    return median(sample.per_round)


def limit_of(spec: MetricSpec, rule: Rule, base: float) -> Limit:
    """How far the metric may move from a typical ``base``, in its unit."""
    tolerance, floor = max(rule.change or 0.0, _SMALLEST), float(rule.floor or 0.0)
    if spec.better == "higher":
        return Limit(min(max(tolerance, floor / base), _LARGEST), higher_is_better=True)
    return Limit(tolerance, floor, base)


def described(found: Decision) -> Evidence:
    return Evidence(
        unit="rounds",
        interval=found.interval,
        blocks=min(found.rounds),
        launches=1,
        noise_floor=None,
        smallest_detectable=found.smallest_detectable,
        blocks_needed=found.rounds_needed,
    )


def in_detail(spec: MetricSpec, found: Decision, base: Sample, head: Sample) -> tuple[str, ...]:
    """The evidence as sentences: what was seen, and what could have been."""
    return tuple(_sentences(spec, found, base, head))


def _sentences(spec: MetricSpec, found: Decision, base: Sample, head: Sample) -> Iterator[str]:
    if base.value is not None and head.value is not None:
        yield (
            f"all rounds together: base {amount(base.value, spec.unit)}, head {amount(head.value, spec.unit)}"
        )
    rounds = f"{found.rounds[0]} rounds of base and {found.rounds[1]} of head, one run each"
    if found.interval is None:
        yield f"no interval from {rounds}"
    else:
        low, high = found.interval
        yield f"change {percent(found.estimate)}, between {percent(low)} and {percent(high)}, from {rounds}"
    if found.smallest_detectable is not None:
        yield f"smallest change that would have been found: {percent(found.smallest_detectable)}"


def what_decides(rounds: int | None) -> str:
    """Of an inconclusive row: rounds, where they help, or base and head in turn."""
    in_turn = "measured in turn, `servegate ab --base REF`"
    if rounds is None:
        return f"base and head {in_turn}: two separate runs will not, however many rounds they have"
    return f"about `repeat: {rounds}` for base and head, if the change stays; or both {in_turn}"


def _run_sd(spec: MetricSpec) -> float:
    if spec.name.endswith(_TAILS):
        return TAIL_RUN_SD
    return FIRST_TOKEN_RUN_SD if spec.name.startswith(_FIRST_TOKEN) else RUN_SD
