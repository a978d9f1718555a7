"""What of many values is shown: where an axis ends, what it names, which points are kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from matplotlib.ticker import LogLocator, MaxNLocator

_LOG: Final = (30.0, 1e30)
"""A range of more than 1 to 30 is drawn on a log axis, as far as one can be drawn."""
_SAME: Final = 1e-9
"""A range smaller than this share of its values is drawn as one value."""


def ends(values: Sequence[float], air: float, zero: bool = False) -> tuple[float, float, bool]:
    """(low, high, log axis) that hold all values, with ``air`` as a share of their range at both ends.

    ``zero``: a linear axis starts there.
    """
    low, high = min(values, default=0.0), max(values, default=1.0)
    if low > 0 and _LOG[0] < high / low < _LOG[1]:
        factor = (high / low) ** air
        return low / factor, high * factor, True
    low = min(low, 0.0) if zero else low
    range_ = high - low
    room = range_ * air if range_ > _SAME * abs(high) else abs(high) * 0.1 or 1.0
    return (low if zero and low == 0 else low - room), high + room, False


def ticks(low: float, high: float, log: bool, most: int) -> list[float]:
    """About ``most`` round values within the ends, however long the axis."""
    if log:
        few = math.log10(high / low) <= 3
        found = LogLocator(subs=(1.0, 3.0) if few else (1.0,), numticks=max(most, 5)).tick_values(low, high)
    else:
        found = MaxNLocator(most, steps=[1, 2, 5, 10]).tick_values(low, high)
    return [float(tick) for tick in found if low <= tick <= high]


def evenly(count: int, most: int) -> list[int]:
    """Up to ``most`` of ``count`` indices, first and last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})
