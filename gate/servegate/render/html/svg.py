"""Charts as plain data, which the template turns into SVG.

Why not a plotting library that people know: matplotlib's SVG is 25 to 31 KB a plot (thirty would be half
of the page's 2 MB), with 0.6 s of import and 35 MB of install for everyone who only wants a verdict. The
JavaScript libraries (uPlot, plotly, vega) draw nothing where scripts are blocked, as viewers of CI artifacts
block them. What is drawn here is lines, dots and text: a 200-point line is 2.5 KB, prints, diffs, and is read
out by a screen reader.

Nothing here writes markup. Text from outside is escaped where the template prints it, by its autoescape.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from servegate.render.words import number

CHAR: Final = 6.2
"""Width in px of a character of a chart's text, on average."""


@dataclass(frozen=True)
class Path:
    tag: ClassVar[str] = "path"
    d: str
    kind: str
    """Its CSS classes."""
    tip: str = ""
    """Shown where the pointer rests."""


@dataclass(frozen=True)
class Dot:
    tag: ClassVar[str] = "circle"
    x: float
    y: float
    kind: str
    tip: str = ""
    r: float = 3.5


@dataclass(frozen=True)
class Box:
    tag: ClassVar[str] = "rect"
    x: float
    y: float
    width: float
    height: float
    kind: str


@dataclass(frozen=True)
class Label:
    tag: ClassVar[str] = "text"
    x: float
    y: float
    text: str
    anchor: Literal["start", "middle", "end"] = "start"
    kind: str = "label"


Mark = Path | Dot | Box | Label


@dataclass(frozen=True)
class Chart:
    title: str
    says: str
    """The chart in words, for who cannot see it."""
    width: float
    height: float
    marks: tuple[Mark, ...]
    notes: tuple[str, ...] = ()
    """What a reader should know, such as that points were left out."""
    wide: bool = False
    """Takes the page's whole width."""


@dataclass(frozen=True)
class Scale:
    """Value -> px, clipped to the ends."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, value = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def ticks(self, most: int = 5) -> list[float]:
        """Round values within the ends, in ascending order."""
        return _log_ticks(self.low, self.high) if self.log else _round_ticks(self.low, self.high, most)


def scale(values: Iterable[float], start: float, end: float, *, from_zero: bool = False) -> Scale:
    """Over all values with some air. A range of more than 1 to 30 is drawn on a log axis."""
    numbers = list(values)
    low, high = min(numbers, default=0.0), max(numbers, default=1.0)
    if low > 0 and high > 30 * low:
        return Scale(low / 1.2, high * 1.2, start, end, log=True)
    low = min(low, 0.0) if from_zero else low
    air = (high - low) * 0.04 or abs(high) * 0.1 or 1.0
    return Scale(low if from_zero and low == 0 else low - air, high + air, start, end)


def axis_below(along: Scale, top: float, bottom: float, title: str) -> Iterator[Mark]:
    """Gridlines, their values and what they measure."""
    for tick in _fitting(along):
        x = along(tick)
        yield Path(f"M{x:.1f} {top:.1f}V{bottom:.1f}", "grid")
        yield Label(x, bottom + 14, number(tick), "middle")
    text = f"{title}, log axis" if along.log else title
    yield Label((along.start + along.end) / 2, bottom + 30, text, "middle")


def _fitting(along: Scale) -> list[float]:
    """As many ticks as their numbers leave room for."""
    for most in (5, 4, 3, 2):
        ticks = along.ticks(most)
        if CHAR * sum(len(number(tick)) + 2 for tick in ticks) <= abs(along.end - along.start):
            break
    return ticks


def axis_left(up: Scale, left: float, right: float, ticks: Sequence[tuple[float, str]]) -> Iterator[Mark]:
    for value, text in ticks:
        y = up(value)
        yield Path(f"M{left:.1f} {y:.1f}H{right:.1f}", "grid")
        yield Label(left - 6, y + 4, text, "end")


def line(points: Iterable[tuple[float, float]]) -> str:
    """Path data; at 0.1 px, which no screen shows."""
    pairs = [f"{x:.1f} {y:.1f}" for x, y in points]
    return "M" + "L".join(pairs) if pairs else ""


def room(names: Iterable[str], most: int) -> float:
    """Width for the longest of these labels, cut at ``most`` characters."""
    return CHAR * max((min(len(name), most) for name in names), default=0) + 14


def evenly(count: int, most: int) -> list[int]:
    """Up to ``most`` of ``count`` indices, first and last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})


def _round_ticks(low: float, high: float, most: int) -> list[float]:
    span = high - low
    if span <= 0 or not math.isfinite(span):
        return [low]
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(power * unit for unit in (1, 2, 5, 10) if span / (power * unit) <= most)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = max(1, len(powers) // 6)
    units = (1, 3) if len(powers) <= 3 else (1,)
    ticks = [unit * 10.0**power for power in powers[::every] for unit in units]
    return [tick for tick in ticks if low <= tick <= high]
