"""How far two independent rows of numbers lie apart: the rank-sum interval, exact for few numbers.

Two arms that run the same code give numbers that could change places, whatever their distribution. That is
all the rank-sum test assumes.
"""

from functools import lru_cache
from math import comb, inf, sqrt

import numpy as np

from servegate.stats.signedrank import FloatArray, Shift

EXACT_UP_TO = 60
"""Numbers of both rows together."""


@lru_cache(maxsize=1024)
def sum_cut(base: int, head: int, level: float) -> int:
    """The largest c with P(U <= c) <= level, U the Mann-Whitney count under no change; -1 if none.

    Up to 60 numbers exact: every choice of `head` ranks out of all is equally likely (Hollander, Wolfe and
    Chicken, *Nonparametric Statistical Methods*, 3rd ed., 4.1). Above, normal with mean bh/2, variance
    bh(b+h+1)/12 and a continuity correction.
    """
    size, largest = base + head, base * head
    if size > EXACT_UP_TO:
        from scipy.special import ndtri

        sd = sqrt(largest * (size + 1) / 12)
        return int(np.floor(largest / 2 + float(ndtri(level)) * sd - 0.5))
    ways = np.zeros((head + 1, largest + 1))  # [ranks chosen, U so far]
    ways[0, 0] = 1.0
    for below in range(size):  # the number has this many smaller ones, `chosen` of them in head
        for chosen in range(min(below, head - 1), -1, -1):
            beaten = below - chosen
            if beaten <= largest:
                ways[chosen + 1, beaten:] += ways[chosen, : largest + 1 - beaten]
    chance = np.cumsum(ways[head]) / comb(size, head)
    return int(np.searchsorted(chance, level, side="right")) - 1


def shift_between(base: FloatArray, head: FloatArray, level: float) -> Shift:
    """By how much head's numbers lie above base's: the median of all differences, each end wrong with chance
    `level`.

    The ends are the (c+1)-th smallest and largest difference with c = `sum_cut`: the rank-sum test, inverted
    (Hollander, Wolfe and Chicken, 4.2 and 4.3). With ties it is conservative. Where the numbers are too few
    for the level the ends are infinite.

    Raises ValueError where a row is empty.
    """
    if base.size == 0 or head.size == 0:
        raise ValueError("no numbers to compare")
    differences = np.sort(np.subtract.outer(head, base).ravel())
    cut = sum_cut(base.size, head.size, level)
    if cut < 0:
        return Shift(float(np.median(differences)), -inf, inf)
    return Shift(float(np.median(differences)), float(differences[cut]), float(differences[-1 - cut]))
