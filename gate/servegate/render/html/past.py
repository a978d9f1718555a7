"""Charts of gating metrics over commits, from a history file: for a reader, never part of the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

from servegate.history import Course, Point
from servegate.render.escape import clean
from servegate.render.html.figure import Chart, Plot, Role, Sheet
from servegate.stats.changepoint import ChangePoint
from servegate.verdict import Verdict
from servegate.wording import amount, count, moved, percent

MOST_COURSES: Final = 16
MOST_RUNS: Final = 60
"""Newest runs of a course that are drawn and listed. With both the section stays under 500 KB."""
NAME: Final = 60
_HEIGHT: Final = 150.0


@dataclass(frozen=True)
class Run:
    """A point of a chart, as a row of a table."""

    created: str
    commit: str
    value: str
    happened: str


@dataclass(frozen=True)
class Line:
    """One course: a picture, and the same for who cannot see it."""

    chart: Chart
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Past:
    lines: tuple[Line, ...]
    left_out: int
    """Courses beyond ``MOST_COURSES``."""


def past(found: Sequence[Course], verdict: Verdict, machine: str, sheet: Sheet) -> Past:
    """The courses of rows that gate; those of the machine that was judged come first."""
    units = {(row.workload, row.metric): row.unit for row in verdict.comparison.rows if row.gating}
    told = [course for course in found if (course.workload, course.metric) in units]
    told.sort(key=lambda course: course.hardware_key not in (None, machine))
    lines = tuple(
        _line(course, clean(units[course.workload, course.metric], 30), sheet)
        for course in told[:MOST_COURSES]
    )
    return Past(lines, len(told) - len(lines))


def _line(course: Course, unit: str, sheet: Sheet) -> Line:
    changes = {change.index: change for change in course.changes}
    first = max(len(course.points) - MOST_RUNS, 0)
    runs = tuple(
        Run(
            created=clean(point.created)[:10],
            commit=clean(point.sha or "no commit")[:12] + ("+" if point.dirty else ""),
            value=amount(point.value, unit),
            happened="; ".join(_happened(point, changes.get(first + index), unit)),
        )
        for index, point in enumerate(course.points[first:])
    )
    plot = sheet.plot(_HEIGHT)
    _draw(plot, course, changes, runs)
    earlier = sum(index < first for index in changes)
    return Line(_chart(plot, course, unit, runs, earlier), runs)


def _happened(point: Point, change: ChangePoint | None, unit: str) -> Iterator[str]:
    if change is not None:
        yield moved(change.before, change.after, unit)
    if point.accepted is not None:
        yield f"accepted: {clean(point.accepted, 100)}"


def _chart(plot: Plot, course: Course, unit: str, runs: Sequence[Run], earlier: int) -> Chart:
    name = clean(f"{course.workload}.{course.metric}", NAME)
    events = [f"{run.created} {run.commit}: {run.happened}" for run in runs if run.happened]
    notes = [f"on {clean(course.hardware_key, NAME)}"] if course.hardware_key else []
    if len(runs) < len(course.points):
        notes.append(f"newest {len(runs)} of {count(len(course.points), 'run')}")
    if earlier:
        notes.append(f"{count(earlier, 'earlier change')} not shown")
    return plot.chart(
        f"{name}{f', {unit}' if unit else ''}",
        f"{count(len(runs), 'run')} from {runs[0].created} to {runs[-1].created}, "
        f"the last {runs[-1].value}. {'; '.join(events) or 'No change of level'}.",
        notes,
    )


def _draw(plot: Plot, course: Course, changes: dict[int, ChangePoint], runs: Sequence[Run]) -> None:
    """Runs in their order, each level as a line. Nothing in red or green: what is bad, the verdict says."""
    n = len(course.points)
    first = n - len(runs)
    values = [point.value for point in course.points]
    plot.span_y(values[first:])
    plot.axes.set_xlim(first - 0.5, n - 0.5)
    plot.name_ends({first: runs[0].created, n - 1: runs[-1].created})
    plot.line(range(first, n), values[first:], "rule", width=1.2)
    accepted = [index for index, point in enumerate(course.points) if point.accepted is not None]
    for start, end in pairwise(sorted({0, *changes, *accepted, n})):
        if end > first:
            level = median(values[start:end])
            plot.line([max(start, first) - 0.4, end - 0.6], [level, level], "head")
    for index, change in changes.items():
        if index >= first:
            by = percent(change.after / change.before - 1) if change.before else "moved"
            plot.mark(index - 0.5, by, "warn")
    kinds: dict[Role, list[int]] = {"head": [], "base": [], "warn": []}
    for index in range(first, n):
        kinds["warn" if index in changes else "base" if index in accepted else "head"].append(index)
    tips = [f"{r.created} {r.commit}: {r.value}{f'; {r.happened}' if r.happened else ''}" for r in runs]
    for role, found in kinds.items():
        plot.dots(
            found,
            [values[index] for index in found],
            role,
            [tips[index - first] for index in found],
            size=3.5 if role == "head" else 6.0,
        )
