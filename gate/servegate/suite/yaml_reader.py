"""YAML that can only be plain data: no tags, no duplicate keys, no surprises in plain scalars, no bombs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import yaml

from servegate.errors import UsageError
from servegate.suite.document import Document, KeyPath, finite, read_text, require_utf8, show

MAX_BYTES: Final = 2**20
"""PyYAML reads about 200 kB a second."""
MAX_DEPTH: Final = 64
_TOO_DEEP: Final = f"is nested more than {MAX_DEPTH} levels deep"
_STANDARD: Final = "tag:yaml.org,2002:"


class _PlainLoader(yaml.SafeLoader):
    """Reads plain scalars by YAML 1.2's core rules instead of YAML 1.1's.

    So `on` and `no` are text, `12:30` is not 750, `1_000` and `007` are no numbers, `1e-6` is one, and a date
    stays the text that was written.
    """

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        # PyYAML recurses: without this, a file of brackets ends at the interpreter's limit.
        self.depth += 1
        if self.depth > MAX_DEPTH + 1:
            raise _TooDeepError(problem=_TOO_DEEP, problem_mark=self.get_mark())
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _TooDeepError(yaml.MarkedYAMLError):
    pass


_NUMBER_START = list("-+.0123456789")
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", _NUMBER_START),
    ("float", r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", _NUMBER_START),
):
    _PlainLoader.add_implicit_resolver(_STANDARD + _tag, re.compile(rf"(?:{_pattern})\Z"), _first)


def read_yaml(path: Path) -> Document:
    """The one document of a YAML file. UsageError, with file and line, where it is not plain data."""
    text = read_text(path, MAX_BYTES, "; a large prompt set can be JSONL, one prompt a line")
    try:
        # Only nodes come from PyYAML; values are made below, so no constructor can ever run.
        node = yaml.compose(text, Loader=_PlainLoader)
        if node is None:
            raise UsageError(f"{path}: is empty")
        return _Builder(path, len(text)).document(node)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UsageError(f"{path}:{line}: {_explain(error)}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, int(error.position)) + 1
        raise UsageError(
            f"{path}:{line}: character U+{ord(text[error.position]):04X} is not allowed"
        ) from None
    except (ValueError, OverflowError) as error:  # PyYAML lets these out for escapes such as "\UFFFFFFFF"
        raise UsageError(f"{path}: is not valid YAML: {error}") from None


def _explain(error: yaml.MarkedYAMLError) -> str:
    problem = str(error.problem)
    if isinstance(error, _TooDeepError):
        return problem
    if "'\\t'" in problem:
        return "a tab stands where YAML wants spaces; indent with spaces"
    if "single document" in str(error.context):
        return "a second document starts here (---); one file holds one"
    return f"is not valid YAML: {problem}" + (f" ({error.context})" if error.context else "")


class _Builder:
    """Turns nodes into data, notes every value's line, and stops what would grow without bound."""

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._lines: dict[KeyPath, int] = {}
        # What is written once costs at most about twice the file; only aliases can go beyond that.
        self._budget = 4 * size + 10_000

    def document(self, node: yaml.Node) -> Document:
        return Document(self._path, self._value(node, ()), self._lines)

    def _value(self, node: yaml.Node, key: KeyPath) -> Any:
        self._lines.setdefault(key, node.start_mark.line + 1)
        if len(key) > MAX_DEPTH:  # reached by an alias that holds itself
            raise self._error(node, _TOO_DEEP)
        self._budget -= 1 + (len(node.value) if isinstance(node, yaml.ScalarNode) else 0)
        if self._budget < 0:
            raise self._error(
                node, "its aliases expand to far more than the file itself; write the values out"
            )
        if isinstance(node, yaml.MappingNode) and node.tag == _STANDARD + "map":
            return self._mapping(node, key)
        if isinstance(node, yaml.SequenceNode) and node.tag == _STANDARD + "seq":
            return [self._value(item, (*key, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        raise self._tag_error(node)

    def _mapping(self, node: yaml.MappingNode, key: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        first_line: dict[str, int] = {}
        for name_node, value_node in node.value:
            name = self._scalar(name_node) if isinstance(name_node, yaml.ScalarNode) else None
            line = name_node.start_mark.line + 1
            if not isinstance(name, str):
                raise self._error(name_node, "a key must be text; put it in quotes")
            if name == "<<" and name_node.style is None:
                raise self._error(name_node, "merge keys (<<) are not supported; write the values out")
            if name in result:
                raise self._error(
                    name_node, f"key {show(name)} is given twice (first on line {first_line[name]})"
                )
            self._lines[*key, name] = line
            first_line[name] = line
            result[name] = self._value(value_node, (*key, name))
        return result

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        text: str = node.value
        try:
            match node.tag.removeprefix(_STANDARD):
                case "str":
                    return require_utf8(text)
                case "null":
                    return None
                case "bool" if text.lower() in ("true", "false"):
                    return text.lower() == "true"
                case "int":
                    return int(text)
                case "float":
                    return finite(text)
        except ValueError as error:
            raise self._error(node, str(error)) from None
        raise self._tag_error(node)

    def _tag_error(self, node: yaml.Node) -> UsageError:
        tag = node.tag.replace(_STANDARD, "!!")
        return self._error(node, f"tag {show(tag)} is not allowed: these files are plain data")

    def _error(self, node: yaml.Node, message: str) -> UsageError:
        return UsageError(f"{self._path}:{node.start_mark.line + 1}: {message}")
