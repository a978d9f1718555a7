"""The Wilcoxon signed-rank interval for the centre of paired differences, exact for small n.

Two arms that run the same code are exchangeable inside a pair, so their paired differences are symmetric
about zero whatever the noise: heavy tails, two modes and bursts included. That is all the signed-rank test
assumes.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import inf, sqrt

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

EXACT_UP_TO = 200


@dataclass(frozen=True)
class Shift:
    """A centre and its interval in the unit of the differences; infinite if n is too small for the level."""

    estimate: float
    low: float
    high: float


@lru_cache(maxsize=4096)
def rank_cut(n: int, level: float) -> int:
    """The largest c with P(W <= c) <= level, W the signed-rank sum of n pairs under no change; -1 if none.

    For n <= 200 exact: W is the sum of a random subset of 1..n, whose distribution is the product of (1 +
    x^i) / 2 over i (Hollander, Wolfe and Chicken, *Nonparametric Statistical Methods*, 3rd ed., 3.1). Above,
    normal with mean n(n+1)/4, variance n(n+1)(2n+1)/24 and a continuity correction.
    """
    if n <= EXACT_UP_TO:
        chance = np.zeros(n * (n + 1) // 2 + 1)
        chance[0] = 1.0
        for rank in range(1, n + 1):
            shifted = chance.copy()
            shifted[rank:] += chance[:-rank]
            chance = shifted / 2
        return int(np.searchsorted(np.cumsum(chance), level, side="right")) - 1
    from scipy.special import ndtri

    mean, sd = n * (n + 1) / 4, sqrt(n * (n + 1) * (2 * n + 1) / 24)
    return int(np.floor(mean + float(ndtri(level)) * sd - 0.5))


def fewest_pairs(level: float) -> int:
    """The smallest n whose most extreme outcome, chance 2^-n, is rarer than the one-sided level."""
    n = 1
    while rank_cut(n, level) < 0:
        n += 1
    return n


@lru_cache(maxsize=256)
def _pairs(n: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    return np.triu_indices(n)


def walsh_averages(values: FloatArray) -> FloatArray:
    """(x_i + x_j) / 2 for all i <= j along the last axis, unsorted."""
    first, second = _pairs(values.shape[-1])
    half = values / 2
    return np.asarray(half[..., first] + half[..., second])


def hodges_lehmann(values: FloatArray) -> FloatArray:
    """The median of the Walsh averages along the last axis: the estimate of the signed-rank test.

    Hodges and Lehmann, "Estimates of Location Based on Rank Tests", Annals of Mathematical Statistics 34
    (1963). It stands firm while fewer than 29 % of the values are poisoned, and loses 4.5 % to the mean under
    normal noise.
    """
    return _median(np.sort(walsh_averages(values)))


def shift_bounds(values: FloatArray, level: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Estimate, low and high end for the centre of the last axis, each end wrong with chance `level`.

    The ends are the (c+1)-th smallest and largest Walsh averages with c = `rank_cut(n, level)`: the
    signed-rank test, inverted (Tukey's interval; Hollander, Wolfe and Chicken, 3.4). With ties it is
    conservative. Where n is too small for the level the ends are infinite.

    Raises ValueError without values.
    """
    n = values.shape[-1]
    if n == 0:
        raise ValueError("no differences to estimate a shift from")
    cut = rank_cut(n, level)
    ordered = np.sort(walsh_averages(values))
    centre = _median(ordered)
    if cut < 0:
        return centre, np.full_like(centre, -inf), np.full_like(centre, inf)
    return centre, ordered[..., cut], ordered[..., -1 - cut]


def shift_interval(values: FloatArray, level: float) -> Shift:
    """`shift_bounds` of one row of differences."""
    centre, low, high = shift_bounds(values, level)
    return Shift(float(centre), float(low), float(high))


def _median(ordered: FloatArray) -> FloatArray:
    last = ordered.shape[-1] - 1
    return np.asarray((ordered[..., last // 2] + ordered[..., last - last // 2]) / 2)
