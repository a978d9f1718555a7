"""Rows, their states, and what they add up to: comparison -> verdict."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal

from servegate.errors import ExitCode
from servegate.model import SCHEMA_VERSION, Model
from servegate.suite.schema import Policy


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


class Evidence(Model):
    """What a row was decided on that comes from a clock, or whose answers vary. Changes are shares of base:
    0.05 is +5 %."""

    unit: Literal["block pairs", "rounds", "answers a prompt", "runs"] = "block pairs"
    """Blocks of base and head that ran in turn, or the rounds of two runs that were stored; of answers that
    vary, those to one prompt, or the processes that gave them."""
    interval: tuple[float, float] | None
    """None where the blocks are too few."""
    blocks: int
    """Of that unit, as many as count; of rounds, those of the run that has fewer."""
    launches: int
    noise_floor: float | None
    """The largest change that base against base showed; None where that was not measured."""
    smallest_detectable: float | None
    blocks_needed: int | None
    """In all, to decide; None where it is decided, or where no number of blocks would."""


class Row(Model):
    """One metric of one workload (or one pin, or one prompt-set change), judged."""

    workload: str
    metric: str
    kind: Literal["exact", "timed", "logprob", "quality", "cost", "pin", "prompt", "workload"]
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
    evidence: Evidence | None = None
    """Of a timed row that was held to a tolerance."""


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
    complete: bool = True
    """False where either arm was interrupted: that never passes."""


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


EXIT_CODES: Final[Mapping[Outcome, ExitCode]] = MappingProxyType(
    {
        Outcome.PASS: ExitCode.PASS,
        Outcome.REGRESSED: ExitCode.REGRESSION,
        Outcome.INCONCLUSIVE: ExitCode.NO_DATA,
        Outcome.NO_DATA: ExitCode.NO_DATA,
        Outcome.FAILED: ExitCode.MEASUREMENT_FAILED,
    }
)

DECIDED: Final = frozenset({State.PASS, State.IMPROVED, State.REGRESSED})
"""States that say something about base and head."""

_NO_INPUTS: Final[Mapping[str, str]] = MappingProxyType({})


def decide(comparison: Comparison, policy: Policy, inputs: Mapping[str, str] = _NO_INPUTS) -> Verdict:
    """The worst gating row under the policy, said in one line."""
    from servegate.headline import headline

    result = outcome(comparison, policy)
    return Verdict(
        suite=comparison.suite,
        outcome=result,
        exit_code=int(EXIT_CODES[result]),
        headline=headline(comparison, result),
        comparison=comparison,
        inputs=dict(inputs),
    )


def outcome(comparison: Comparison, policy: Policy) -> Outcome:
    """A regression wins over everything; a pass needs a complete run and one gating row held against a base.

    Pins, prompt lists and limits that need no base (an error rate of zero) are checks, not comparisons: alone
    they never pass.
    """
    gating = [row for row in comparison.rows if row.gating]
    states = {row.state for row in gating}
    if State.REGRESSED in states:
        return Outcome.REGRESSED
    if State.INVALID in states or not comparison.complete:
        return Outcome.FAILED
    decided = any(
        row.state in DECIDED and row.kind not in ("pin", "prompt", "workload") and row.base is not None
        for row in gating
    )
    if State.MISSING in states and policy.missing == "fail":
        return Outcome.NO_DATA
    if State.NOT_COMPARABLE in states and policy.not_comparable == "fail":
        return Outcome.NO_DATA
    if State.INCONCLUSIVE in states and (policy.inconclusive == "fail" or not decided):
        return Outcome.INCONCLUSIVE
    return Outcome.PASS if decided else Outcome.NO_DATA
