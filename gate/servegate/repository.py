"""What git says of the code that is measured."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from servegate.record import Commit, plain_path

_OF_ONE_CALL: Final = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR")
"""Set where a git hook calls us: they would lead every git command to that call's repository and index."""


def commit_of(directory: Path) -> Commit | None:
    """The commit checked out around ``directory``; None without a repository, git or commits."""
    sha = git(directory, "rev-parse", "--verify", "HEAD")
    if sha is None:
        return None
    changes = git(directory, "status", "--porcelain", "--untracked-files=no")
    return Commit(sha=sha, dirty=bool(changes))


def root_of(directory: Path) -> Path | None:
    """The top folder of the repository around ``directory``, or None."""
    top = git(directory, "rev-parse", "--show-toplevel")
    return Path(top) if top else None


def path_in_repository(file: Path) -> str | None:
    """As it is typed in the repository's top folder; None outside of one, or where it cannot be shown."""
    root = root_of(file.parent) if file.parent.is_dir() else None
    if root is None or not file.resolve().is_relative_to(root.resolve()):
        return None
    try:
        return plain_path(file.resolve().relative_to(root.resolve()).as_posix())
    except ValueError:
        return None


def git(directory: Path, *arguments: str, timeout_s: float = 30) -> str | None:
    """What a git command that reads says, stripped; None where it fails or there is no git."""
    answer = run_git(directory, *arguments, timeout_s=timeout_s)
    if answer is None or answer.returncode != 0:
        return None
    return answer.stdout.decode("utf-8", "replace").strip()


def run_git(
    directory: Path, *arguments: str, timeout_s: float = 30
) -> subprocess.CompletedProcess[bytes] | None:
    """A git command in ``directory``; None without git, or where it took longer than ``timeout_s``."""
    environment = {name: value for name, value in os.environ.items() if name not in _OF_ONE_CALL}
    try:
        return subprocess.run(
            ["git", "-C", str(directory), *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=timeout_s,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
