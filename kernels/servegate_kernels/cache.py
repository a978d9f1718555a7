"""Compiled kernels, kept in the user's cache folder: each is made once, whoever needs it first."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def cache_folder() -> Path:
    """``$SERVEGATE_CACHE_DIR``, else ``servegate`` in the user's cache folder."""
    chosen = os.environ.get("SERVEGATE_CACHE_DIR")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "servegate"


def made_once(kind: str, ingredients: object, make: Callable[[Path], None]) -> Path:
    """A folder that ``make`` has filled, under ``kind`` in the cache.

    ingredients: everything that determines the result; its ``repr`` names the folder. ``make`` gets an empty
    folder, which is moved into place once it returns; if it raises, nothing is kept.
    """
    key = hashlib.sha256(repr(ingredients).encode()).hexdigest()[:24]
    parent = cache_folder() / kind
    target = parent / key
    parent.mkdir(parents=True, exist_ok=True)
    with (parent / f"{key}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # parallel processes wait for one build
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=parent) as scratch:
                fresh = Path(scratch) / key
                fresh.mkdir()
                make(fresh)
                fresh.replace(target)
    return target
