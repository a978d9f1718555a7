"""A file as data that remembers on which line each value stands, so that every fault can name its place."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from servegate.errors import UsageError

KeyPath = tuple[str | int, ...]
"""Where a value stands: ``("workloads", "latency", "repeat")``."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True)
class Fault:
    """What is wrong with one value, in a few words that say what to do."""

    key: KeyPath
    message: str


@dataclass(frozen=True)
class Document:
    """Plain data (dicts, lists, text, numbers, booleans, None) from one file."""

    path: Path
    data: Any
    lines: Mapping[KeyPath, int]

    def line(self, key: KeyPath) -> int:
        """Of the value, or where it is missing, of what should hold it."""
        while key not in self.lines and key:
            key = key[:-1]
        return self.lines.get(key, 1)

    def describe(self, fault: Fault) -> str:
        where = f"{self.path}:{self.line(fault.key)}: "
        # Names from the file stand in messages: whatever is in them, one fault stays one line.
        message = _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), fault.message)
        return f"{where}{show_key(fault.key)}: {message}" if fault.key else where + message

    def reject(self, faults: Iterable[Fault]) -> NoReturn:
        """Raise one UsageError for all faults, one line each, in the order of the file."""
        in_order = sorted(faults, key=lambda fault: self.line(fault.key))
        raise UsageError("\n".join(dict.fromkeys(map(self.describe, in_order))))


def show_key(key: KeyPath) -> str:
    """``workloads.latency.stop[0]``; names that are not plain words are quoted: one line stays one."""
    shown = ""
    for part in key:
        if isinstance(part, int):
            shown += f"[{part}]"
        else:
            shown += ("." if shown else "") + (part if re.fullmatch(r"[\w.*-]{1,80}", part) else show(part))
    return shown


def show(value: object) -> str:
    """A value in a message: quoted, on one line, not long."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def read_text(path: Path, limit: int, instead: str = "") -> str:
    """The file as text. UsageError for what is missing, no plain file, over ``limit`` bytes or not UTF-8.

    ``instead`` is what to do with a file that is too large.
    """
    try:
        # A pipe or a device would block or never end.
        if path.exists() and not path.is_file():
            raise UsageError(f"{path}: is a {'directory' if path.is_dir() else 'device or pipe'}, not a file")
        with path.open("rb") as file:
            raw = file.read(limit + 1)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise UsageError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(raw) > limit:
        raise UsageError(f"{path}: is larger than {limit // 2**20} MiB{instead}")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}:{line}: is not UTF-8 text (byte 0x{raw[error.start]:02x})") from None


def is_file(path: Path) -> bool:
    """False also for a name that no file can have: too long, with a NUL, a loop of links."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def require_utf8(text: str) -> str:
    r"""Raise ValueError for half of a surrogate pair, which ``"\ud83d"`` writes and no file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("text holds half of a surrogate pair") from None
    return text


def finite(text: str) -> float:
    """A number as a float; ValueError where it is too large for one."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is not a finite number")
    return number


def canonical_json(data: object) -> bytes:
    """One byte string for equal content: what digests are taken of."""
    return json.dumps(
        data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()
