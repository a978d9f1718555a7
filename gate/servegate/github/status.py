"""The commit status: pending before anything can go wrong, finished in every case."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from servegate.github.client import GitHub
from servegate.github.event import Event, Run
from servegate.verdict import Outcome, Verdict

MAX_DESCRIPTION: Final = 120
"""GitHub refuses more than 140 characters, and any that needs four bytes."""

_STATES: Final = {Outcome.PASS: "success", Outcome.FAILED: "error"}
_RUN = re.compile(r"/actions/runs/(\d{1,18})/attempts/(\d{1,9})$")


@dataclass(frozen=True)
class Status:
    github: GitHub
    event: Event
    sha: str
    gate: str

    @property
    def context(self) -> str:
        """A name that nobody takes for another workflow's."""
        return f"servegate/{self.gate}"

    def is_older(self) -> bool:
        """Has a later run of the same commit spoken already?"""
        found = _RUN.search(self.github.status_target(self.sha, self.context) or "")
        return found is not None and self.event.run < Run(int(found[1]), int(found[2]))

    def begin(self) -> None:
        self._set("pending", "measured; the verdict is being computed")

    def finish(self, verdict: Verdict) -> None:
        self._set(_STATES.get(verdict.outcome, "failure"), verdict.headline)

    def abandon(self) -> None:
        self._set("error", "no verdict: posting ended before there was one; see the log of the run")

    def _set(self, state: str, said: str) -> None:
        self.github.set_status(
            self.sha,
            state=state,
            context=self.context,
            description=description(said),
            target=self.event.run_url,
        )


def description(text: str) -> str:
    """Plain ASCII on one line, short enough."""
    plain = " ".join(text.encode("ascii", "replace").decode().split())
    return plain if len(plain) <= MAX_DESCRIPTION else plain[: MAX_DESCRIPTION - 3] + "..."
