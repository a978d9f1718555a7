"""Charts of gating metrics over commits, from a history file: for a reader, never part of the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from servegate.history import Course, Point
from servegate.render.escape import clean
from servegate.render.html.svg import Chart, Dot, Label, Mark, Path, Scale, axis_left, line, room, scale
from servegate.render.words import number
from servegate.stats.changepoint import ChangePoint
from servegate.verdict import Verdict
from servegate.wording import amount, count, moved, percent

MOST_COURSES: Final = 16
MOST_RUNS: Final = 60
"""Newest runs of a course that are drawn and listed. With both the section stays under 500 KB."""
NAME: Final = 60
_WIDTH: Final = 360.0
_TOP: Final = 22.0
_BOTTOM: Final = 104.0


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


def past(found: Sequence[Course], verdict: Verdict, machine: str) -> Past:
    """The courses of rows that gate; those of the machine that was judged come first."""
    units = {(row.workload, row.metric): row.unit for row in verdict.comparison.rows if row.gating}
    told = [course for course in found if (course.workload, course.metric) in units]
    told.sort(key=lambda course: course.hardware_key not in (None, machine))
    lines = tuple(
        _line(course, clean(units[course.workload, course.metric], 30)) for course in told[:MOST_COURSES]
    )
    return Past(lines, len(told) - len(lines))


def _line(course: Course, unit: str) -> Line:
    changes = {change.index: change for change in course.changes}
    shown = list(enumerate(course.points))[-MOST_RUNS:]
    runs = tuple(
        Run(
            created=clean(point.created)[:10],
            commit=clean(point.sha or "no commit")[:12] + ("+" if point.dirty else ""),
            value=amount(point.value, unit),
            happened="; ".join(_happened(point, changes.get(index), unit)),
        )
        for index, point in shown
    )
    marks = _marks([(point, changes.get(index)) for index, point in shown], runs, unit)
    return Line(_chart(course, unit, runs, tuple(marks), sum(index < shown[0][0] for index in changes)), runs)


def _happened(point: Point, change: ChangePoint | None, unit: str) -> Iterator[str]:
    if change is not None:
        yield moved(change.before, change.after, unit)
    if point.accepted is not None:
        yield f"accepted: {clean(point.accepted, 100)}"


def _chart(course: Course, unit: str, runs: Sequence[Run], marks: tuple[Mark, ...], earlier: int) -> Chart:
    name = clean(f"{course.workload}.{course.metric}", NAME)
    events = [f"{run.created} {run.commit}: {run.happened}" for run in runs if run.happened]
    notes = [f"on {clean(course.hardware_key, NAME)}"] if course.hardware_key else []
    if len(runs) < len(course.points):
        notes.append(f"newest {len(runs)} of {count(len(course.points), 'run')}")
    if earlier:
        notes.append(f"{count(earlier, 'earlier change')} not shown")
    return Chart(
        title=f"{name}{f', {unit}' if unit else ''}",
        says=(
            f"{count(len(runs), 'run')} from {runs[0].created} to {runs[-1].created}, "
            f"the last {runs[-1].value}. {'; '.join(events) or 'No change of level'}."
        ),
        width=_WIDTH,
        height=_BOTTOM + 22,
        marks=marks,
        notes=tuple(notes),
    )


def _marks(
    points: Sequence[tuple[Point, ChangePoint | None]], runs: Sequence[Run], unit: str
) -> Iterator[Mark]:
    """Nothing in red or green: whether a step is good or bad is the verdict's to say."""
    y = scale((point.value for point, _ in points), _BOTTOM, _TOP)
    ticks = [(tick, number(tick)) for tick in y.ticks(4)]
    left, right = room((text for _, text in ticks), 20), _WIDTH - 16
    x = Scale(0, len(points) - 1, left + 6, right)
    yield from axis_left(y, left, right, ticks)
    yield Label(left, _BOTTOM + 16, runs[0].created)
    if len(runs) > 1:
        yield Label(right, _BOTTOM + 16, runs[-1].created, "end")
    yield Path(line((x(i), y(point.value)) for i, (point, _) in enumerate(points)), "curve head")
    for index, ((point, change), run) in enumerate(zip(points, runs, strict=True)):
        at, kind, size = x(index), "dot head", 2.0
        if point.accepted is not None:
            kind, size = "dot base", 3.5
        if change is not None:
            kind, size = "dot warn", 4.0
            by = percent(change.after / change.before - 1) if change.before else "moved"
            yield Path(f"M{at:.1f} {_TOP - 4:.1f}V{_BOTTOM:.1f}", "interval warn")
            yield Label(at, _TOP - 8, by, "middle", "label warn")
        tip = f"{run.created} {run.commit}: {run.value}{f'; {run.happened}' if run.happened else ''}"
        yield Dot(at, y(point.value), kind, tip, size)
