"""Commands to copy: the suite as it is typed in the repository's top folder, quoted for a shell."""

from __future__ import annotations

import shlex
from typing import Final

UNKNOWN: Final = "SUITE"
"""Shown where what was saved does not say where the suite lies."""


def check(suite: str | None) -> str:
    return f"servegate check {_typed(suite)}"


def ab(suite: str | None, base: str) -> str:
    """Base and head measured in turn again; ``base`` is a commit."""
    return f"servegate ab {_typed(suite)} --base {shlex.quote(base)}"


def accept(suite: str | None) -> str:
    return f"servegate baseline update {_typed(suite)}"


def history(suite: str | None) -> str:
    return f"servegate history {_typed(suite)}"


def explain(verdict: str) -> str:
    return f"servegate explain {shlex.quote(verdict)}"


def _typed(suite: str | None) -> str:
    return shlex.quote(suite) if suite else UNKNOWN
