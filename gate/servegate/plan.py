"""What will be sent, decided before the first request: suite -> plan. Pure; reads no clock and no file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from pydantic import ValidationError

from servegate.errors import UsageError
from servegate.model import Model
from servegate.suite.document import canonical_json
from servegate.suite.loading import LoadedSuite, RenderedPrompt
from servegate.suite.prompt_set import Message as Message
from servegate.suite.schema import EmbeddedTarget, Sampling, Target, Workload


class PlannedPrompt(Model):
    """A rendered prompt: plain ``text``, or ``messages`` for the target's chat template; one is set."""

    id: str
    digest: str
    """sha256 of the rendered prompt's canonical JSON: identifies it across renames."""
    text: str | None = None
    messages: tuple[Message, ...] | None = None


class PlannedRequest(Model):
    id: str
    """The prompt's id, in a workload that sends each prompt once."""
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
    max_tokens: int | None = None
    """What ``requests`` were cut to, all of them; part of the offered load."""
    forced: tuple[ForcedCompletion, ...] = ()


class Plan(Model):
    suite: str
    suite_digest: str
    prompt_set_digest: str
    target: Target
    workloads: tuple[WorkloadPlan, ...]


_NOTHING_FORCED: Final[Mapping[str, ForcedCompletion]] = MappingProxyType({})


def make_plan(loaded: LoadedSuite, forced: Mapping[str, ForcedCompletion] = _NOTHING_FORCED) -> Plan:
    """Everything that a target needs to know.

    ``forced`` holds the base's completions by prompt id. Only workloads with reference numerics score them:
    elsewhere a logprob depends on what shares the batch. Those of prompts that this suite no longer has, and
    those without a token, are left out.
    """
    suite = loaded.suite
    requests = tuple(_request(prompt, suite.sampling) for prompt in loaded.prompts)
    kept = tuple(
        forced[prompt.id]
        for prompt in loaded.prompts
        if prompt.id in forced and forced[prompt.id].completion_ids
    )
    return Plan(
        suite=suite.name,
        suite_digest=loaded.digest,
        prompt_set_digest=loaded.prompt_set_digest,
        target=suite.target,
        workloads=tuple(_workload(name, spec, requests, kept) for name, spec in suite.workloads.items()),
    )


def _request(rendered: RenderedPrompt, sampling: Sampling) -> PlannedRequest:
    content = (
        {"text": rendered.text}
        if rendered.messages is None
        else {"messages": [message.model_dump() for message in rendered.messages]}
    )
    prompt = PlannedPrompt(
        id=rendered.id,
        digest=hashlib.sha256(canonical_json(content)).hexdigest(),
        text=rendered.text,
        messages=rendered.messages,
    )
    if rendered.max_tokens is not None:
        sampling = sampling.model_copy(update={"max_tokens": rendered.max_tokens})
    return PlannedRequest(id=rendered.id, prompt=prompt, sampling=sampling)


def _workload(
    name: str,
    spec: Workload,
    requests: tuple[PlannedRequest, ...],
    forced: tuple[ForcedCompletion, ...],
) -> WorkloadPlan:
    is_reference = spec.numerics == "reference"
    # What is exact needs no warm-up; what is timed must not time first-use costs.
    warmup = spec.warmup if spec.warmup is not None else (0 if is_reference else 1)
    return WorkloadPlan(
        name=name,
        kind=spec.kind,
        numerics=spec.numerics,
        concurrency=spec.concurrency,
        warmup=warmup,
        repeat=spec.repeat,
        requests=requests if spec.max_tokens is None else tuple(cut(r, spec.max_tokens) for r in requests),
        max_tokens=spec.max_tokens,
        forced=forced if is_reference else (),
    )


def offered_load(workload: WorkloadPlan) -> dict[str, str]:
    """What is asked of a target, as its record says it."""
    load = {
        "kind": workload.kind,
        "concurrency": str(workload.concurrency),
        "requests": str(len(workload.requests)),
    }
    return load if workload.max_tokens is None else {**load, "max_tokens": str(workload.max_tokens)}


def at_url(plan: Plan, url: str) -> Plan:
    """The plan for the same target at another URL. UsageError where the target has none, or it is none."""
    target = plan.target
    if isinstance(target, EmbeddedTarget):
        raise UsageError(f"target.kind {target.kind!r} runs in the arm's own process: it has no URL")
    try:
        moved = type(target).model_validate({**target.model_dump(), "url": url})
    except ValidationError as error:
        raise UsageError(f"{url}: {error.errors()[0]['ctx']['error']}") from None
    return plan.model_copy(update={"target": moved})


def cut(request: PlannedRequest, most: int) -> PlannedRequest:
    """The request with a completion of at most ``most`` tokens."""
    sampling = request.sampling
    limits = {name: min(getattr(sampling, name), most) for name in ("max_tokens", "min_tokens")}
    return request.model_copy(update={"sampling": sampling.model_copy(update=limits)})
