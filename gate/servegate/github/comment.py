"""One comment a gate on a pull request, whoever else writes at the same time.

* Found by marker and author over all pages: somebody else's comment with our marker is left alone.
* Two runs that both found none both create; each looks again, the lowest id stays, the others go.
* A run never overwrites what a later run of the same commit wrote; that the commit is still the head is
  asked right before writing.
* A create whose answer was lost is looked for before it is sent once more.
* One that somebody has hidden is not edited where nobody looks: a new one takes its place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from servegate.github.client import Comment, GitHub, PostingError
from servegate.github.marker import Marker, find


class Mode(StrEnum):
    UPDATE = "update"
    """One comment, edited in place."""
    RECREATE = "recreate"
    """A new comment each time, which notifies; the old one goes."""
    ON_CHANGE = "on-change"
    """Edited only where the outcome or a gating row turned."""
    ON_FAILURE = "on-failure"
    """None before the first failure; from then on edited, so that no red comment outlives its reason."""
    OFF = "off"


class Result(StrEnum):
    WRITTEN = "written"
    UNCHANGED = "unchanged"
    NOT_WANTED = "not wanted"
    STALE = "stale"


@dataclass(frozen=True)
class Sticky:
    """The place of the one comment."""

    github: GitHub
    pull: int
    marker: Marker
    is_current: Callable[[], bool]
    """Is the measured commit still the pull request's head? Asked right before each first write."""

    def publish(self, body: str, mode: Mode, *, failing: bool) -> Result:
        """Raises PostingError where GitHub refuses; what is left half done, the next run mends."""
        if mode is Mode.OFF:
            return Result.NOT_WANTED
        mine = self._mine()
        if any(self.marker.is_older_than(marker) for _, marker in mine):
            return Result.STALE
        if mode is Mode.ON_FAILURE and not failing and not mine:
            return Result.NOT_WANTED
        hidden = self.github.hidden([comment for comment, _ in mine]) if mine else frozenset()
        mine.sort(
            key=lambda pair: pair[0].id in hidden
        )  # the one to keep first: that people see, then oldest
        if mode is Mode.ON_CHANGE and mine and mine[0][1].state == self.marker.state:
            self._remove(mine[1:])
            return Result.UNCHANGED
        if not self.is_current():
            return Result.STALE
        if mode is Mode.RECREATE:
            self._create(body)
            self._remove(mine)
        elif mine and mine[0][0].id not in hidden:
            self._edit(mine[0][0], body)
            self._remove(mine[1:])
        else:
            self._create(body)
            self._remove(mine)
            self._settle(body)
        return Result.WRITTEN

    def _mine(self) -> list[tuple[Comment, Marker]]:
        found = [
            (comment, find(comment.body, self.marker.gate)) for comment in self.github.comments(self.pull)
        ]
        return sorted(
            ((comment, marker) for comment, marker in found if marker is not None),
            key=lambda pair: pair[0].id,
        )

    def _create(self, body: str) -> None:
        try:
            self.github.create_comment(self.pull, body)
        except PostingError as error:
            if not error.may_be_done:
                raise
            if not self._is_there():
                self._create_last(body)

    def _create_last(self, body: str) -> None:
        try:
            self.github.create_comment(self.pull, body)
        except PostingError as error:
            if not error.may_be_done or not self._is_there():
                raise

    def _is_there(self) -> bool:
        return any(marker == self.marker for _, marker in self._mine())

    def _edit(self, comment: Comment, body: str) -> None:
        """Where somebody deleted it in the meantime, a new one."""
        try:
            self.github.edit_comment(comment, body)
        except PostingError as error:
            if error.status != 404:
                raise
            self._create(body)

    def _settle(self, body: str) -> None:
        """After a create: was somebody faster? The lowest id stays, with the text of the later run."""
        mine = self._mine()
        if len(mine) < 2:
            return
        stays, marker = mine[0]
        if marker != self.marker and not self.marker.is_older_than(marker):
            self.github.edit_comment(stays, body)
        self._remove(mine[1:])

    def _remove(self, comments: list[tuple[Comment, Marker]]) -> None:
        for comment, _ in comments:
            self.github.delete_comment(comment)
