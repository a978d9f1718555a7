"""The invisible first line of a comment: whose it is, and which run wrote it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from servegate.github.event import Run
from servegate.render.view import name
from servegate.verdict import Verdict

_MARKER = re.compile(
    r"<!-- servegate gate=(?P<gate>\S+) v=1 sha=(?P<sha>[0-9a-f]{40}) "
    r"run=(?P<run>\d+)/(?P<attempt>\d+) state=(?P<state>[0-9a-f]{16}) -->"
)


@dataclass(frozen=True)
class Marker:
    gate: str
    sha: str
    run: Run
    state: str
    """Digest of what a reader would call the result: equal where nothing turned."""

    def __str__(self) -> str:
        return (
            f"<!-- servegate gate={_quoted(self.gate)} v=1 sha={self.sha} "
            f"run={self.run.id}/{self.run.attempt} state={self.state} -->"
        )

    def is_older_than(self, other: Marker) -> bool:
        """Of the same commit: a later run, or a re-run, wins. Another commit says nothing of time."""
        return self.sha == other.sha and self.run < other.run


def find(body: str, gate: str) -> Marker | None:
    """The marker of this gate, if the comment begins with it: a quoted one further down is nobody's."""
    found = _MARKER.match(body.lstrip())
    if found is None or found["gate"] != _quoted(gate):
        return None
    run = Run(int(found["run"][:18]), int(found["attempt"][:18]))
    return Marker(gate, found["sha"], run, found["state"])


def state_of(verdict: Verdict) -> str:
    rows = sorted(f"{name(row)}={row.state}" for row in verdict.comparison.rows if row.gating)
    return hashlib.sha256("\n".join([verdict.outcome, *rows]).encode()).hexdigest()[:16]


def _quoted(gate: str) -> str:
    """Two hyphens could end an HTML comment."""
    return gate.replace("--", "-%2D")
