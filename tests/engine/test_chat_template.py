"""Chat templates: rendered as transformers renders them, and kept in a sandbox."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from servegate_engine.chat_template import ChatTemplate
from servegate_engine.errors import ModelFileError, RequestError
from servegate_engine.gguf_file import GgufFile

MESSAGES = [{"role": "user", "content": "Hi <b>"}, {"role": "assistant", "content": "Yes"}]


def test_the_real_template(smollm2: Path) -> None:
    template = ChatTemplate.from_gguf(GgufFile(smollm2))
    assert template is not None
    assert template.render([{"role": "user", "content": "Hi"}]) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert template.render(asked, add_generation_prompt=False) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    )


@pytest.mark.parametrize(
    "source",
    [
        "{{ bos_token }}{% for m in messages %}{{ m['role'] }}: {{ m.content }}\n{% endfor %}",
        "{%- for m in messages %}\n  {% if loop.last %}{% break %}{% endif %}\n{{ m | tojson }}{%- endfor %}",
        "{{ messages | tojson(indent=2) }}{{ 'é' | tojson }}",
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
        "{% if add_generation_prompt %}go{% else %}stop{% endif %}{{ extra }}",
    ],
)
def test_as_transformers_renders(source: str) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    expected, _ = render_jinja_template(
        [MESSAGES], chat_template=source, add_generation_prompt=True, bos_token="<s>", extra="x"
    )
    assert ChatTemplate(source, {"bos_token": "<s>"}).render(MESSAGES, extra="x") == expected[0]


def test_the_date_can_be_fixed() -> None:
    template = ChatTemplate("{{ strftime_now('%d %b %Y') }}", {}, now=lambda: datetime(2026, 3, 1))
    assert template.render([]) == "01 Mar 2026"


def test_the_templates_own_refusal_is_a_request_error() -> None:
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}", {})
    with pytest.raises(RequestError, match="cannot render these messages: roles must alternate"):
        template.render(MESSAGES)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{{ strftime_now.__globals__['__builtins__'] }}",
        "{{ 1 / 0 }}",
        "{{ messages[0].no.such }}",
        "{% for i in range(999999999) %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_a_hostile_template_stays_in_its_sandbox(source: str) -> None:
    with pytest.raises(RequestError) as caught:
        ChatTemplate(source, {}).render(MESSAGES)
    assert "\n" not in str(caught.value)


def test_the_sandbox_hides_pythons_insides() -> None:
    assert ChatTemplate("{{ raise_exception.__globals__ }}", {}).render(MESSAGES) == ""


def test_a_template_that_does_not_compile_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("{% for %}")
    with pytest.raises(ModelFileError, match=r"chat_template\.jinja: the chat template does not compile"):
        ChatTemplate.from_directory(tmp_path)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"chat_template": "a{{ bos_token }}", "bos_token": "<s>"}, "a<s>"),
        ({"chat_template": "a{{ eos_token }}", "eos_token": {"content": "</s>", "lstrip": False}}, "a</s>"),
        ({"chat_template": [{"name": "tool", "template": "t"}, {"name": "default", "template": "d"}]}, "d"),
        ({"chat_template": [{"name": "tool", "template": "t"}]}, None),
        ({}, None),
    ],
)
def test_where_a_directory_keeps_it(config: dict[str, Any], expected: str | None, tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    template = ChatTemplate.from_directory(tmp_path)
    assert (template.render([]) if template else None) == expected
    (tmp_path / "chat_template.jinja").write_text("from the file")
    template = ChatTemplate.from_directory(tmp_path)
    assert template is not None
    assert template.render([]) == "from the file"
