"""The noise floor: what base against base shows on this machine in this run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from servegate.stats.launches import Launch
from servegate.stats.paired import Decision, Limit, decide
from servegate.stats.sequential import Plan


@dataclass(frozen=True)
class NoiseFloor:
    """The verdict on an A/A series, two arms that are both base, under the rule that judges head.

    `largest` is the change, for better or worse, that the interval still allows between two equal arms: what
    this run could not have told from nothing. None while there is no interval. `fails` means that the rule
    called equal arms different by more than the limit; then nothing the same clock says about head can be
    believed.
    """

    decision: Decision
    largest: float | None
    fails: bool


def noise_floor(launches: Sequence[Launch], limit: Limit, plan: Plan) -> NoiseFloor:
    """Judge base against base exactly as `decide` judges head against base.

    Raises what `decide` raises.
    """
    decision = decide(launches, limit, plan)
    largest = max(map(abs, decision.interval)) if decision.interval else None
    return NoiseFloor(decision, largest, fails=decision.state in ("regressed", "improved"))


def under_floor(decision: Decision, floor: NoiseFloor) -> Decision:
    """The decision, or `inconclusive` with the reason where the A/A series itself fails."""
    if not floor.fails:
        return decision
    reason = f"base against base would fail too ({floor.decision.reason}), so head cannot be judged"
    return replace(decision, state="inconclusive", beyond_belief=False, reason=reason)
