"""What the charts share: matplotlib figures in the page's colours, which a screen reader reads out."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from types import MappingProxyType
from typing import Any, Final, Literal

import matplotlib.style
import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from servegate.render.escape import clean
from servegate.render.html.axis import ends, ticks
from servegate.render.html.svg import ROOT, inline
from servegate.wording import number

Role = Literal["text", "faint", "rule", "panel", "base", "head", "bad", "good", "warn", "allowed"]
Mark = Literal["dot", "curve", "tick", "lane"]
"""What an arm is drawn as; a lane is a line with ticks."""
COLOURS: Final[Mapping[Role, str]] = MappingProxyType(
    {
        "text": "#1c2128",
        "faint": "#57606a",
        "rule": "#d0d7de",
        "panel": "#f6f8fa",
        "base": "#8a4b08",
        "head": "#0a58ca",
        "bad": "#b3261e",
        "good": "#116329",
        "warn": "#7d4e00",
        "allowed": "#dff3e4",
    }
)
"""As on the page in its light scheme. Each stands for the page's variable of that name."""
_VARIABLES: Final = MappingProxyType({colour: f"var(--{role})" for role, colour in COLOURS.items()})
_NARROW: Final = 360.0
_WIDE: Final = 760.0
_PX: Final = 72.0
"""Of an inch: matplotlib's SVG has 72, whatever a figure says, so a point is a px."""
_STYLE: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "figure.dpi": _PX,
        "figure.frameon": False,
        "font.family": "DejaVu Sans",  # comes with matplotlib: a page is the same on every machine
        "font.size": float(ROOT["font-size"]),
        "svg.fonttype": "none",
        "svg.hashsalt": "servegate",
        "text.parse_math": False,
        "text.color": COLOURS["text"],
        "axes.facecolor": "none",
        "axes.labelcolor": COLOURS["faint"],
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.spines.left": False,
        "axes.spines.bottom": False,
        "grid.color": COLOURS["rule"],
        "xtick.bottom": False,
        "xtick.minor.bottom": False,
        "xtick.labelcolor": COLOURS["faint"],
        "ytick.left": False,
        "ytick.minor.left": False,
        "ytick.labelcolor": COLOURS["faint"],
        "legend.frameon": False,
        "legend.borderaxespad": 0.2,
        "legend.borderpad": 0.2,
        "legend.handlelength": 2.6,
    }
)
_MARKERS: Final[Mapping[Role, str]] = MappingProxyType({"base": "s", "warn": "D"})
"""Base and head differ by shape too: not everybody tells their colours apart."""
_HOLLOW: Final[tuple[Role, ...]] = ("base", "faint")
_DASHES: Final = (0.0, (3.0, 1.5))


@dataclass(frozen=True)
class Chart:
    title: str
    svg: Markup
    notes: tuple[str, ...] = ()
    """What a reader should know, such as that points were left out."""
    wide: bool = False
    """Takes the page's whole width."""


@contextmanager
def sheet() -> Iterator[Sheet]:
    """Where the figures of one page are made. matplotlib's settings, and the machine's, stay as they are."""
    with matplotlib.style.context(["default", dict(_STYLE)]), warnings.catch_warnings():
        # It measures a text in its own font. What that one lacks, the reader's browser has.
        warnings.filterwarnings("ignore", "Glyph .* missing from|Matplotlib currently does not", UserWarning)
        yield Sheet()


class Sheet:
    def __init__(self) -> None:
        self._numbers = count(1)

    def plot(self, height: float, *, wide: bool = False) -> Plot:
        """An empty chart of so many px; its ids are of no other chart of this sheet."""
        return Plot(f"c{next(self._numbers)}", height, wide)


