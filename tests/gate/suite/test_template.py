"""Prompt templates: what they may use, and what a person reads when one fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from suites import PROMPTS, SUITE, Write, changed, faults, load

WITH_TEMPLATE = changed(
    "set: prompts.yaml", "set: prompts.yaml\n  template: t.jinja\n  variables: {tone: kind}"
)


def rendered(path: Path) -> list[str]:
    return [prompt.messages[-1].content for prompt in load(path).prompts if prompt.messages]


def fault(write: Write, template: str, **files: str) -> str:
    (line,) = faults(write(WITH_TEMPLATE, files={"t.jinja": template, **files}))
    return line


def test_a_template_sees_the_text_and_the_variables(write: Write) -> None:
    path = write(WITH_TEMPLATE, files={"t.jinja": "{{ text }} Be {{ tone }}.\n"})
    assert rendered(path) == ["Can I return shoes? Be kind.", "When are you open? Be kind."]


def test_a_prompts_own_variable_wins(write: Write) -> None:
    prompts = changed('shoes?"}', 'shoes?", variables: {tone: strict}}', PROMPTS)
    path = write(WITH_TEMPLATE, prompts, {"t.jinja": "{{ tone }}"})
    assert rendered(path) == ["strict", "kind"]


def test_prompts_are_plain_text_and_nothing_is_escaped(write: Write) -> None:
    prompts = changed("Can I", "<b> & {{ tone }}", PROMPTS)
    path = write(WITH_TEMPLATE, prompts, {"t.jinja": "{{ text }} > '"})
    assert rendered(path)[0] == "<b> & {{ tone }} return shoes? > '"


def test_files_beneath_the_suites_directory_can_be_included(write: Write) -> None:
    files = {"t.jinja": "{% include 'parts/rules.jinja' %} {{ text }}", "parts/rules.jinja": "Be {{ tone }}:"}
    assert rendered(write(WITH_TEMPLATE, files=files))[0] == "Be kind: Can I return shoes?"


def test_a_missing_variable_names_template_line_prompt_and_variable(write: Write) -> None:
    assert fault(write, "{{ text }}\n{{ customer }}") == (
        "t.jinja:2: prompt 'refund': 'customer' is undefined; "
        "give it in the prompt's variables or in the suite's prompts.variables"
    )


def test_a_missing_attribute_is_a_missing_variable(write: Write) -> None:
    assert "t.jinja:1: prompt 'refund': 'str object' has no attribute 'nmae'" in fault(
        write, "{{ text.nmae }}"
    )


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("a\n{{ text", "t.jinja:2: unexpected end of template, expected 'end of print statement'."),
        ("{% if %}", "t.jinja:1: Expected an expression, got 'end of statement block'"),
        ("{{ text | random }}", "t.jinja:1: No filter named 'random'."),
        ("{{ text * text }}",
         "t.jinja:1: prompt 'refund': TypeError: can't multiply sequence by non-int of type 'str'"),
        ("{{ 1 / 0 }}", "t.jinja:1: prompt 'refund': ZeroDivisionError: division by zero"),
        ("{{ text.__class__.__mro__ }}",
         "t.jinja:1: prompt 'refund': SecurityError: "
         "access to attribute '__class__' of 'str' object is unsafe."),
        ("{{ range(10 ** 9) | list }}",
         "t.jinja:1: prompt 'refund': OverflowError: "
         "Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000)."),
        ("{% if false %}x{% endif %}", "prompts.yaml:4: prompts[0]: prompt 'refund' is empty once rendered"),
    ],
)  # fmt: skip
def test_a_template_that_fails_is_one_line(write: Write, template: str, message: str) -> None:
    assert fault(write, template) == message


def test_nothing_random_is_at_hand(write: Write) -> None:
    assert "'lipsum' is undefined" in fault(write, "{{ lipsum() }}")


@pytest.mark.parametrize(
    "name", ["/etc/hostname", "../secret.jinja", "a/../../secret.jinja", "link.jinja", "a\\0b"]
)
def test_no_template_reads_outside_the_suites_directory(write: Write, tmp_path: Path, name: str) -> None:
    suite = changed("set: prompts.yaml", "set: prompts.yaml\n  template: t.jinja")
    write(suite, files={"inner/suite.yaml": suite, "inner/prompts.yaml": PROMPTS, "secret.jinja": "secret"})
    (tmp_path / "inner/t.jinja").write_text(f"{{% include '{name}' %}}")
    (tmp_path / "inner/link.jinja").symlink_to(tmp_path / "secret.jinja")
    (line,) = faults(Path("inner/suite.yaml"))
    assert line.startswith("inner/t.jinja: prompt 'refund': cannot include ")
    assert line.endswith(": no such file beneath the suite's directory")


def test_the_suite_itself_may_share_a_template_with_its_neighbours(write: Write, tmp_path: Path) -> None:
    suite = changed("set: prompts.yaml", "set: ../prompts.yaml\n  template: ../common.jinja")
    write(files={"inner/suite.yaml": suite, "common.jinja": "{{ text }}!"})
    assert rendered(Path("inner/suite.yaml"))[0] == "Can I return shoes?!"


def test_a_missing_template_is_named_where_it_is_asked_for(write: Write) -> None:
    assert faults(write(WITH_TEMPLATE)) == [
        "suite.yaml:6: prompts.template: no such file: 't.jinja' (looked in .)"
    ]


# --- what would be ignored is refused -------------------------------------------------------------------

CHAT = "version: 1\nname: s\nprompts:\n  - {id: a, messages: [{role: user, content: Hi}]}\n"


def test_variables_without_a_template(write: Write) -> None:
    prompts = changed('shoes?"}', 'shoes?", variables: {tone: strict}}', PROMPTS)
    assert faults(write(SUITE, prompts)) == [
        "prompts.yaml:4: prompts[0]: prompt 'refund' has variables, "
        "and the suite has no prompts.template that could use them"
    ]


def test_messages_with_a_template(write: Write) -> None:
    assert faults(write(WITH_TEMPLATE, CHAT, {"t.jinja": "{{ text }}"})) == [
        "prompts.yaml:4: prompts[0]: prompt 'a' has messages, sent as they stand; "
        "prompts.template renders text only"
    ]


def test_messages_without_a_chat_template(write: Write) -> None:
    suite = changed("set: prompts.yaml", "set: prompts.yaml\n  chat: false")
    assert faults(write(suite, CHAT)) == [
        "prompts.yaml:4: prompts[0]: prompt 'a' has messages, which need prompts.chat: true in the suite"
    ]


def test_a_prompts_budget_below_the_suites_minimum(write: Write) -> None:
    prompts = changed('shoes?"}', 'shoes?", max_tokens: 2}', PROMPTS)
    assert faults(write(SUITE + "sampling: {min_tokens: 3}\n", prompts)) == [
        "prompts.yaml:4: prompts[0]: max_tokens 2 is below the suite's sampling.min_tokens 3"
    ]


def test_a_conversation_with_its_own_system_message_keeps_it(write: Write) -> None:
    suite = changed("set: prompts.yaml", "set: prompts.yaml\n  system: Be brief.")
    prompts = CHAT + "  - {id: b, messages: [{role: system, content: Sing.}, {role: user, content: Hi}]}\n"
    first, second = load(write(suite, prompts)).prompts
    assert first.messages is not None
    assert second.messages is not None
    assert [m.content for m in first.messages] == ["Be brief.", "Hi"]
    assert [m.content for m in second.messages] == ["Sing.", "Hi"]
