"""When a metric moved, over a history of commits: for slow drift after merge, never for a verdict."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite, sqrt

import numpy as np

from servegate.stats.launches import InvalidSamplesError
from servegate.stats.signedrank import FloatArray

SHORTEST = 4  # points on either side of a change; one to three bad runs are outliers, not a level
DRAWS = 4_999


@dataclass(frozen=True)
class ChangePoint:
    """The first index of the new level, its p value, and the medians of the levels before and after it."""

    index: int
    p_value: float
    before: float
    after: float


def change_points(
    history: Sequence[float], *, accepted: Sequence[int] = (), alpha: float = 0.001, seed: int = 0
) -> tuple[ChangePoint, ...]:
    """All change points of a history, oldest first, values in the metric's unit.

    A stretch of n values with mid-ranks r_i is split at the k that maximises
    |sum_{i<=k} (r_i - (n + 1)/2)| / sqrt(k (n - k) (n + 1) / 12), the standardised rank CUSUM (Pettitt,
    Applied Statistics 28, 1979; James, James and Siegmund, Biometrika 74, 1987), and both parts are searched
    again. A split counts where fewer than `alpha` of 4,999 seeded permutations reach its statistic. Ranks
    bound what one outlier can do; a step of the newest values shows once about eight of them agree. The test
    takes the values of one level as exchangeable: strongly autocorrelated runs look like changes.

    `accepted` are indices where a change was accepted: each starts a stretch of its own, so that an accepted
    step neither alarms again nor widens what is compared after it.

    Raises InvalidSamplesError on NaN or infinite values, ValueError on an index outside the history.
    """
    if not all(isfinite(value) for value in history):
        raise InvalidSamplesError("a history must not contain NaN or infinite values")
    if any(not 0 <= index <= len(history) for index in accepted):
        raise ValueError("an accepted change lies outside the history")
    values = np.asarray(history, dtype=float)
    edges = sorted({0, *accepted, len(history)})
    rng = np.random.default_rng(seed)
    found: list[ChangePoint] = []
    for start, end in pairwise(edges):
        splits = sorted(_search(values, start, end, alpha, rng))
        levels = [start, *(index for index, _ in splits), end]
        for position, (index, p_value) in enumerate(splits, start=1):
            before = float(np.median(values[levels[position - 1] : index]))
            after = float(np.median(values[index : levels[position + 1]]))
            found.append(ChangePoint(index, p_value, before, after))
    return tuple(found)


def _search(
    values: FloatArray, start: int, end: int, alpha: float, rng: np.random.Generator
) -> list[tuple[int, float]]:
    if end - start < 2 * SHORTEST:
        return []
    ranks = _mid_ranks(values[start:end])
    curve = _cusum(ranks[None, :])[0]
    peak = float(curve.max())
    shuffled = rng.permuted(np.broadcast_to(ranks, (DRAWS, ranks.size)), axis=1)
    p_value = float(1 + (_cusum(shuffled).max(axis=1) >= peak).sum()) / (DRAWS + 1)
    if p_value >= alpha:
        return []
    index = start + SHORTEST + int(curve.argmax())
    return [
        *_search(values, start, index, alpha, rng),
        (index, p_value),
        *_search(values, index, end, alpha, rng),
    ]


def _cusum(ranks: FloatArray) -> FloatArray:
    """The statistic of each row at every admissible split, from SHORTEST to n - SHORTEST."""
    n = ranks.shape[1]
    k = np.arange(SHORTEST, n - SHORTEST + 1)
    sums = np.cumsum(ranks - (n + 1) / 2, axis=1)[:, SHORTEST - 1 : n - SHORTEST]
    return np.asarray(np.abs(sums) / np.sqrt(k * (n - k)) / sqrt((n + 1) / 12))


def _mid_ranks(values: FloatArray) -> FloatArray:
    ordered = np.sort(values)
    first = np.searchsorted(ordered, values, side="left")
    last = np.searchsorted(ordered, values, side="right")
    return np.asarray((first + last + 1) / 2)
