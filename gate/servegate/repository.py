"""What git says of the code that is measured."""

from __future__ import annotations

import subprocess
from pathlib import Path

from servegate.record import Commit


def commit_of(directory: Path) -> Commit | None:
    """The commit checked out around ``directory``; None without a repository, git or commits."""
    sha = _git(directory, "rev-parse", "--verify", "HEAD")
    if sha is None:
        return None
    changes = _git(directory, "status", "--porcelain", "--untracked-files=no")
    return Commit(sha=sha, dirty=bool(changes))


def root_of(directory: Path) -> Path | None:
    """The top folder of the repository around ``directory``, or None."""
    top = _git(directory, "rev-parse", "--show-toplevel")
    return Path(top) if top else None


def _git(directory: Path, *arguments: str) -> str | None:
    try:
        answer = subprocess.run(
            ["git", "-C", str(directory), *arguments], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
