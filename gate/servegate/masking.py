"""Secrets made unreadable in whatever leaves this process for a person, a log or an artifact.

A prompt, an answer or an error text may hold a key. Two kinds are known: values of environment variables
whose names say that they are secret, and texts in the shape of a well-known token. Both become ``***``.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

if TYPE_CHECKING:  # every command that prints a line comes here: pydantic would cost it a tenth of a second
    from servegate.ab.record import AbRecord
    from servegate.record import RunRecord

    R = TypeVar("R", RunRecord, AbRecord)

T = TypeVar("T")

MASK: Final = "***"
_ANSWERS: Final = frozenset({"text", "error"})
"""Fields of a record that hold what a target said. The others are names and numbers that are judged."""
ANSWERS_NOTE: Final = "what looks like a secret in an answer is kept as ***; its token ids still spell it"

_SECRET_NAME: Final = re.compile(
    r"(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|(API|ACCESS|PRIVATE|SECRET|SIGNING|ENCRYPTION)_?KEY)"
    r"(?!.*_(FILE|PATH|DIR|NAME|ID|URL|URI|TYPE|TTL)$)(?=$|_|\d)",
    re.IGNORECASE,
)
"""``HF_TOKEN`` and ``DB_PASSWORD_2``; not ``TOKENIZERS_PARALLELISM``, ``MAX_TOKENS`` or ``TOKEN_FILE``."""
_SHORTEST: Final = 8
"""Shorter values stand in ordinary text by chance."""
_SETTINGS: Final = frozenset({"disabled", "required", "optional"})
_ORDINARY: Final = re.compile(r"[a-z]{1,15}|[A-Z]{1,15}|[A-Z][a-z]{1,14}|[0-9]{1,15}")
"""A password that is a word: masked where it stands alone, or it would blank parts of other words."""
_LINE: Final = re.compile(r"\S{16,}")
"""A line of a secret of several lines that is secret by itself."""

_ALONE = r"(?<![A-Za-z0-9])"
_SHAPES: Final = tuple(
    (hint, re.compile(pattern, re.ASCII))
    for hint, pattern in (
        *((f"gh{kind}_", _ALONE + rf"gh{kind}_[A-Za-z0-9][\w.\-]{{18,}}[A-Za-z0-9]") for kind in "pousr"),
        ("github_pat_", _ALONE + r"github_pat_[A-Za-z0-9_]{20,}"),
        ("glpat-", _ALONE + r"glpat-[\w\-]{18,}"),
        # A digit: hyphenated words have none.
        ("sk-", _ALONE + r"sk-(?=[A-Za-z_\-]{0,100}[0-9])[\w\-]{20,}"),
        ("hf_", _ALONE + r"hf_[A-Za-z0-9]{30,}"),
        ("AIza", _ALONE + r"AIza[\w\-]{35}"),
        ("AKIA", _ALONE + r"AKIA[A-Z0-9]{16}(?![A-Za-z0-9])"),
        ("ASIA", _ALONE + r"ASIA[A-Z0-9]{16}(?![A-Za-z0-9])"),
        ("xox", _ALONE + r"xox[a-z]-(?=[A-Za-z\-]{0,100}[0-9])[A-Za-z0-9\-]{10,}"),
        ("eyJ", r"(?<![\w\-])eyJ[\w\-]{10,}\.eyJ[\w\-]{10,}\.[\w\-]{10,}"),
        ("://", r"(?<=://)[^\s/:@]{1,200}:[^\s/@]{1,500}(?=@)"),
        (
            "PRIVATE KEY-----",
            r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----"
            r"((?:(?!-----)[\s\S])*-----END [A-Z ]{0,40}PRIVATE KEY-----|[\w+/=\s\\]*)",
        ),
    )
)
"""What every text of a shape holds, to look for first, and the shape. Bounds keep hostile text cheap."""


@dataclass(frozen=True)
class Secrets:
    """What to mask: these values, and the well-known shapes."""

    values: tuple[str, ...] = ()

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Secrets:
        return cls(
            tuple(
                value
                for name, value in sorted(environment.items())
                if _SECRET_NAME.search(name) and _may_be_secret(value)
            )
        )

    def mask(self, text: str) -> str:
        for form in self._forms:
            if form in text:
                text = (
                    _whole_words(form).sub(MASK, text)
                    if _ORDINARY.fullmatch(form)
                    else text.replace(form, MASK)
                )
        for hint, shape in _SHAPES:
            if hint in text:
                text = shape.sub(MASK, text)
        return text

    @cached_property
    def _forms(self) -> tuple[str, ...]:
        """Longest first, so that no part of a secret outlives another that it begins with."""
        forms = {form for value in self.values for form in _forms_of(value) if len(form) >= _SHORTEST}
        return tuple(sorted(forms, key=lambda form: (-len(form), form)))


SHAPES_ALONE: Final = Secrets()


def masked(value: T, secrets: Secrets, fields: frozenset[str] | None = None) -> T:
    """A model, dataclass or container with all its texts masked; ``value`` itself where none had to be.

    ``fields``: only texts that stand in a field of one of these names.
    """
    seen: T = _Walk(secrets, fields).through(value, inside=fields is None)
    return seen


def without_secrets(record: R, secrets: Secrets) -> R:
    """A run's or paired arms' record to be judged and kept: answers masked, with a note where one had to be.

    To be done before it is judged, so that what is saved gives the same verdict again.
    """
    seen: R = masked(record, secrets, _ANSWERS)
    if seen is record:
        return record
    return seen.model_copy(update={"notes": (*seen.notes, ANSWERS_NOTE)})


@dataclass(frozen=True)
class _Walk:
    secrets: Secrets
    fields: frozenset[str] | None

    def through(self, value: Any, *, inside: bool) -> Any:
        kind = type(value)
        if kind is str:
            return self.secrets.mask(value) if inside else value
        if kind in (int, float, bool, type(None)):
            return value
        if hasattr(kind, "model_fields"):  # a pydantic model
            changes = self._changes(value, kind.model_fields, inside)
            return value.model_copy(update=changes) if changes else value
        if kind in (tuple, list):
            return self._items(value, inside)
        if kind is dict:
            return self._entries(value, inside)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            changes = self._changes(value, (field.name for field in dataclasses.fields(value)), inside)
            return dataclasses.replace(value, **changes) if changes else value
        return value

    def _changes(self, value: Any, names: Iterator[str] | Mapping[str, Any], inside: bool) -> dict[str, Any]:
        changes = {}
        for name in names:
            old = getattr(value, name)
            new = self.through(old, inside=inside or name in (self.fields or ()))
            if new is not old:
                changes[name] = new
        return changes

    def _items(self, value: Any, inside: bool) -> Any:
        if value and type(value[0]) in (int, float):
            return value  # token ids, logprobs: long, and no text
        new = [self.through(item, inside=inside) for item in value]
        return type(value)(new) if any(a is not b for a, b in zip(new, value, strict=True)) else value

    def _entries(self, value: dict[Any, Any], inside: bool) -> dict[Any, Any]:
        """Names that become equal stay apart: none is lost."""
        new: dict[Any, Any] = {}
        for key, item in value.items():
            name = self.through(key, inside=inside)
            while name in new:
                name += "*"
            new[name] = self.through(item, inside=inside)
        same = new.keys() == value.keys() and all(new[key] is value[key] for key in value)
        return value if same else new


def _may_be_secret(value: str) -> bool:
    return len(value.strip()) >= _SHORTEST and value.strip().lower() not in _SETTINGS and not _is_path(value)


def _is_path(value: str) -> bool:
    """Of something on this machine. What merely begins with a slash may be a key in base64."""
    try:
        path = Path(value).expanduser()
        return path.is_absolute() and path.exists()
    except (OSError, ValueError, RuntimeError):
        return False


def _forms_of(value: str) -> Iterator[str]:
    """The value, as it stands in a log, on one line, in JSON, in Python's quotes, and in an address."""
    value = value.strip()
    yield from (
        value,
        " ".join(value.split()),
        json.dumps(value)[1:-1],
        repr(value)[1:-1],
        quote(value, safe=""),
    )
    if "\n" in value:
        yield from (line.strip() for line in value.splitlines() if _LINE.fullmatch(line.strip()))


def _whole_words(form: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z0-9]){re.escape(form)}(?![A-Za-z0-9])")
