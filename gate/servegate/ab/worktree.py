"""The base commit's files in a git worktree of their own, in the temporary folder, gone when the run is.

The user's checkout is not switched, and no file in it is written. The folder's name holds the id of the
process it belongs to: what a killed run left behind is removed by the next one.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from servegate.ab.signals import held
from servegate.errors import UsageError
from servegate.repository import git, run_git

PREFIX: Final = "servegate-ab-"
_OWNED = re.compile(rf"{PREFIX}(\d+)-")
ADD_TIMEOUT_S: Final = 600.0


@contextmanager
def worktree(repository: Path, sha: str) -> Iterator[Path]:
    """The files of commit ``sha``, until the block ends in whatever way. UsageError where git refuses."""
    remove_leftovers(repository)
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    tree = folder / "base"
    try:
        _add(repository, tree, sha)
        yield tree
    finally:
        with held():
            _remove(repository, tree)
            shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(repository: Path) -> None:
    """Worktrees, and folders, of runs whose process is gone. Nothing that another tool made is looked at."""
    listed = git(repository, "worktree", "list", "--porcelain") or ""
    for line in listed.splitlines():
        path = Path(line.removeprefix("worktree "))
        if line.startswith("worktree ") and _is_orphan(path.parent.name):
            _remove(repository, path)
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if _is_orphan(folder.name):
            shutil.rmtree(folder, ignore_errors=True)


def _add(repository: Path, tree: Path, sha: str) -> None:
    # No hook: a post-checkout of the user's may install packages or write into the user's checkout.
    command = ("-c", "core.hooksPath=/dev/null", "worktree", "add", "--detach", "--quiet", str(tree), sha)
    answer = run_git(repository, *command, timeout_s=ADD_TIMEOUT_S)
    if answer is None:
        raise UsageError(f"the base's files could not be checked out: git took over {ADD_TIMEOUT_S:.0f} s")
    if answer.returncode != 0:
        lines = answer.stderr.decode("utf-8", "replace").strip().splitlines() or ["git says nothing"]
        raise UsageError(f"the base's files could not be checked out: {lines[-1]}")


def _remove(repository: Path, tree: Path) -> None:
    # Forced twice: once for a tree with changes, once for one that was locked when `add` was killed.
    run_git(repository, "worktree", "remove", "--force", "--force", str(tree), timeout_s=ADD_TIMEOUT_S)


def _is_orphan(name: str) -> bool:
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
