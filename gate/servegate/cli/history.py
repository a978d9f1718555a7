"""`history`: a suite's metrics over commits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from servegate.cli.measure import PATH, SUITE
from servegate.cli.output import emit

if TYPE_CHECKING:
    from servegate.history import Course

SHOWN: Final = 20
"""Newest runs of each metric."""
BAR: Final = 30


@click.command()
@SUITE
@click.option(
    "--history",
    "file",
    type=PATH,
    metavar="FILE",
    default=".servegate/history.sqlite",
    show_default=True,
    help="The file that `check --history` adds to.",
)
@click.option(
    "--metric", metavar="NAME", help="Such as decode_p95.  [default: those with a rule in the policy]"
)
def history(suite: Path, file: Path, metric: str | None) -> None:
    """Show SUITE's metrics over commits, and where they moved. Judges nothing."""
    from servegate.errors import NoDataError
    from servegate.history import courses
    from servegate.render.escape import defuse
    from servegate.suite.loading import load_suite

    read = load_suite(suite).suite
    wanted = {metric} if metric else {name.rpartition(".")[2] for name in read.policy.rules}
    found = [course for course in courses(file, read.name) if course.metric in wanted]
    if not found:
        names = metric or "a metric with a rule"
        raise NoDataError(
            f"{file}: no run of {read.name} with {names}; `servegate check --history {file}` adds one"
        )
    emit(defuse("\n".join("".join(f"{line}\n" for line in _lines(course)) for course in found)))


def _lines(course: Course) -> list[str]:
    """A heading, and one line a run with a bar from zero and what happened there."""
    from servegate.metrics.table import METRICS
    from servegate.render.escape import clean
    from servegate.wording import amount, count, moved

    unit = METRICS[course.metric].unit if course.metric in METRICS else ""
    where = f" on {clean(course.hardware_key)}" if course.hardware_key else ""
    lines = [f"{clean(course.workload)}.{clean(course.metric)}, {count(len(course.points), 'run')}{where}"]
    changes = {change.index: change for change in course.changes}
    top = max(point.value for point in course.points)
    for index, point in list(enumerate(course.points))[-SHOWN:]:
        bar = "#" * round(BAR * point.value / top) if top > 0 else ""
        commit = clean(point.sha or "no commit")[:12] + ("+" if point.dirty else "")
        marks = []
        if index in changes:
            marks.append(moved(changes[index].before, changes[index].after, unit))
        if point.accepted is not None:
            marks.append(f"accepted: {clean(point.accepted, 100)}")
        value = amount(point.value, unit)
        line = f"  {clean(point.created)[:10]} {commit:13} {value:>16} {bar:{BAR}} {'; '.join(marks)}"
        lines.append(line.rstrip())
    earlier = [i for i in changes if i < len(course.points) - SHOWN]
    if earlier:
        lines.append(f"  {count(len(earlier), 'earlier change')} not shown")
    return lines
