"""A model's chat template, rendered as Hugging Face does but in a sandbox: a template is hostile text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from servegate_engine.errors import ModelFileError, RequestError
from servegate_engine.gguf_file import GgufFile
from servegate_engine.safetensors_file import read_json


class ChatTemplate:
    """Messages to prompt text."""

    def __init__(
        self,
        source: str,
        tokens: Mapping[str, str],
        where: Path | str = "chat template",
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        """``tokens``: the names the template may use for special tokens, such as ``bos_token``.

        ``now`` answers ``strftime_now``; pass a fixed one where a prompt must not change from day to day.
        """
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda pattern: now().strftime(pattern)
        self.source = source
        self._tokens = dict(tokens)
        try:
            self._template = environment.from_string(source)
        except (TemplateError, RecursionError) as error:
            raise ModelFileError(f"{where}: the chat template does not compile: {error}") from error

    @classmethod
    def from_directory(cls, directory: Path) -> ChatTemplate | None:
        """From ``chat_template.jinja``, else ``tokenizer_config.json``; ``None`` where neither has one."""
        path = directory / "tokenizer_config.json"
        config = read_json(path) if path.is_file() else {}
        source = config.get("chat_template")
        if isinstance(source, list):  # several named templates
            named = [
                item.get("template")
                for item in source
                if isinstance(item, dict) and item.get("name") == "default"
            ]
            source = named[0] if named else None
        jinja = directory / "chat_template.jinja"
        if jinja.is_file():
            try:
                path, source = jinja, jinja.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise ModelFileError(f"{jinja}: {error}") from error
        if not isinstance(source, str):
            return None
        tokens = {}
        for name, token in config.items():
            content = token.get("content") if isinstance(token, dict) else token
            if name.endswith("_token") and isinstance(content, str):
                tokens[name] = content
        return cls(source, tokens, path)

    @classmethod
    def from_gguf(cls, file: GgufFile) -> ChatTemplate | None:
        """From the file's metadata; ``None`` where it has no template."""
        if "tokenizer.chat_template" not in file.metadata:
            return None
        pieces = file.get("tokenizer.ggml.tokens", list)
        tokens = {}
        for name in ("bos", "eos", "unknown", "padding"):
            index = file.metadata.get(f"tokenizer.ggml.{name}_token_id")
            if isinstance(index, int) and 0 <= index < len(pieces):
                tokens[{"unknown": "unk", "padding": "pad"}.get(name, name) + "_token"] = pieces[index]
        return cls(file.get("tokenizer.chat_template", str), tokens, file.path)

    def render(
        self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True, **variables: Any
    ) -> str:
        """The prompt text of a conversation. The special tokens are in it: encode it without adding more.

        Raises :class:`RequestError` where the template refuses the messages.
        """
        try:
            return self._template.render(
                messages=[dict(message) for message in messages],
                add_generation_prompt=add_generation_prompt,
                **{**self._tokens, **variables},
            )
        except Exception as error:  # whatever a template's own code can raise
            line = (str(error) or type(error).__name__).splitlines()[0]
            raise RequestError(f"the chat template cannot render these messages: {line}") from error


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    # Unlike Jinja's own filter, no HTML escaping: the result goes to a tokenizer.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)
