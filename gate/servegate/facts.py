"""What a record says, reduced to what is compared: record -> facts. A stored baseline is a ``Facts`` file."""

from __future__ import annotations

from typing import Literal

from servegate.fingerprint import Fingerprint
from servegate.model import SCHEMA_VERSION, Model
from servegate.record import Commit


class Sample(Model):
    """One metric of one workload."""

    value: float | None
    """Over all rounds, in the metric's unit; ``None`` where it could not be measured."""
    n: int
    """Observations behind ``value``: requests, gaps or positions."""
    per_round: tuple[float, ...] = ()
    """The same statistic of each round alone: the unit of evidence for timed metrics."""
    note: str | None = None
    """Why ``value`` is None, or what to know about it."""


class PromptFacts(Model):
    """What one prompt gave, exactly. Kept for reference numerics, where it holds on every machine."""

    prompt_digest: str
    finish_reason: str
    prompt_tokens: int
    completion_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Rounded to 10 decimals."""
    near_ties: tuple[int, ...] = ()


class ForcedFacts(Model):
    """Teacher-forced logprobs of the base's completion under the head."""

    completion_ids: tuple[int, ...]
    logprobs: tuple[float, ...]


class QualityFact(Model):
    """One quality check on one prompt's answer."""

    prompt_id: str
    check: str
    """The check in words, such as ``contains "30 days"``."""
    passed: bool
    detail: str = ""


class WorkloadFacts(Model):
    numerics: Literal["reference", "native"]
    offered: dict[str, str]
    metrics: dict[str, Sample]
    prompts: dict[str, PromptFacts] = {}
    forced: dict[str, ForcedFacts] = {}
    quality: tuple[QualityFact, ...] = ()


class Facts(Model):
    schema_version: Literal[1] = SCHEMA_VERSION
    suite: str
    suite_digest: str
    prompt_set_digest: str
    created: str
    commit: Commit | None = None
    fingerprint: Fingerprint
    workloads: dict[str, WorkloadFacts]
    complete: bool = True
    reason: str | None = None
    """In a baseline: why this change was accepted."""
