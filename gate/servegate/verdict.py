"""Rows, their states, and what they add up to: comparison -> verdict."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from servegate.model import SCHEMA_VERSION, Model


class State(StrEnum):
    PASS = "pass"
    IMPROVED = "improved"
    REGRESSED = "regressed"
    INCONCLUSIVE = "inconclusive"
    NEW = "new"
    MISSING = "missing"
    RENAMED = "renamed"
    NOT_COMPARABLE = "not comparable"
    INVALID = "invalid"


class Outcome(StrEnum):
    """Of a whole suite."""

    PASS = "pass"
    REGRESSED = "regressed"
    INCONCLUSIVE = "inconclusive"
    NO_DATA = "no comparable data"
    FAILED = "measurement failed"


class Row(Model):
    """One metric of one workload (or one pin, or one prompt-set change), judged."""

    workload: str
    metric: str
    kind: Literal["exact", "timed", "logprob", "quality", "pin", "prompt"]
    unit: str
    better: Literal["lower", "higher", "equal"]
    gating: bool
    """A non-gating row informs and never fails the suite."""
    base: float | str | None
    head: float | str | None
    change: float | None = None
    """Relative to base; ``None`` where base is zero or there is nothing to divide."""
    tolerance: str
    """The rule in words, such as ``+10 % and 20 ms``."""
    state: State
    reason: str
    """One sentence: what was seen and why it is judged so."""
    n_base: int = 0
    n_head: int = 0
    detail: tuple[str, ...] = ()
    """What a reader may want next: the worst position, the diverging token, the prompts that moved."""


class EnvironmentChange(Model):
    group: Literal["machine", "software", "served"]
    name: str
    base: str
    head: str


class Comparison(Model):
    suite: str
    rows: tuple[Row, ...]
    environment: tuple[EnvironmentChange, ...] = ()
    notes: tuple[str, ...] = ()
    """Said once for the whole run, such as which baseline was used and how old it is."""


class Verdict(Model):
    schema_version: Literal[1] = SCHEMA_VERSION
    suite: str
    outcome: Outcome
    exit_code: int
    headline: str
    """Verdict, one number, one cause, in one line."""
    comparison: Comparison
    inputs: dict[str, str] = {}
    """File name to sha256 of what the verdict was computed from: ``explain`` recomputes it from these."""
