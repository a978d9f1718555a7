"""Suite file -> checked suite with its prompts rendered. Everything that is read is read here."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from servegate.suite.check import check
from servegate.suite.document import Document, Fault, KeyPath, canonical_json, is_file, show
from servegate.suite.prompt_set import Message, Prompt, PromptSet, load_prompt_set
from servegate.suite.references import unfit_units, unknown_metrics, unknown_prompts
from servegate.suite.schema import Prompts, Suite
from servegate.suite.template import PromptTemplate
from servegate.suite.yaml_reader import read_yaml


@dataclass(frozen=True)
class RenderedPrompt:
    """What a prompt becomes: plain ``text``, or ``messages`` for the model's chat template; one is set."""

    id: str
    text: str | None
    messages: tuple[Message, ...] | None
    max_tokens: int | None


@dataclass(frozen=True)
class LoadedSuite:
    """A suite that was checked, with all that its files say."""

    suite: Suite
    path: Path
    digest: str
    """sha256 of what the suite says; defaults that are written out, comments and order change nothing."""
    prompt_set_digest: str
    prompts: tuple[RenderedPrompt, ...]

    @property
    def directory(self) -> Path:
        """Files that the suite names are relative to this."""
        return self.path.parent


def load_suite(path: Path, metrics: Mapping[str, str] | None = None) -> LoadedSuite:
    """Read the suite, its prompt set and its template. UsageError names every fault, one line each.

    ``metrics``: the names that a policy may use, with their units; by default those of the metric table.
    """
    metrics = _metric_units() if metrics is None else metrics
    document = read_yaml(path)
    suite, faults = check(Suite, document)
    unknown = unknown_metrics(document, metrics)
    names = {fault.key for fault in unknown}
    faults = [fault for fault in faults if fault.key[:2] not in names] + unknown
    if suite is None or faults:
        document.reject(faults)
    faults = [*unfit_units(suite, metrics), *_unusable_files(suite.prompts, document)]
    if faults:
        document.reject(faults)
    prompt_set, prompts_document = load_prompt_set(path.parent / suite.prompts.set)
    faults = list(unknown_prompts(suite, prompt_set))
    if faults:
        document.reject(faults)
    return LoadedSuite(
        suite=suite,
        path=path,
        digest=hashlib.sha256(
            canonical_json(suite.model_dump(mode="json", exclude_defaults=True))
        ).hexdigest(),
        prompt_set_digest=prompt_set.digest,
        prompts=_rendered(suite, prompt_set, prompts_document, path.parent),
    )


def _metric_units() -> dict[str, str]:
    # Late: the table brings the metrics' own imports, which making a plan of a loaded suite does not need.
    from servegate.metrics.table import METRICS

    return {name: spec.unit for name, spec in METRICS.items()}


def _unusable_files(prompts: Prompts, document: Document) -> Iterator[Fault]:
    for field, name in (("set", prompts.set), ("template", prompts.template)):
        if name is None:
            continue
        key: KeyPath = ("prompts", field)
        if Path(name).is_absolute():
            # The base commit's suite, checked out elsewhere, would read the head's file.
            yield Fault(key, f"{show(name)} is absolute; write it relative to the suite")
        elif not is_file(document.path.parent / name):
            yield Fault(key, f"no such file: {show(name)} (looked in {document.path.parent})")


def _rendered(
    suite: Suite, prompt_set: PromptSet, document: Document, directory: Path
) -> tuple[RenderedPrompt, ...]:
    settings = suite.prompts
    faults = [
        Fault(("prompts", index), message)
        for index, prompt in enumerate(prompt_set.prompts)
        if (message := _conflict(prompt, suite))
    ]
    if faults:
        document.reject(faults)
    template = PromptTemplate(directory / settings.template, directory) if settings.template else None
    rendered = [_render(prompt, settings, template) for prompt in prompt_set.prompts]
    for index, prompt in enumerate(rendered):
        if prompt.text == "" or (prompt.messages and prompt.messages[-1].content == ""):
            document.reject([Fault(("prompts", index), f"prompt {prompt.id!r} is empty once rendered")])
    return tuple(rendered)


def _conflict(prompt: Prompt, suite: Suite) -> str | None:
    """What the prompt brings that the suite would silently ignore or contradict."""
    settings, min_tokens = suite.prompts, suite.sampling.min_tokens
    if prompt.max_tokens is not None and prompt.max_tokens < min_tokens:
        return f"max_tokens {prompt.max_tokens} is below the suite's sampling.min_tokens {min_tokens}"
    if prompt.variables and settings.template is None:
        return (
            f"prompt {prompt.id!r} has variables, and the suite has no prompts.template that could use them"
        )
    if prompt.messages and settings.template is not None:
        return f"prompt {prompt.id!r} has messages, sent as they stand; prompts.template renders text only"
    if prompt.messages and not settings.chat:
        return f"prompt {prompt.id!r} has messages, which need prompts.chat: true in the suite"
    return None


def _render(prompt: Prompt, settings: Prompts, template: PromptTemplate | None) -> RenderedPrompt:
    text = prompt.text
    if text is not None and template is not None:
        text = template.render(prompt.id, text, {**settings.variables, **prompt.variables})
    if not settings.chat:
        return RenderedPrompt(prompt.id, text, None, prompt.max_tokens)
    messages = prompt.messages or (Message(role="user", content=text or ""),)
    if settings.system is not None and messages[0].role != "system":
        messages = (Message(role="system", content=settings.system), *messages)
    return RenderedPrompt(prompt.id, None, messages, prompt.max_tokens)
