"""What kind of noise a run had: contention, two modes, drift, or launches that disagree.

Findings explain an inconclusive row and tell the reader what to fix. They never decide. Each test is
conservative: on independent noise of any common shape it is silent in more than 99 of 100 runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, expm1, isfinite
from typing import Literal

import numpy as np

from servegate.stats.launches import InvalidSamplesError, Launch
from servegate.stats.signedrank import FloatArray

LEVEL = 0.001
ONE_SIDED = 0.01  # of the sign test of far blocks; together with their share, silent on tails of any shape
FAR = 5.0  # robust standard deviations from the launch's median
FEWEST_LAUNCHES = 6
FEWEST_BLOCKS = 40
# The 99 % quantile of `excess_mass_gap` for uniform values, the flattest single mode and so the worst; normal
# values and heavy tails stay below 1 in 999 of 1,000 runs.
MODE_LIMIT = 1.15


@dataclass(frozen=True)
class Finding:
    """A kind of noise, how large it is (a share or a relative change), and a sentence about it."""

    kind: Literal["contention", "two modes", "drift", "launches disagree"]
    size: float
    text: str


def diagnose(blocks: Sequence[Sequence[float]]) -> tuple[Finding, ...]:
    """The noise of one arm, from its block values in the metric's unit: one sequence a launch, in time order.

    Raises InvalidSamplesError unless every value is a positive, finite number.
    """
    if any(not (isfinite(value) and value > 0) for launch in blocks for value in launch):
        raise InvalidSamplesError("a diagnosis needs positive, finite block values")
    launches = [np.log(np.asarray(launch, dtype=float)) for launch in blocks if len(launch)]
    tests = (_contention(launches), _two_modes(launches), _drift(launches))
    return tuple(finding for finding in tests if finding)


def disagreement(launches: Sequence[Launch]) -> Finding | None:
    """Launches that give different answers: the process settles into one of several states when it starts.

    The Kruskal-Wallis test of the log-ratios by launch, start orders apart (Hollander, Wolfe and Chicken,
    6.1), at
    0.1 %; reported only where the sd of the launch medians is at least that of the blocks inside a launch, so
       that
    blocks which merely resemble their neighbours are not mistaken for states.
    """
    groups = [
        np.array(launch.log_ratios) - _order_median(launches, launch.head_first)
        for launch in launches
        if len(launch.log_ratios) >= 2
    ]
    if len(groups) < FEWEST_LAUNCHES or len(np.unique(np.concatenate(groups))) < 2:
        return None
    from scipy.stats import kruskal

    medians = np.array([np.median(group) for group in groups])
    inside = float(np.sqrt(np.mean([np.var(group, ddof=1) for group in groups])))
    between = float(np.std(medians, ddof=1))
    if between < inside or float(kruskal(*groups).pvalue) >= LEVEL:
        return None
    return Finding(
        "launches disagree",
        expm1(between),
        f"the change differs from launch to launch by {expm1(between):.1%} (sd), more than between blocks",
    )


def _order_median(launches: Sequence[Launch], head_first: bool) -> float:
    return float(
        np.median([r for launch in launches if launch.head_first == head_first for r in launch.log_ratios])
    )


def _contention(launches: list[FloatArray]) -> Finding | None:
    """Blocks far from their launch's median, most of them slow (sign test), one in twenty at least."""
    from scipy.special import bdtrc

    residual = (
        np.concatenate([launch - np.median(launch) for launch in launches]) if launches else np.empty(0)
    )
    if residual.size < FEWEST_BLOCKS:
        return None
    spread = 1.4826 * float(np.median(np.abs(residual)))
    slow, fast = int((residual > FAR * spread).sum()), int((residual < -FAR * spread).sum())
    share = slow / residual.size
    if spread == 0 or share < 0.05 or float(bdtrc(slow - 1, slow + fast, 0.5)) >= ONE_SIDED:
        return None
    return Finding(
        "contention", share, f"{share:.0%} of the blocks are far slower than the others around them"
    )


def _two_modes(launches: list[FloatArray]) -> Finding | None:
    """The excess-mass test of one mode against two (Mueller and Sawitzki, JASA 86, 1991).

    E_m(lambda) is the most that m disjoint intervals can hold of (share of values - lambda x length); the
    statistic is max over lambda of E_2 - E_1, twice the dip of Hartigan and Hartigan (Annals of Statistics
    13, 1985).
    """
    values = (
        np.sort(np.concatenate([launch - launch.mean() for launch in launches])) if launches else np.empty(0)
    )
    if values.size < FEWEST_BLOCKS or values[0] == values[-1] or excess_mass_gap(values) <= MODE_LIMIT:
        return None
    low, high = _split(values)
    apart = exp(high - low) - 1
    return Finding("two modes", apart, f"the blocks fall into two groups about {apart:.0%} apart")


def excess_mass_gap(ordered: FloatArray) -> float:
    """sqrt(n) times the largest E_2 - E_1 of sorted values, over a grid of lambda in units of 1 / range."""
    gaps = np.diff(ordered) / (ordered[-1] - ordered[0])
    mass = 1 / ordered.size
    level = _lambdas()
    one = np.full(level.size, mass)  # best interval that ends at this value
    two = np.full(level.size, mass)  # best pair whose second interval ends at this value
    best_one, best_two = one.copy(), two.copy()
    for gap in gaps:
        cost = level * gap
        two = np.maximum(two - cost, best_one) + mass
        one = np.maximum(one - cost, 0) + mass
        np.maximum(best_one, one, out=best_one)
        np.maximum(best_two, two, out=best_two)
    return float((best_two - best_one).max() * np.sqrt(ordered.size))


@lru_cache(maxsize=1)
def _lambdas() -> FloatArray:
    return np.geomspace(0.3, 60.0, 80)


def _split(ordered: FloatArray) -> tuple[float, float]:
    """The medians of the two groups with the largest variance between them (Otsu 1979)."""
    n = ordered.size
    left = np.arange(1, n)
    sums = np.cumsum(ordered)[:-1]
    between = (sums / left - (ordered.sum() - sums) / (n - left)) ** 2 * left * (n - left)
    cut = int(between.argmax()) + 1
    return float(np.median(ordered[:cut])), float(np.median(ordered[cut:]))


def _drift(launches: list[FloatArray]) -> Finding | None:
    """A trend of the launch medians: Kendall's tau, exact, at 0.1 %; blocks inside a launch may be alike."""
    from scipy.stats import kendalltau

    if len(launches) < FEWEST_LAUNCHES:
        return None
    medians = np.array([np.median(launch) for launch in launches])
    if np.ptp(medians) == 0 or float(kendalltau(np.arange(medians.size), medians).pvalue) >= LEVEL:
        return None
    third = medians.size // 3
    change = expm1(float(np.median(medians[-third:]) - np.median(medians[:third])))
    return Finding("drift", change, f"the machine moved by {change:+.1%} from the first to the last launches")