class Plot:
    """A chart while it is drawn. Every text comes through here: it is one line, and never a formula."""

    def __init__(self, name: str, height: float, wide: bool) -> None:
        self._name, self._wide = name, wide
        width = _WIDE if wide else _NARROW
        self._figure = Figure(figsize=(width / _PX, height / _PX))
        self.axes = self._figure.subplots()
        self._tips: dict[str, tuple[str, ...]] = {}

    def span_x(self, values: Iterable[float], says: str, *, air: float = 0.04, zero: bool = False) -> None:
        """Let the x axis hold all values and say what they are. ``air``: room at its ends, as a share."""
        held = list(values)
        low, high, log = ends(held, air, zero)
        if log:
            self.axes.set_xscale("log")
        self.axes.set_xlim(low, high)
        # Room at the end is no reason to name a time or a length below zero.
        least = min(0.0, min(held, default=0.0))
        places = [place for place in ticks(low, high, log, 7 if self._wide else 5) if place >= least]
        self.axes.set_xticks(places, [number(place, 3) for place in places])
        self.axes.minorticks_off()
        self.axes.set_xlabel(_text(f"{says}, log axis" if log else says))

    def span_y(self, values: Iterable[float], *, air: float = 0.08) -> None:
        low, high, log = ends(list(values), air)
        if log:
            self.axes.set_yscale("log")
        self.axes.set_ylim(low, high)
        places = ticks(low, high, log, 4)
        self.axes.set_yticks(places, [number(place, 3) for place in places])
        self.axes.minorticks_off()

    def name_ends(self, names: Mapping[float, str]) -> None:
        """Name the first and the last place of the x axis; their names stay within it."""
        self.axes.set_xticks(list(names), [_text(name) for name in names.values()])
        sides: tuple[Literal["left", "right"], ...] = ("left", "right")
        for label, side in zip(self.axes.get_xticklabels(), sides, strict=False):
            label.set_horizontalalignment(side)

    def rows(self, names: Sequence[str], faint: Sequence[bool] = ()) -> None:
        """A row for each name, the first on top: row ``i`` is at ``y = i``."""
        self.axes.set_ylim(len(names) - 0.5, -0.5)
        self.axes.set_yticks(range(len(names)), [_text(name) for name in names])
        self.axes.grid(visible=False, axis="y")
        for index, label in enumerate(self.axes.get_yticklabels()):
            label.set_color(COLOURS["faint" if index < len(faint) and faint[index] else "text"])

    def line(
        self,
        x: Sequence[float],
        y: Sequence[float],
        role: Role,
        *,
        width: float = 2.0,
        dashed: bool = False,
        tip: str | None = None,
    ) -> None:
        (drawn,) = self.axes.plot(
            x, y, color=COLOURS[role], linewidth=width, linestyle=_DASHES if dashed else "solid"
        )
        self._tell(drawn, () if tip is None else (tip,))

    def sticks(
        self,
        x: Sequence[float],
        low: float,
        high: Sequence[float] | float,
        role: Role,
        tip: str | None = None,
    ) -> None:
        """Upright strokes, as one line with gaps: a line for each would make a page ten times as long."""
        gap = np.full(len(x), np.nan)
        across = np.column_stack([x, x, gap]).ravel().tolist()
        up = np.column_stack([np.full(len(x), low), np.broadcast_to(high, len(x)), gap]).ravel().tolist()
        self.line(across, up, role, width=1.5, tip=tip)

    def dots(
        self,
        x: Sequence[float],
        y: Sequence[float],
        role: Role,
        tips: Sequence[str],
        *,
        size: float = 6.5,
        marker: str | None = None,
    ) -> None:
        """One tip a dot."""
        if len(x) == 0:
            return
        (drawn,) = self.axes.plot(
            x,
            y,
            linestyle="none",
            marker=marker or _MARKERS.get(role, "o"),
            markersize=size,
            markeredgecolor=COLOURS[role],
            markeredgewidth=1.6 if role in _HOLLOW or marker == "|" else 0.8,
            markerfacecolor=COLOURS["panel" if role in _HOLLOW else role],
        )
        self._tell(drawn, tips)

    def say(
        self,
        text: str,
        at: tuple[float, float],
        shift: tuple[float, float],
        role: Role = "text",
        *,
        within: Any = "data",
    ) -> None:
        """A text beside a point: so many px right of it and above it, and on that side of it."""
        right, up = shift
        self.axes.annotate(
            _text(text),
            at,
            shift,
            within,
            "offset points",
            color=COLOURS[role],
            annotation_clip=False,
            ha="left" if right > 0 else "right" if right < 0 else "center",
            va="bottom" if up > 0 else "top" if up < 0 else "center_baseline",
        )

    def mark(self, x: float, text: str, role: Role, tip: str | None = None) -> None:
        """A dashed upright line through all of the chart, and above it what it says."""
        line = self.axes.axvline(x, color=COLOURS[role], linewidth=1.3, linestyle=_DASHES)
        self._tell(line, () if tip is None else (tip,))
        low, high = self.axes.get_xlim()
        side = (x - low) / (high - low)
        shift = 0 if 0.2 < side < 0.8 else 1 if side < 0.5 else -1
        self.say(text, (x, 1), (shift, 2), role, within=("data", "axes fraction"))

    def key(self, arms: Mapping[Literal["base", "head"], Mark]) -> None:
        """Which mark is which arm, above the axes."""
        self.axes.legend(
            handles=[
                Line2D(
                    [],
                    [],
                    color=COLOURS[arm],
                    linestyle="none" if mark in ("dot", "tick") else _DASHES if arm == "base" else "solid",
                    linewidth=2 if mark == "curve" else 1.2,
                    marker="|" if mark in ("tick", "lane") else _MARKERS.get(arm, "o"),
                    markersize=9 if mark in ("tick", "lane") else 6,
                    markeredgewidth=1.6,
                    markerfacecolor=COLOURS["panel" if arm in _HOLLOW else arm],
                    label=arm,
                )
                for arm, mark in arms.items()
            ],
            # Left of a wide chart: a phone shows that end of it first.
            loc="lower left" if self._wide else "lower right",
            bbox_to_anchor=(0, 1) if self._wide else (1, 1),
            ncols=len(arms),
        )

    def chart(self, title: str, says: str, notes: Sequence[str] = ()) -> Chart:
        """The finished figure. ``says``: the same in words, for who cannot see it."""
        self._figure.tight_layout(pad=0.6)  # once: as the figure's own engine it measures four times
        file = io.StringIO()
        self._figure.savefig(file, format="svg", metadata={"Date": None})
        title = clean(title)
        svg = inline(
            file.getvalue(),
            name=self._name,
            title=title,
            says=clean(says, 4000),
            variables=_VARIABLES,
            tips=self._tips,
        )
        return Chart(title, svg, tuple(notes), self._wide)

    def _tell(self, drawn: Line2D, tips: Sequence[str]) -> None:
        if tips:
            group = f"told-{len(self._tips)}"
            drawn.set_gid(group)
            self._tips[group] = tuple(_text(tip) for tip in tips)


def _text(text: str) -> str:
    """Never empty: a mark with a text is as many marks whatever the text."""
    return clean(text) or "?"
