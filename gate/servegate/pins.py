"""Pins: what the suite expects of the fingerprint, row by row."""

from __future__ import annotations

import re
from collections.abc import Mapping

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from servegate.errors import UsageError
from servegate.fingerprint import Fingerprint
from servegate.suggest import did_you_mean
from servegate.verdict import Row, State

_SPECIFIER = re.compile(r"^(?P<name>[^<>=!~]*?)\s*(?P<specifier>[<>=!~].*)$")


def pin_rows(pins: Mapping[str, str], fingerprint: Fingerprint) -> list[Row]:
    """One gating row a pin, with the expected value as base and the found one as head."""
    return [_row(name, expected, fingerprint) for name, expected in sorted(pins.items())]


def matches(expected: str, found: str) -> bool:
    """Is ``found`` what the pin asks for?

    ``servegate 0.1`` holds for ``servegate 0.1`` and ``servegate 0.1.3``, not for ``servegate 0.10``: a
    prefix ends where a version component ends. ``>=2.4,<3`` and ``servegate >=0.1`` are PEP 440 specifiers.
    A version without a name is held against the last word of ``found``. Any other text must be equal.
    """
    specifier = _SPECIFIER.match(expected)
    name, version = _split(found)
    if specifier:
        return specifier["name"] in ("", name) and _satisfies(specifier["specifier"], version)
    wanted_name, wanted_version = _split(expected)
    if not wanted_version:
        return expected == found
    return wanted_name in ("", name) and _is_prefix(wanted_version, version)


def _split(text: str) -> tuple[str, str]:
    """``servegate 0.1.0`` -> its name and its version; text that ends in no version is all name."""
    name, _, last = text.strip().rpartition(" ")
    return (name, last) if re.match(r"v?[0-9]+([.+-].*)?$", last) else (text.strip(), "")


def _is_prefix(wanted: str, version: str) -> bool:
    return version == wanted or (version.startswith(wanted) and version[len(wanted)] in ".+-")


def _satisfies(specifier: str, version: str) -> bool:
    try:
        wanted = SpecifierSet(specifier)
    except InvalidSpecifier:
        raise UsageError(f"pins: {specifier!r} is not a version specifier such as >=2.4,<3") from None
    try:
        return wanted.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def _row(name: str, expected: str, fingerprint: Fingerprint) -> Row:
    known = {_key(k): v for g in _groups(fingerprint) for k, v in g.items()}
    found = known.get(_key(name))
    if found is None or found == "unknown":
        state, reason = State.REGRESSED, f"pinned to {expected}, and the target does not tell its {name}"
        if found is None:
            reason += did_you_mean(name, known)
    elif matches(expected, found):
        state, reason = State.PASS, f"{found} is what the pin asks for"
    else:
        state, reason = State.REGRESSED, f"pinned to {expected}, found {found}"
    return Row(
        workload="",
        metric=f"pin {name}",
        kind="pin",
        unit="",
        better="equal",
        gating=True,
        base=expected,
        head=found,
        tolerance="as pinned",
        state=state,
        reason=reason,
    )


def _groups(fingerprint: Fingerprint) -> tuple[dict[str, str], ...]:
    """In order of rising precedence."""
    return fingerprint.machine, fingerprint.served, fingerprint.software


def _key(name: str) -> str:
    """``model_digest``, ``model digest`` and ``model-digest`` are one name."""
    return re.sub(r"[ _-]+", "_", name.strip().lower())
