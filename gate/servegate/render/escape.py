"""Text from outside (ids, model output, versions, branch names) made safe to show. Hostile until then."""

from __future__ import annotations

import re
import unicodedata

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")
_LINE_BREAKS = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029\t ]+")
_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn"}
"""Controls, bidi and zero-width characters, surrogates, private and unassigned code points."""

_COMMAND = re.compile(r"^((?:\s|\x1b\[[0-9;]*m)*)::", re.MULTILINE)
_OLD_COMMAND = re.compile(r"##(?=(?:vso)?\[)", re.IGNORECASE)

_MARKDOWN_SPECIAL = {ord(c): f"&#{ord(c)};" for c in "&<>\"'|`*_~[]()!\\{}$#"}
_ZERO_WIDTH = "\u200b"
_REFERENCE = re.compile(r"@(?=\S)|#(?=\w)|:(?=//)|www(?=\.)|gh(?=-\d)", re.IGNORECASE)
"""Where GitHub makes a mention, an issue or a web link out of prose: cut open there by an invisible space.
An entity alone does not help, it is decoded before those filters run."""


def clean(text: str, limit: int = 300) -> str:
    """One line of visible characters, at most ``limit`` of them."""
    text = _LINE_BREAKS.sub(" ", _ANSI.sub("", text))
    text = "".join(c for c in text if unicodedata.category(c) not in _INVISIBLE).strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"


def defuse(output: str) -> str:
    """Finished lines of a log in which no CI system can read a command, wherever a long word was broken.

    GitHub takes ``::name::`` after leading blanks and ``##[name]`` anywhere; Azure takes ``##vso[``.
    """
    return _OLD_COMMAND.sub("# #", _COMMAND.sub(r"\1: :", output))


class Markdown(str):
    """Markdown that is finished: written by us, or escaped by one of the two functions below."""


def code(text: str, limit: int = 80) -> Markdown:
    """A name or value in code type: GitHub looks for neither mentions nor links there."""
    text = clean(text, limit)
    if not text or re.search(r"[|`\\]", text):
        # In a code span of a table, neither can be escaped whatever stands before it.
        return Markdown(f"<code>{prose(text, limit)}</code>")
    return Markdown(f"`{text}`")


def prose(text: str, limit: int = 400) -> Markdown:
    """A sentence that may hold words from outside, as plain text. Not for the first place on a line."""
    cut = _REFERENCE.sub(lambda found: found[0] + _ZERO_WIDTH, clean(text, limit))
    return Markdown(cut.translate(_MARKDOWN_SPECIAL))
