"""Samples of paired arms: launches, their blocks, and which blocks count."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, log

import numpy as np
import numpy.typing as npt

from servegate.stats.signedrank import FloatArray

MOST_CONTENDED = 0.5  # above this share of marked blocks, what is left is no fair sample
LEANING = 0.01  # marked blocks that favour one arm more clearly than this are evidence, not noise


class InvalidSamplesError(ValueError):
    """Samples that no change can be computed from: zero, negative, NaN, infinite, unpaired or absent."""


@dataclass(frozen=True)
class Launch:
    """One relaunch of both arms: the log-ratios log(head / base) of its block pairs, taken in A B B A order.

    `head_first` tells which arm was started first. `contended` marks pairs during which something else held
    the machine; the mark must come from outside the arms (steal time, other processes), never from their
    speed.

    Raises InvalidSamplesError on NaN or infinite ratios, without any, or with marks of another length.
    """

    log_ratios: tuple[float, ...]
    head_first: bool
    contended: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        if not self.log_ratios:
            raise InvalidSamplesError("a launch without blocks measures nothing")
        if not all(isfinite(ratio) for ratio in self.log_ratios):
            raise InvalidSamplesError("a block log-ratio is NaN or infinite")
        if self.contended and len(self.contended) != len(self.log_ratios):
            raise InvalidSamplesError("there must be one contention mark for each block pair")


def log_ratios(base: Sequence[float], head: Sequence[float]) -> tuple[float, ...]:
    """log(head / base) for each pair of blocks, both in the metric's own unit.

    Raises InvalidSamplesError naming the first value that is not a positive, finite number, and on unequal
    lengths.
    """
    if len(base) != len(head):
        raise InvalidSamplesError(f"{len(base)} base blocks cannot be paired with {len(head)} head blocks")
    if len(base) == 0:
        raise InvalidSamplesError("no blocks were measured")
    for arm, values in (("base", base), ("head", head)):
        for position, value in enumerate(values):
            if not (isfinite(value) and value > 0):
                raise InvalidSamplesError(
                    f"{arm} block {position} is {value}: a relative change needs positive numbers"
                )
    return tuple(log(after) - log(before) for before, after in zip(base, head, strict=True))


@dataclass(frozen=True)
class Layout:
    """The launch of each block, numbered from 0, and its start order: +1 head second, -1 head first."""

    launch: npt.NDArray[np.intp]
    order: FloatArray


@dataclass(frozen=True)
class Kept:
    """The blocks that count, in one row, with how many were marked and whether those were left out."""

    values: FloatArray
    layout: Layout
    marked: int
    left_out: bool


def keep(launches: Sequence[Launch]) -> Kept:
    """All blocks without the contended ones, unless the marks cannot be trusted.

    Marks are set aside when they cover more than half of the blocks, or when the marked blocks lie on one
    side of the others (two-sided sign test at 1 %): then one arm draws the contention, and dropping it would
    hide a change.
    """
    sizes = [len(launch.log_ratios) for launch in launches]
    values = np.array([ratio for launch in launches for ratio in launch.log_ratios])
    number = np.repeat(np.arange(len(launches)), sizes)
    order = np.repeat([-1.0 if launch.head_first else 1.0 for launch in launches], sizes)
    marks = np.array(
        [mark for launch in launches for mark in launch.contended or (False,) * len(launch.log_ratios)]
    )
    marked = int(np.count_nonzero(marks))
    if not 0 < marked <= MOST_CONTENDED * values.size or _leans(values[marks], values[~marks]):
        return Kept(values, Layout(number, order), marked, left_out=False)
    return Kept(values[~marks], Layout(number[~marks], order[~marks]), marked, left_out=True)


def _leans(marked: FloatArray, others: FloatArray) -> bool:
    from scipy.special import bdtr

    centre = float(np.median(others))
    above, below = int((marked > centre).sum()), int((marked < centre).sum())
    return 2 * float(bdtr(min(above, below), above + below, 0.5)) < LEANING if above + below else False
