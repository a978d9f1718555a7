"""Document -> model, with every fault in one line that a person can act on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypeVar

from pydantic import ValidationError

from servegate.model import Model
from servegate.suggest import did_you_mean
from servegate.suite.document import Document, Fault, KeyPath, show

M = TypeVar("M", bound=Model)

_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "keys with values",
    "model_type": "keys with values",
    "model_attributes_type": "keys with values",
    "date_type": "a date such as 2026-10-01",
    "date_parsing": "a date such as 2026-10-01",
    "date_from_datetime_inexact": "a date such as 2026-10-01",
}

_OF_A_KIND = ("union_tag_invalid", "union_tag_not_found")


def check(model: type[M], document: Document) -> tuple[M | None, list[Fault]]:
    """The model, or every fault that its types find.

    Strict: `torch: 2.10` is the number 2.1 to YAML, so text is never made out of numbers nor the reverse. By
    way of JSON, where strict still reads a list as a tuple and text as a date.
    """
    try:
        return model.model_validate_json(json.dumps(document.data), strict=True), []
    except ValidationError as error:
        # A list whose items are wrong is "too short" to pydantic as well.
        items = [dict(item) for item in error.errors() if item["type"] != "too_short" or not item["input"]]
    return None, _without_consequences([_fault(item, model, document.data) for item in items])


def require(model: type[M], document: Document) -> M:
    """The model; UsageError with every fault otherwise."""
    checked, faults = check(model, document)
    if checked is None:
        document.reject(faults)
    return checked


def _fault(item: dict[str, Any], model: type[Model], data: Any) -> Fault:
    key = _key(item["loc"], data, missing=item["type"] == "missing")
    if item["type"] in _OF_A_KIND:  # told of the mapping, where it is its `kind` that is wrong
        key = (*key, "kind")
    return Fault(key, _message(item, key, model))


def _key(location: tuple[str | int, ...], data: Any, *, missing: bool) -> KeyPath:
    """pydantic's location without the parts that name types: only keys that stand in the file."""
    key: list[str | int] = []
    for part in location:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            continue
        key.append(part)
    return (*key, location[-1]) if missing else tuple(key)


def _message(item: dict[str, Any], key: KeyPath, model: type[Model]) -> str:
    kind, found = item["type"], item["input"]
    if kind == "extra_forbidden":
        return "unknown key" + did_you_mean(str(key[-1]), _known_keys(model, key[:-1]))
    if kind in ("missing", "union_tag_not_found"):
        return "is missing"
    if kind == "union_tag_invalid":
        tags = item["ctx"]["expected_tags"].replace(", ", " or ")
        return f"{show(item['ctx']['tag'])} is not supported; supported: {tags}"
    if kind == "literal_error":
        return f"{show(found)} is not supported; supported: {item['ctx']['expected']}"
    if kind == "value_error":
        return str(item["ctx"]["error"])
    if kind in _EXPECTED:
        hint = "; put it in quotes" if kind == "string_type" and isinstance(found, (int, float)) else ""
        return f"expected {_EXPECTED[kind]}, found {show(found)}{hint}"
    if kind == "too_short":
        return "is empty"
    return f"{item['msg'].removeprefix('Input ').removeprefix('String ')}, found {show(found)}"


def _without_consequences(faults: list[Fault]) -> list[Fault]:
    """Where a mapping's ``kind`` is not supported, its other keys cannot be judged."""
    unknown = [f.key[:-1] for f in faults if f.key[-1:] == ("kind",) and "not supported" in f.message]
    return [
        fault
        for fault in faults
        if fault.key[-1:] == ("kind",) or not any(fault.key[: len(key)] == key for key in unknown)
    ]


def _known_keys(model: type[Model], key: KeyPath) -> set[str]:
    """The keys that may stand in the mapping at ``key``, read from the exported schema."""
    root = model.model_json_schema()
    nodes = list(_alternatives(root, root))
    for part in key:
        nodes = [
            found for node in nodes for child in _child(node, part) for found in _alternatives(child, root)
        ]
    return {name for node in nodes for name in node.get("properties", {})}


def _alternatives(node: dict[str, Any], root: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "$ref" in node:
        yield from _alternatives(root["$defs"][node["$ref"].rpartition("/")[2]], root)
    for option in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        yield from _alternatives(option, root)
    yield node


def _child(node: dict[str, Any], part: str | int) -> Iterator[dict[str, Any]]:
    if isinstance(part, int):
        found = [node.get("items")]
    elif part in node.get("properties", {}):
        found = [node["properties"][part]]
    else:
        found = [node.get("additionalProperties"), *node.get("patternProperties", {}).values()]
    yield from (schema for schema in found if isinstance(schema, dict))
