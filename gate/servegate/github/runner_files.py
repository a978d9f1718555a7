"""What a step leaves for the runner: its summary page and its outputs. Works with no token at all."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

MAX_SUMMARY: Final = 900_000
"""Over 1 MiB GitHub drops the whole summary of a step."""


def summary_room(environment: Mapping[str, str]) -> int:
    """Bytes that may still be added to the step summary; 0 without one."""
    path = environment.get("GITHUB_STEP_SUMMARY")
    if not path:
        return 0
    file = Path(path)
    return max(0, MAX_SUMMARY - (file.stat().st_size if file.exists() else 0))


def append_summary(environment: Mapping[str, str], text: str) -> None:
    path = environment.get("GITHUB_STEP_SUMMARY")
    if path:
        _append(Path(path), text.rstrip("\n") + "\n\n")


def write_outputs(environment: Mapping[str, str], outputs: Mapping[str, str]) -> None:
    """A delimiter that no text can know beforehand: a fixed one ends where the text says so."""
    path = environment.get("GITHUB_OUTPUT")
    if not path:
        return
    for name, value in outputs.items():
        delimiter = f"servegate-{secrets.token_hex(16)}"
        _append(Path(path), f"{name}<<{delimiter}\n{value}\n{delimiter}\n")


def _append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8", errors="replace", newline="\n") as file:
        file.write(text)
