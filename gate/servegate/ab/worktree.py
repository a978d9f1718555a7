"""The base commit's files in a git worktree of their own, in the temporary folder, gone when the run is.

The user's checkout is not switched, and no file in it is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from servegate.errors import UsageError
from servegate.repository import git, run_git
from servegate.signals import held
from servegate.temporary import is_leftover, owned_folder

KIND: Final = "ab"
ADD_TIMEOUT_S: Final = 600.0


@contextmanager
def worktree(repository: Path, sha: str) -> Iterator[Path]:
    """The files of commit ``sha``, until the block ends in whatever way. UsageError where git refuses."""
    remove_left_worktrees(repository)
    with owned_folder(KIND) as folder:
        tree = folder / "base"
        try:
            _add(repository, tree, sha)
            yield tree
        finally:
            with held():
                _remove(repository, tree)


def remove_left_worktrees(repository: Path) -> None:
    """Worktrees of runs whose process is gone, before their folders: git would go on listing them."""
    listed = git(repository, "worktree", "list", "--porcelain") or ""
    for line in listed.splitlines():
        path = Path(line.removeprefix("worktree "))
        if line.startswith("worktree ") and is_leftover(path.parent.name):
            _remove(repository, path)


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
