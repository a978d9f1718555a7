"""Records, facts and verdicts on disk: canonical JSON, written whole or not at all, read with one clear line.

Canonical: sorted keys, two spaces, floats as Python prints them, an array of numbers on one line (so that a
changed completion is one changed line), a newline at the end.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from servegate.errors import UsageError
from servegate.facts import Facts
from servegate.model import SCHEMA_VERSION, Model
from servegate.record import RunRecord
from servegate.series import PACK

M = TypeVar("M", bound=Model)

READABLE_TOKENS: Final = 200_000
"""A record of more tokens is written with packed arrays and in the order of its fields."""


def read_record(path: Path) -> RunRecord:
    return read_model(path, RunRecord)


def read_facts(path: Path) -> Facts:
    return read_model(path, Facts)


def read_model(path: Path, model: type[M], *, versioned: bool = True) -> M:
    """The file's content. UsageError names the file, what is wrong with it and what to do.

    ``versioned``: the file must state its schema version itself.
    """
    data = _read_bytes(path)
    try:
        value = model.model_validate_json(data)
    except ValidationError as error:
        raise UsageError(_complaint(path, model, error)) from None
    if versioned and "schema_version" not in value.model_fields_set:
        raise UsageError(f"{path}: no schema_version, so its numbers could be misread; measure again")
    return value


def write_record(path: Path, record: RunRecord) -> None:
    """Readable where it is small; packed where a list of numbers would take seconds to read."""
    tokens = sum(len(r.arrivals_ns) for w in record.workloads for round_ in w.rounds for r in round_.requests)
    if tokens <= READABLE_TOKENS:
        write_text(path, canonical(record, sparse=True))
    else:
        write_text(path, record.model_dump_json(context=PACK) + "\n")


def write_facts(path: Path, facts: Facts) -> None:
    """Without the defaults, which would be most of a committed baseline."""
    write_text(path, canonical(facts, sparse=True))


def write_model(path: Path, model: Model) -> None:
    write_text(path, canonical(model))


def write_text(path: Path, text: str) -> None:
    """Replace ``path`` in one step: a reader, or a crash, finds the old file or the new one.

    Missing folders are made. UsageError where the place cannot be written.
    """
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.name[:100]}.", suffix=".tmp"
        )
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fchmod(file.fileno(), 0o666 & ~_umask())
            os.fsync(file.fileno())
        Path(temporary).replace(path)
        temporary = None
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def remove(path: Path) -> None:
    """Delete the file if it is there. UsageError where that is not allowed."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"{path}: cannot be deleted: {error.strerror or error}") from None


def canonical(model: Model, *, sparse: bool = False) -> str:
    """The model as canonical JSON text; ``sparse`` leaves out what has its default value."""
    content = model.model_dump(mode="json", exclude_defaults=sparse)
    if "schema_version" in type(model).model_fields:
        content["schema_version"] = SCHEMA_VERSION
    return _encode(content, "") + "\n"


def digest(model: Model) -> str:
    """sha256 of the canonical JSON."""
    return hashlib.sha256(canonical(model).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """sha256 of the file's bytes."""
    return hashlib.sha256(_read_bytes(path)).hexdigest()


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UsageError(f"{path}: is a directory, not a file; name the JSON file in it") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from None


def _complaint(path: Path, model: type[Model], error: ValidationError) -> str:
    """The first fault that explains the others."""
    faults = error.errors(include_url=False)
    for fault in faults:
        if fault["loc"] == ("schema_version",):
            return (
                f"{path}: schema_version {fault['input']!r}, and this servegate reads {SCHEMA_VERSION}; "
                "read it with the servegate that wrote it, or measure again"
            )
    first = next((fault for fault in faults if fault["type"] == "finite_number"), faults[0])
    if first["type"] == "json_invalid":
        what = first["ctx"]["error"] if "ctx" in first else first["msg"]
        return f"{path}: cut off or not JSON ({what}); restore the file or measure again"
    # A row of numbers may be written in two ways; pydantic names the one tried by a part with brackets.
    where = ".".join(str(part) for part in first["loc"] if "[" not in str(part)) or "the file"
    more = f" (and {len(faults) - 1} more faults)" if len(faults) > 1 else ""
    noun = {"RunRecord": "record", "Facts": "facts file"}.get(model.__name__, model.__name__.lower())
    return f"{path}: not a valid {noun}: {where}: {_meaning(first['type'], first['msg'])}{more}"


def _meaning(kind: str, message: str) -> str:
    if kind == "finite_number":
        return "NaN or infinity, which no measurement gives"
    if kind == "extra_forbidden":
        return "unknown key"
    return message[:1].lower() + message[1:]


def _encode(value: Any, indent: str) -> str:
    """Recursive, with the standard encoder for every leaf and every array of leaves."""
    inner = indent + "  "
    if isinstance(value, dict) and value:
        items = (f"{inner}{_leaf(key)}: {_encode(value[key], inner)}" for key in sorted(value))
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        return "[\n" + ",\n".join(inner + _encode(item, inner) for item in value) + f"\n{indent}]"
    return _leaf(value)


def _leaf(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _umask() -> int:
    """The process's mask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
