"""Progress on stderr for work over two seconds: a bar for a person, timestamped lines for a log."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

QUIET_NS = 2_000_000_000
LINE_EVERY_NS = 15_000_000_000
BAR_EVERY_NS = 1_000_000_000
"""Drawing costs a millisecond or two, in the thread that is measured."""

Clock = Callable[[], int]


class Reporter(Protocol):
    def __call__(self, stage: str, done: int, total: int) -> None: ...

    def close(self) -> None: ...


@contextmanager
def reporting(stream: TextIO) -> Iterator[Reporter]:
    """Report to ``stream`` in the form that suits it, and leave it clean whatever happens."""
    live = stream.isatty() and not os.environ.get("CI") and os.environ.get("TERM") != "dumb"
    reporter: Reporter = Bar(stream) if live else Lines(stream)
    try:
        yield reporter
    finally:
        reporter.close()


class Lines:
    """``12:03:44 latency: 3 of 8``: at the start of a stage, every 15 seconds, and at its end."""

    def __init__(
        self,
        stream: TextIO,
        clock: Clock = time.monotonic_ns,
        wall: Callable[[], str] = lambda: time.strftime("%H:%M:%S"),
    ) -> None:
        self._stream, self._clock, self._wall = stream, clock, wall
        self._begun = clock()
        self._last: tuple[str, int] | None = None
        """Stage and time of the last line."""
        self._finished: str | None = None

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = self._clock()
        if now - self._begun < QUIET_NS:
            return
        ended = 0 < total <= done
        if self._last and self._last[0] == stage:
            if not ended and now - self._last[1] < LINE_EVERY_NS:
                return
            if ended and self._finished == stage:
                return
        self._last = (stage, now)
        self._finished = stage if ended else None
        of = f": {done} of {total}" if total > 1 else ""
        self._stream.write(f"{self._wall()} {_plain(stage)}{of}\n")
        self._stream.flush()

    def close(self) -> None:
        """Nothing to clean up: every line is whole."""


class Bar:
    """A live bar, drawn by the caller's own calls: a drawing thread would compete with what is measured."""

    def __init__(self, stream: TextIO, clock: Clock = time.monotonic_ns) -> None:
        self._stream, self._clock = stream, clock
        self._begun = clock()
        self._drawn = 0
        self._bar: RichProgress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = self._clock()
        if now - self._begun < QUIET_NS or (now - self._drawn < BAR_EVERY_NS and done < total):
            return
        self._drawn = now
        bar = self._bar or self._start()
        if stage not in self._tasks:
            self._tasks[stage] = bar.add_task(_plain(stage), total=total or None)
        bar.update(self._tasks[stage], completed=done, total=total or None)
        bar.refresh()

    def close(self) -> None:
        if self._bar:
            self._bar.stop()

    def _start(self) -> RichProgress:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(file=self._stream),
            auto_refresh=False,
            transient=True,
        )
        self._bar.start()
        return self._bar


def _plain(stage: str) -> str:
    """A stage's name holds workload names from the suite."""
    from servegate.render.escape import clean

    return clean(stage, 60)
