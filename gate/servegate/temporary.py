"""Temporary folders that do not outlive their run: what a killed run left is removed by the next one.

A folder's name holds the id of the process that it belongs to. No other tool's folders are looked at.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servegate.signals import held

_OWNED = re.compile(r"servegate-[a-z]+-(\d+)-")


@contextmanager
def owned_folder(kind: str) -> Iterator[Path]:
    """An empty folder until the block ends in whatever way; leftovers of the same kind go first."""
    remove_leftovers(kind)
    folder = Path(tempfile.mkdtemp(prefix=f"{prefix(kind)}{os.getpid()}-"))
    try:
        yield folder
    finally:
        with held():
            shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(kind: str) -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix(kind)}*"):
        if is_leftover(folder.name):
            shutil.rmtree(folder, ignore_errors=True)


def prefix(kind: str) -> str:
    return f"servegate-{kind}-"


def is_leftover(name: str) -> bool:
    """Does a folder of this name belong to a run whose process is gone?"""
    owner = _OWNED.match(name)
    if owner is None:
        return False
    try:
        os.kill(int(owner[1]), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # alive, and another user's
    return False
