"""What a record says, reduced to what is compared: record -> facts. A stored baseline is a ``Facts`` file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from servegate.fingerprint import Fingerprint
from servegate.model import SCHEMA_VERSION, Model
from servegate.record import Commit, Count
from servegate.suite.schema import Prices

Token = Annotated[int, Field(ge=0, lt=2**32)]


class Sample(Model):
    """One metric of one workload."""

    value: float | None
    """Over all rounds, in the metric's unit; ``None`` where it could not be measured."""
    n: Count
    """Observations behind ``value``: requests, gaps or positions."""
    per_round: tuple[float, ...] = ()
    """The same statistic of each round alone: the unit of evidence for timed metrics."""
    note: str | None = None
    """Why ``value`` is None, or what to know about it."""
    invalid: bool = False
    """The measurement is broken (no sample, a latency of zero or less), not merely too small."""


class PromptFacts(Model):
    """What one prompt gave, exactly. Kept for reference numerics, where it holds on every machine."""

    prompt_digest: str
    finish_reason: str
    prompt_tokens: Count
    completion_ids: tuple[Token, ...]
    logprobs: tuple[float, ...]
    """Rounded to 10 decimals; empty where the target gave none."""
    near_ties: tuple[Count, ...] = ()

    @model_validator(mode="after")
    def _lengths_agree(self) -> PromptFacts:
        if self.logprobs and len(self.logprobs) != len(self.completion_ids):
            raise ValueError(f"{len(self.logprobs)} logprobs for {len(self.completion_ids)} completion ids")
        return self


class AnswerFacts(Model):
    """Every answer to one prompt: an entry for each round, None where it has no usable answer."""

    lengths: tuple[Count | None, ...]
    """Completion tokens."""
    finish_reasons: tuple[str | None, ...]
    distinct: Count
    """Token-id sequences that differ from each other."""
    logprob_spread: float = 0.0
    """Largest difference, in nat, of one position's logprob between answers with equal token ids."""


class ForcedFacts(Model):
    """Teacher-forced logprobs of a completion: of the base's under head, of a server's own under itself."""

    completion_ids: tuple[Token, ...]
    logprobs: tuple[float, ...]
    again: tuple[tuple[float, ...], ...] = ()
    """The same completion scored again: tells whether scores repeat themselves."""

    @model_validator(mode="after")
    def _lengths_agree(self) -> ForcedFacts:
        if len(self.logprobs) != len(self.completion_ids):
            raise ValueError(f"{len(self.logprobs)} logprobs for {len(self.completion_ids)} completion ids")
        return self


class QualityFact(Model):
    """One quality check on one prompt's answers."""

    prompt_id: str
    check: str
    """The check in words, such as ``contains "30 days"``."""
    passed: bool
    """By every answer."""
    detail: str = ""
    passes: tuple[bool, ...] = ()
    """Of each answer, where there are several."""


class WorkloadFacts(Model):
    numerics: Literal["reference", "native"]
    offered: dict[str, str]
    metrics: dict[str, Sample]
    prompts: dict[str, PromptFacts] = {}
    """By request id, which is the prompt's id where each prompt is sent once."""
    failed: dict[str, str] = {}
    """Request id to error, where the first round has no usable answer."""
    finish_reasons: dict[str, Count] = {}
    """Answered requests by finish reason, over all rounds."""
    forced: dict[str, ForcedFacts] = {}
    answers: dict[str, AnswerFacts] = {}
    """By request id. Kept for reference numerics where there is more than one round."""
    rounds_a_run: Count | None = None
    """Where rounds of several processes were put together: how many each of them gave."""
    quality: tuple[QualityFact, ...] = ()
    contended: str | None = None
    """Who else held the machine during a measured round, in words: its times are no ground for a verdict."""


class Facts(Model):
    schema_version: Literal[1] = SCHEMA_VERSION
    suite: str
    suite_digest: str
    prompt_set_digest: str
    created: str
    commit: Commit | None = None
    fingerprint: Fingerprint
    prices: Prices | None = None
    """What costs were computed with: costs under other prices are not comparable."""
    workloads: dict[str, WorkloadFacts]
    complete: bool = True
    reason: str | None = None
    """In a baseline: why this change was accepted."""
