"""The three-way decision about one timed metric: regressed, pass or improved, otherwise inconclusive.

The question is not "is there a change" but "is the change beyond the tolerance". The interval for the change
is held against the limit: wholly beyond it is `regressed`, wholly within it is `pass` (non-inferiority;
Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15, 1987), wholly beyond it on the good side is
`improved`, and anything else needs more blocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, expm1, inf, isfinite, log, log1p, sqrt
from typing import Literal

import numpy as np

from servegate.stats.interval import interval
from servegate.stats.launches import InvalidSamplesError, Launch, keep
from servegate.stats.sequential import Plan
from servegate.stats.signedrank import Shift, fewest_pairs

State = Literal["regressed", "pass", "improved", "inconclusive"]

POWER = 0.8  # of the stated smallest detectable change and the stated number of blocks
BELIEF = 3.0  # a metric that got better by more than this factor is more likely mis-measured
MOST_LOG = 700.0  # e^709 is the largest float
MOST_BLOCKS = 1_000_000  # above this the change lies so near the limit that no measurement decides


@dataclass(frozen=True)
class Limit:
    """How far a metric may move: by the share `tolerance` of base, and by `floor` in the metric's unit, both.

    A change regresses only if it exceeds both, hence the larger of `tolerance` and `floor / base`. `base` is
    the metric's typical value in the base arm and is needed only with a floor.

    Raises ValueError unless tolerance and floor are finite and at least 0 with one of them above 0, base is
    positive where there is a floor, and a fall by the limit leaves something (limit < 100 % where higher is
    better).
    """

    tolerance: float
    floor: float = 0.0
    base: float = 1.0
    higher_is_better: bool = False

    def __post_init__(self) -> None:
        if not all(isfinite(value) for value in (self.tolerance, self.floor, self.base)):
            raise ValueError("tolerance, floor and base must be finite numbers")
        if self.tolerance < 0 or self.floor < 0 or self.tolerance == self.floor == 0:
            raise ValueError("tolerance and floor must not be negative, and one of them must be above zero")
        if self.base <= 0:
            raise ValueError(f"an absolute floor needs a positive base value, got {self.base}")
        if self.higher_is_better and self.relative >= 1:
            raise ValueError("a limit of 100 % or more allows a metric to fall to nothing")

    @property
    def relative(self) -> float:
        """The share of base that a change must exceed."""
        return max(self.tolerance, self.floor / self.base)

    @property
    def log(self) -> float:
        """The distance that a change must exceed on the log scale, the same on both sides."""
        return -log1p(-self.relative) if self.higher_is_better else log1p(self.relative)


@dataclass(frozen=True)
class Decision:
    """What was decided about one metric, and on what evidence. Changes are shares of base: 0.05 is +5 %.

    | field | meaning |
    | --- | --- |
    | `estimate`, `interval` | the change and its interval at this look; none where blocks are too few |
    | `level` | the chance that either end of the interval is wrong, allowing for looks and rows |
    | `blocks`, `launches` | block pairs used, launches they came from |
    | `contended` | block pairs marked as contended; left out if `contended_left_out` |
    | `block_sd`, `launch_sd` | noise of one block pair and of one launch, on the log scale |
    | `order_effect` | the change that starting head second adds on the log scale, already taken out |
    | `smallest_detectable` | the smallest change for the worse that these blocks would find 4 times in 5 |
    | `blocks_needed` | block pairs in all, in launches of this size, that would decide 4 times in 5 |
    | `beyond_belief` | better by more than a factor of 3 |
    """

    state: State
    estimate: float
    interval: tuple[float, float] | None
    level: float
    limit: float
    blocks: int
    launches: int
    contended: int
    contended_left_out: bool
    block_sd: float | None
    launch_sd: float | None
    order_effect: float | None
    smallest_detectable: float | None
    blocks_needed: int | None
    beyond_belief: bool
    reason: str


def decide(launches: Sequence[Launch], limit: Limit, plan: Plan, same: Sequence[Launch] = ()) -> Decision:
    """Judge the change of head against base from all launches measured so far.

    A pure function of its arguments: the same launches give the same decision, in whatever order the blocks
    of a launch come. Call it after each launch and stop at will; the interval of every look holds
    (`sequential`).

    `same` are the launches of the base-against-base series of the same run; they sharpen the estimate of the
    noise between launches.

    Raises InvalidSamplesError without launches, ValueError with more launches than planned.
    """
    if not launches:
        raise InvalidSamplesError("no launches were measured")
    level = plan.level(len(launches))
    early = level is None
    if level is None:
        level = plan.level(plan.first_look) or plan.final_level
    kept, reference = keep(launches), keep(same) if same else None
    n, used = kept.values.size, int(np.unique(kept.layout.launch).size)
    found = interval(
        kept.values, kept.layout, level, None if reference is None else (reference.values, reference.layout)
    )
    shift = Shift(float(found.centre), float(found.low), float(found.high))
    known = isfinite(shift.low)
    if early:
        state, reason = inconclusive(f"{len(launches)} of the {plan.first_look} launches a first look needs")
    elif not any(ratio for launch in launches for ratio in launch.log_ratios):
        state, reason = inconclusive(
            "both sides are equal in every block: the same data, or a clock too coarse"
        )
    elif not known:
        state, reason = inconclusive(f"{n} blocks are too few for an interval at this level")
    else:
        state, reason = held_against(shift, limit)
        if state in ("regressed", "improved") and len(launches) < plan.first_claim:
            state, reason = inconclusive(
                f"{reason}, but no change is claimed before {plan.first_claim} launches"
            )
    sign = -1.0 if limit.higher_is_better else 1.0
    from_limit = limit.log - sign * shift.estimate
    least = ceil(n / used * (plan.first_look if from_limit > 0 else plan.first_claim))
    error = standard_error(shift, level) if known else inf
    swapped = len({launch.head_first for launch in launches}) == 2
    return Decision(
        state=state,
        estimate=share(shift.estimate),
        interval=(share(shift.low), share(shift.high)) if known and not early else None,
        level=level,
        limit=limit.relative,
        blocks=n,
        launches=used,
        contended=kept.marked,
        contended_left_out=kept.left_out,
        block_sd=float(found.block_sd) if known else None,
        launch_sd=float(found.launch_sd) if known else None,
        order_effect=float(found.order_effect) if swapped else None,
        smallest_detectable=share(sign * (limit.log + reach_of(error, level))) if known else None,
        blocks_needed=_blocks_needed(n, error, from_limit, plan, least) if state == "inconclusive" else None,
        beyond_belief=state == "improved" and -sign * shift.estimate > log(BELIEF),
        reason=reason,
    )


def share(log_change: float) -> float:
    """A log-ratio as a share of base, finite even where the arms lie 300 orders of magnitude apart."""
    return expm1(min(log_change, MOST_LOG))


def inconclusive(reason: str) -> tuple[State, str]:
    return "inconclusive", reason


def held_against(shift: Shift, limit: Limit) -> tuple[State, str]:
    """The state that the interval gives under the limit, and why in words."""
    text = f"the change lies between {share(shift.low):+.1%} and {share(shift.high):+.1%}"
    worst, best = (-shift.low, -shift.high) if limit.higher_is_better else (shift.high, shift.low)
    if best > limit.log:
        return "regressed", f"{text}, wholly beyond the limit of {limit.relative:.1%}"
    if worst < -limit.log:
        return "improved", f"{text}, better by more than the limit of {limit.relative:.1%}"
    if worst < limit.log:
        return "pass", f"{text}, within the limit of {limit.relative:.1%}"
    return inconclusive(f"{text}, on both sides of the limit of {limit.relative:.1%}")


def standard_error(shift: Shift, level: float) -> float:
    """The normal standard error that would give an interval of this width: half-width / z(level)."""
    from scipy.special import ndtri

    return (shift.high - shift.low) / 2 / -float(ndtri(level))


def reach_of(error: float, level: float) -> float:
    """How far from the limit a change is decided with chance POWER: (z(level) + z(POWER)) standard errors."""
    from scipy.special import ndtri

    return float(ndtri(POWER) - ndtri(level)) * error


def _blocks_needed(n: int, error: float, distance: float, plan: Plan, least: int) -> int | None:
    """n (reach at the final level / distance from the limit)^2, but no fewer than any decision needs."""
    least = max(least, n + 1, fewest_pairs(plan.final_level))
    if not isfinite(error):
        return least
    reach = reach_of(error, plan.final_level)
    if reach >= abs(distance) * sqrt(MOST_BLOCKS / n):
        return None
    return max(least, ceil(n * (reach / distance) ** 2))
