"""How sure one look must be, when there are several looks and several gating rows.

The chance of a false claim is spent over the looks (Lan and DeMets, "Discrete Sequential Boundaries for
Clinical Trials", Biometrika 70, 1983) with the power family f(t) = alpha t^2 of Kim and DeMets (Biometrika
74, 1987): little early, most at the end. The limits follow from the joint normal distribution of the looks,
by recursive integration (Armitage, McPherson and Rowe 1969; Jennison and Turnbull, *Group Sequential
Methods*, 2000, chapter 19). Every look's interval is then a repeated confidence interval: all of them hold
together, so that stopping at any look, for any reason, keeps the promise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import pi, sqrt

import numpy as np

from servegate.stats.signedrank import FloatArray

SPENDING_POWER = 2
FIRST_LOOK = 4  # launches: with fewer, the spread between launches is all guess
FIRST_CLAIM = 6  # launches: where each start of a process picks a mode, four in a row may well agree by luck


@dataclass(frozen=True)
class Plan:
    """What was planned before the first sample: the number of launches, and the error that the rows share.

    `alpha` is the one-sided chance that any of the `rows` is called regressed when all of them have changed
    by exactly their tolerance (the worst case; with no change at all it is far smaller). Rows share it
    equally (Bonferroni). Holm's method would relax only the rows that follow a first regression, and the
    first one already decides the suite. `pass` needs no correction, since a suite passes only if every row
    does (intersection-union, Berger 1982); it gets the same interval, so that one picture explains every
    state.

    Raises ValueError unless there is a row and a launch and 0 < alpha < 0.5.
    """

    rows: int
    launches: int = 12
    alpha: float = 0.05

    def __post_init__(self) -> None:
        if self.rows < 1 or self.launches < 1:
            raise ValueError("a plan needs at least one gating row and one launch")
        if not 0 < self.alpha < 0.5:
            raise ValueError(f"alpha is a chance between 0 and 0.5, got {self.alpha}")

    @property
    def first_look(self) -> int:
        """Launches before the first decision."""
        return min(FIRST_LOOK, self.launches)

    @property
    def first_claim(self) -> int:
        """Launches before a change may be claimed, `regressed` or `improved`."""
        return min(FIRST_CLAIM, self.launches)

    def level(self, launches: int) -> float | None:
        """The one-sided level of the look after so many launches; None before the first look.

        There is a look after every launch from the first look on, so that a caller may stop after any of
        them.

        Raises ValueError past the planned number of launches, where no error is left to spend.
        """
        if launches > self.launches:
            raise ValueError(f"{launches} launches, but only {self.launches} were planned")
        if launches < self.first_look:
            return None
        looks = range(self.first_look, launches + 1)
        return nominal_levels(tuple(look / self.launches for look in looks), self.alpha / self.rows)[-1]

    @property
    def final_level(self) -> float:
        """The one-sided level of the last planned look."""
        level = self.level(self.launches)
        if level is None:
            raise RuntimeError("the last planned look has no level")
        return level


@lru_cache(maxsize=1024)
def nominal_levels(fractions: tuple[float, ...], alpha: float) -> tuple[float, ...]:
    """The one-sided levels of looks at rising shares of the planned evidence, which spend f(t) = alpha t^2.

    With B(t) a Brownian motion, the limit c_k solves
    P(B(t_1) < c_1, ..., B(t_{k-1}) < c_{k-1}, B(t_k) >= c_k) = f(t_k) - f(t_{k-1}); the level is
    1 - Phi(c_k / sqrt(t_k)).

    Raises ValueError unless 0 < t_1 < ... < t_K <= 1.
    """
    from scipy.optimize import brentq
    from scipy.special import ndtr, ndtri

    if not fractions or fractions[0] <= 0 or fractions[-1] > 1 or min(np.diff(fractions), default=1) <= 0:
        raise ValueError("looks come at rising shares of the plan, above 0 and up to 1")
    levels: list[float] = []
    density: Callable[[FloatArray], FloatArray] = _start(fractions[0])
    points = weights = np.empty(0)
    before = 0.0
    for look, now in enumerate(fractions):
        spend = alpha * (now**SPENDING_POWER - before**SPENDING_POWER)
        step = sqrt(now - before)
        if look == 0:
            limit = float(-ndtri(spend)) * sqrt(now)
        else:

            def excess(limit: float) -> float:
                return float(weights @ ndtr((points - limit) / step)) - spend  # noqa: B023 (used in this turn only)

            limit = float(brentq(excess, -10 * sqrt(now), 10 * sqrt(now), xtol=1e-12))
            density = _step(points, weights, step)
        levels.append(float(ndtr(-limit / sqrt(now))))
        points, weights = _quadrature(-9 * sqrt(now), limit)
        weights = weights * density(points)
        before = now
    return tuple(levels)


def _start(time: float) -> Callable[[FloatArray], FloatArray]:
    return lambda at: np.asarray(np.exp(-at * at / (2 * time)) / sqrt(2 * pi * time))


def _step(points: FloatArray, weights: FloatArray, sd: float) -> Callable[[FloatArray], FloatArray]:
    """The density of the walk that had not crossed before, one step later."""
    return lambda at: np.asarray(
        np.exp(-((at[:, None] - points) ** 2) / (2 * sd * sd)) @ weights / (sd * sqrt(2 * pi))
    )


def _quadrature(low: float, high: float) -> tuple[FloatArray, FloatArray]:
    points, weights = _gauss_legendre()
    return (high - low) / 2 * points + (high + low) / 2, (high - low) / 2 * weights


@lru_cache(maxsize=1)
def _gauss_legendre() -> tuple[FloatArray, FloatArray]:
    points, weights = np.polynomial.legendre.leggauss(200)
    return np.asarray(points), np.asarray(weights)
