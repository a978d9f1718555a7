"""What will be sent, decided before the first request: suite -> plan. Pure; reads no clock."""

from __future__ import annotations

from typing import Literal

from servegate.model import Model
from servegate.suite.schema import Sampling, Target


class Message(Model):
    role: str
    content: str


class PlannedPrompt(Model):
    """A rendered prompt: plain ``text``, or ``messages`` for the target's chat template; one is set."""

    id: str
    digest: str
    """sha256 of the rendered prompt's canonical JSON: identifies it across renames."""
    text: str | None = None
    messages: tuple[Message, ...] | None = None


class PlannedRequest(Model):
    id: str
    """``<prompt id>``; ``<prompt id>#<k>`` for the k-th further request with the same prompt."""
    prompt: PlannedPrompt
    sampling: Sampling
    due_ns: int | None = None
    """Offset of the scheduled send from the workload's start; ``None`` in a closed loop, where a freed slot
    is the schedule."""


class ForcedCompletion(Model):
    """A stored completion that the target is to score, token by token (teacher forcing)."""

    prompt_id: str
    completion_ids: tuple[int, ...]


class WorkloadPlan(Model):
    name: str
    kind: Literal["closed"]
    numerics: Literal["reference", "native"]
    concurrency: int
    warmup: int
    """Rounds sent and thrown away before the first measured one."""
    repeat: int
    """Measured rounds; each is one pass over ``requests`` on a cold prefix cache."""
    requests: tuple[PlannedRequest, ...]
    forced: tuple[ForcedCompletion, ...] = ()


class Plan(Model):
    suite: str
    suite_digest: str
    prompt_set_digest: str
    target: Target
    workloads: tuple[WorkloadPlan, ...]
