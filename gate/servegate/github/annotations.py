"""Workflow commands for the worst rows: shown on the pull request, and need no token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from servegate.render.escape import clean
from servegate.render.view import name, view
from servegate.verdict import Outcome, Verdict

MAX_ANNOTATIONS: Final = 9
"""GitHub shows ten of a step; one is for the headline."""


def lines(verdict: Verdict) -> Iterator[str]:
    """One line each, the headline first; nothing for a pass."""
    if verdict.outcome is Outcome.PASS:
        return
    level = "error" if verdict.outcome in (Outcome.REGRESSED, Outcome.FAILED) else "warning"
    yield command(level, "servegate", verdict.headline)
    for group in view(verdict).failing[:MAX_ANNOTATIONS]:
        more = f" and {len(group.rows) - 1} more" if len(group.rows) > 1 else ""
        yield command(level, f"servegate: {name(group.rows[0])}{more}", group.reason)


def command(level: str, title: str, message: str) -> str:
    """``::error title=...::message``, in which the text can neither end the command nor begin another."""
    return f"::{level} title={_property(clean(title, 150))}::{_data(clean(message, 500))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
