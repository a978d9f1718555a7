"""Prompt sets: ids that are unique, a digest that survives renames, two file forms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from servegate.errors import UsageError
from servegate.suite.prompt_set import PromptSet, load_prompt_set

HEAD = "version: 1\nname: support\nprompts:\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(text: str, name: str = "p.yaml") -> PromptSet:
    Path(name).write_text(text, encoding="utf-8")
    return load_prompt_set(Path(name))[0]


def fault(text: str, name: str = "p.yaml") -> str:
    with pytest.raises(UsageError) as caught:
        read(text, name)
    return str(caught.value)


def test_a_prompt_is_text_or_messages() -> None:
    text, chat = read(
        HEAD
        + "  - {id: a, text: Hello, variables: {who: Bo, n: 3}, max_tokens: 5}\n"
        + "  - {id: b, messages: [{role: user, content: Hi}]}\n"
    ).prompts
    assert (text.text, text.variables, text.max_tokens) == ("Hello", {"who": "Bo", "n": 3}, 5)
    assert chat.messages is not None
    assert chat.messages[0].content == "Hi"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version: 1\nname: s\nprompts: []\n", "p.yaml:3: prompts: is empty"),
        (HEAD, "p.yaml:3: prompts: expected a list, found nothing"),
        (HEAD + "  - {id: a, text: x}\n  - {id: a, text: y}\n",
         "p.yaml:5: prompts[1].id: 'a' is used twice (first on line 4)"),
        (HEAD + "  - {id: a#1, text: x}\n",
         "p.yaml:4: prompts[0].id: should match pattern '^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$', found 'a#1'"),
        (HEAD + "  - {id: 7, text: x}\n",
         "p.yaml:4: prompts[0].id: expected text, found 7; put it in quotes"),
        (HEAD + "  - {text: x}\n", "p.yaml:4: prompts[0].id: is missing"),
        (HEAD + "  - {id: a}\n", "p.yaml:4: prompts[0]: give exactly one of text, messages"),
        (HEAD + "  - {id: a, text: x, messages: [{role: user, content: y}]}\n",
         "p.yaml:4: prompts[0]: give exactly one of text, messages"),
        (HEAD + "  - {id: a, text: ''}\n",
         "p.yaml:4: prompts[0].text: should have at least 1 character, found ''"),
        (HEAD + "  - {id: a, messages: []}\n", "p.yaml:4: prompts[0].messages: is empty"),
        (HEAD + "  - {id: a, messages: [{role: robot, content: x}]}\n",
         "p.yaml:4: prompts[0].messages[0].role: 'robot' is not supported; "
         "supported: 'system', 'user', 'assistant' or 'tool'"),
        (HEAD + "  - {id: a, txt: x}\n",
         "p.yaml:4: prompts[0].txt: unknown key; did you mean 'text'?"),
        ("version: 1\nname: s\nprompt: []\n", "p.yaml:1: prompts: is missing\n"
         "p.yaml:3: prompt: unknown key; did you mean 'prompts'?"),
        ("- a\n", "p.yaml:1: expected keys with values, found ['a']"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_line(text: str, message: str) -> None:
    assert fault(text) == message


def test_the_digest_is_of_the_prompts_alone() -> None:
    prompts = "  - {id: a, text: Hello, max_tokens: 5}\n"
    digest = read(HEAD + prompts).digest
    assert read(HEAD.replace("support", "renamed") + prompts).digest == digest
    assert read(HEAD + '  - max_tokens: 5\n    text: "Hello"\n    id: a\n').digest == digest
    assert read(HEAD + prompts.replace("Hello", "Hallo")).digest != digest
    assert read(HEAD + prompts.replace("id: a", "id: b")).digest != digest


def test_jsonl_is_the_same_set_under_the_files_name() -> None:
    lines = [{"id": "a", "text": "x\u2028y"}, {"id": "b", "messages": [{"role": "user", "content": "ü"}]}]
    text = "\n\n".join(json.dumps(line, ensure_ascii=False) for line in lines) + "\n"
    prompt_set = read(text, "many.jsonl")
    assert prompt_set.name == "many"
    assert prompt_set.prompts[0].text == "x\u2028y"
    assert prompt_set.digest == read(json.dumps({"version": 1, "name": "s", "prompts": lines})).digest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "p.jsonl: is empty"),
        ("\n\n", "p.jsonl: is empty"),
        ('{"id": "a", "text": "x"}\n{"id": "b",', "p.jsonl:2: is not JSON: "
         "Expecting property name enclosed in double quotes (column 12)"),
        ('{"id": "a", "id": "b"}', "p.jsonl:1: key 'id' is given twice"),
        ('{"id": "a", "variables": {"v": NaN}}', "p.jsonl:1: NaN is not a number that JSON allows"),
        ('{"id": "a", "variables": {"v": 1e999}}', "p.jsonl:1: 1e999 is not a finite number"),
        ('{"id": "a", "text": "\\ud83d"}', "p.jsonl:1: text holds half of a surrogate pair"),
        ('\n{"id": "a", "text": "x"}\n\n{"id": "a", "text": "x"}',
         "p.jsonl:4: prompts[1].id: 'a' is used twice (first on line 2)"),
        ('{"id": "a", "text": "x"}\n["a"]', "p.jsonl:2: prompts[1]: expected keys with values, found ['a']"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_jsonl_is_told_with_its_line(text: str, message: str) -> None:
    assert fault(text, "p.jsonl") == message


@pytest.mark.parametrize("depth", [250, 100_000])
def test_jsonl_nested_without_end(depth: int) -> None:
    text = '{"id": "a", "text": "x"}\n{"id": "b", "variables": {"v": ' + "[" * depth + "]" * depth + "}}"
    assert fault(text, "p.jsonl").startswith("p.jsonl:")
