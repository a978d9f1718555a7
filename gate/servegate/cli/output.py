"""Where a command's words go: results to stdout, everything else to stderr, both safe to read in a log.

Secrets are masked here, and so in every command. A verdict is masked before it is laid out: a line that is
broken in the middle of a key hides it from any pattern, not from a reader.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from servegate.masking import Secrets
    from servegate.render.terminal import Next, Style
    from servegate.verdict import Verdict

LOG_WIDTH = 120


def wants_colour(stream: TextIO) -> bool:
    """NO_COLOR wins over FORCE_COLOR, both over TERM, and all of them over the tty."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def style() -> Style:
    """Width and colour of stdout. A log has a fixed width, so that two runs read alike."""
    from servegate.render.terminal import Style

    width = max(shutil.get_terminal_size().columns, 60) if sys.stdout.isatty() else LOG_WIDTH
    return Style(width, wants_colour(sys.stdout))


def known_secrets() -> Secrets:
    """Of the environment that the command runs in."""
    from servegate.masking import Secrets

    return Secrets.of(os.environ)


def emit(text: str) -> None:
    """Write a result to stdout. A reader that went away ends the text, never the exit code."""
    stream = sys.stdout
    try:
        stream.write(_encodable(known_secrets().mask(text), stream))
        stream.flush()
    except BrokenPipeError:
        _silence(stream)


def say(text: str) -> None:
    """One line on stderr."""
    from servegate.render.escape import clean, defuse

    try:
        sys.stderr.write(_encodable(defuse(clean(known_secrets().mask(text), 2000)) + "\n", sys.stderr))
        sys.stderr.flush()
    except BrokenPipeError:
        _silence(sys.stderr)


def complain(message: str, code: int) -> int:
    """One line for each fault, and the code to exit with."""
    for line in message.splitlines() or [""]:
        say(f"error: {line}")
    return int(code)


def flush() -> None:
    """At exit, where Python itself would report a closed pipe and change the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            _silence(stream)


def tell(
    verdict: Verdict,
    *,
    as_json: bool,
    verbose: bool,
    follow: Next | None = None,
    markdown: Path | None = None,
) -> int:
    """Show a verdict and return its exit code. It stands, whatever happens to the files."""
    from servegate.masking import masked
    from servegate.render import json, terminal

    verdict = masked(verdict, known_secrets())
    if as_json:
        emit(json.render(verdict))
    else:
        emit(terminal.render(verdict, style(), everything=verbose, follow=follow or terminal.Next()))
    if markdown:
        return write_beside(verdict, markdown, follow)
    return verdict.exit_code


def write_beside(verdict: Verdict, path: Path, follow: Next | None) -> int:
    """Write the Markdown report; a failure to write counts only where the verdict is a pass."""
    from servegate.render import markdown

    text = markdown.render(verdict, suite=follow.suite if follow else None)
    try:
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        if verdict.exit_code == 0:
            raise
        say(f"error: {path}: {error.strerror or error}")
    return verdict.exit_code


def _encodable(text: str, stream: TextIO) -> str:
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)


def _silence(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
