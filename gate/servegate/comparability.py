"""What can be held against what: numbers of other machines, loads, prompts or prices say nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from servegate.facts import Facts, WorkloadFacts
from servegate.fingerprint import Fingerprint
from servegate.judge import Judgement
from servegate.metrics.matching import Matching
from servegate.metrics.table import MetricSpec
from servegate.verdict import State
from servegate.wording import count


def obstacle(
    spec: MetricSpec, base: Facts, head: Facts, old: WorkloadFacts, new: WorkloadFacts, matching: Matching
) -> str | None:
    """Why base and head say nothing about each other, or None. A share of requests is never in the way."""
    if spec.kind == "timed":
        machines = _machines(base.fingerprint, head.fingerprint)
        if machines:
            return machines
    if spec.name == "cost_per_request" and _price(base) != _price(head):
        return f"other prices: {_price(base)} -> {_price(head)}"
    if spec.unit == "share":
        return None
    if old.numerics != new.numerics:
        return f"other numerics: {old.numerics} -> {new.numerics}"
    loads = _differences(old.offered, new.offered)
    if loads:
        return f"another load was offered: {loads}"
    if not matching.covers_both:
        return (
            f"other prompts: {count(len(matching.missing), 'prompt')} missing, "
            f"{count(len(matching.new), 'prompt')} new"
        )
    return None


def unless_contended(
    spec: MetricSpec, judgement: Judgement, old: WorkloadFacts, new: WorkloadFacts
) -> Judgement:
    """Inconclusive, with who did, where something else held the machine while a time moved.

    Also where it held the base back, and head passes: a base that is too slow hides a head that is.
    """
    hidden = judgement.state is State.PASS and judgement.evidence is not None
    if spec.kind != "timed" or not (hidden or judgement.state in (State.REGRESSED, State.IMPROVED)):
        return judgement
    arms = (("base", old),) if hidden else (("base", old), ("head", new))
    busy = [f"{arm}: {facts.contended}" for arm, facts in arms if facts.contended]
    if not busy:
        return judgement
    reason = f"{judgement.reason}, but the machine was busy ({'; '.join(busy)}): measure again"
    return replace(judgement, state=State.INCONCLUSIVE, reason=reason)


def same_load(one: WorkloadFacts, other: WorkloadFacts) -> bool:
    return one.numerics == other.numerics and one.offered == other.offered


def _machines(base: Fingerprint, head: Fingerprint) -> str | None:
    if base.machine == head.machine:
        return None
    return (
        f"measured on other machines: {base.hardware_key} -> {head.hardware_key} "
        f"({_differences(base.machine, head.machine)})"
    )


def no_timings_of_this_machine(elsewhere: Sequence[Fingerprint], here: Fingerprint) -> str | None:
    """Which stored timings there are instead, the machine most like this one first; None without any."""
    if not elsewhere:
        return None
    nearest = min(elsewhere, key=lambda other: len(_differing(other.machine, here.machine)))
    more = f" and {len(elsewhere) - 1} more" if len(elsewhere) > 1 else ""
    return (
        f"no timing baseline for {here.hardware_key}; there is one for {nearest.hardware_key} "
        f"({_differences(nearest.machine, here.machine)}){more}"
    )


def _differences(base: dict[str, str], head: dict[str, str]) -> str:
    return ", ".join(
        f"{name} {base.get(name, 'absent')} -> {head.get(name, 'absent')}" for name in _differing(base, head)
    )


def _differing(base: dict[str, str], head: dict[str, str]) -> list[str]:
    return [name for name in sorted({*base, *head}) if base.get(name) != head.get(name)]


def _price(facts: Facts) -> str:
    """The numbers alone: a new source or date of the same prices changes nothing."""
    prices = facts.prices
    if prices is None:
        return "none"
    numbers = prices.model_dump(mode="json", exclude={"source", "date"})
    return ", ".join(f"{name} {value}" for name, value in sorted(numbers.items()))
