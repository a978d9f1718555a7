"""Prompt sets: a named list of prompts with ids, as YAML, or as JSONL with one prompt a line."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, model_validator

from servegate.errors import UsageError
from servegate.model import Model
from servegate.suite.check import check
from servegate.suite.document import (
    Document,
    Fault,
    KeyPath,
    canonical_json,
    finite,
    read_text,
    require_utf8,
    show,
)
from servegate.suite.schema import Variables
from servegate.suite.yaml_reader import read_yaml

MAX_JSONL_BYTES: Final = 256 * 2**20


class Message(Model):
    role: Literal["system", "user", "assistant", "tool"]
    content: str


class Prompt(Model):
    """``text``, or chat ``messages`` that are sent as they stand."""

    id: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$", description="names the prompt in every report"
    )
    text: str | None = Field(None, min_length=1, description="the prompt, or what the template puts in place")
    messages: tuple[Message, ...] | None = Field(None, min_length=1, description="a conversation so far")
    variables: Variables = Field({}, description="for the suite's template")
    max_tokens: int | None = Field(None, ge=1, description="instead of the suite's sampling.max_tokens")

    @model_validator(mode="after")
    def _one_form(self) -> Prompt:
        if (self.text is None) == (self.messages is None):
            raise ValueError("give exactly one of text, messages")
        return self


class PromptSet(Model):
    """What `prompts.set` of a suite names."""

    version: Literal[1] = Field(description="of this file's form")
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    prompts: tuple[Prompt, ...] = Field(min_length=1)

    @property
    def digest(self) -> str:
        """sha256 over the prompts alone, so that a renamed set is seen to be the same."""
        prompts = [prompt.model_dump(mode="json", exclude_defaults=True) for prompt in self.prompts]
        return hashlib.sha256(canonical_json(prompts)).hexdigest()


def load_prompt_set(path: Path) -> tuple[PromptSet, Document]:
    """The set, and the document that knows the line of each prompt. UsageError for anything wrong with it."""
    document = _read_jsonl(path) if path.suffix == ".jsonl" else read_yaml(path)
    prompt_set, faults = check(PromptSet, document)
    faults += _repeated_ids(document)
    if prompt_set is None or faults:
        document.reject(faults)
    return prompt_set, document


def _repeated_ids(document: Document) -> list[Fault]:
    prompts = document.data.get("prompts") if isinstance(document.data, dict) else None
    first: dict[str, int] = {}
    faults = []
    for index, prompt in enumerate(prompts if isinstance(prompts, list) else ()):
        name = prompt.get("id") if isinstance(prompt, dict) else None
        if not isinstance(name, str):
            continue
        key: KeyPath = ("prompts", index, "id")
        if name in first:
            faults.append(Fault(key, f"{show(name)} is used twice (first on line {first[name]})"))
        else:
            first[name] = document.line(key)
    return faults


def _read_jsonl(path: Path) -> Document:
    """One JSON object a line; the file's name is the set's."""
    prompts: list[Any] = []
    lines: dict[KeyPath, int] = {}
    # Not splitlines(): JSON text may hold U+2028 as it is.
    for number, line in enumerate(read_text(path, MAX_JSONL_BYTES).split("\n"), start=1):
        if not line.strip():
            continue
        lines["prompts", len(prompts)] = number
        try:
            prompt = json.loads(
                line, object_pairs_hook=_unique_keys, parse_float=finite, parse_constant=_no_constant
            )
            require_utf8(json.dumps(prompt, ensure_ascii=False))
        except json.JSONDecodeError as error:
            raise UsageError(f"{path}:{number}: is not JSON: {error.msg} (column {error.colno})") from None
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{path}:{number}: {error}") from None
        prompts.append(prompt)
    if not prompts:
        raise UsageError(f"{path}: is empty")
    return Document(path, {"version": 1, "name": path.stem, "prompts": prompts}, lines)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in pairs:
        if name in result:
            raise ValueError(f"key {show(name)} is given twice")
        result[name] = value
    return result


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number that JSON allows")
