"""The base of a pull request: one commit, found in one way, and read from git rather than from the tree.

What decides a verdict (suite, prompts, baselines, policy, pins) is read as the base commit has it, so that a
pull request is judged on what it edits there and never by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from servegate.errors import UsageError
from servegate.repository import git, root_of
from servegate.suite.schema import Suite

SECTIONS: Final = ("policy", "pins", "prices", "quality")
"""Of a suite: what judges. The rest is what is measured, and each arm has its own."""


@dataclass(frozen=True)
class BaseCommit:
    root: Path
    """Top folder of the repository."""
    sha: str
    said: str
    """How it was found, for the report."""


def find_base(directory: Path, reference: str) -> BaseCommit:
    """The merge base of ``reference`` and HEAD, in the repository around ``directory``.

    The merge base and not the tip: what landed on the base branch meanwhile is not this pull request's doing.
    Raises UsageError that says what to fetch where this clone does not hold it.
    """
    root = root_of(directory)
    if root is None:
        raise UsageError(
            f"{directory}: not inside a git repository, so there is no base commit; see --base-python"
        )
    if git(root, "rev-parse", "--verify", "--quiet", "HEAD") is None:
        raise UsageError(f"{root}: the repository has no commit yet, so there is no base to compare with")
    tip = _commit(root, reference)
    if tip is None:
        raise UsageError(
            f"no commit {reference!r} in this clone; fetch it: git fetch origin {reference}"
            f"{_if_shallow(root, ', and all of its history: git fetch --unshallow origin')}"
        )
    sha = git(root, "merge-base", tip, "HEAD")
    if not sha:
        shallow = _if_shallow(
            root,
            "this clone is shallow and does not hold the commit where they part; fetch the history: "
            "git fetch --unshallow origin (actions/checkout: fetch-depth: 0)",
        )
        raise UsageError(
            f"{reference} and HEAD have no common commit: {shallow or 'they are unrelated histories'}"
        )
    short = sha[:12]
    return BaseCommit(root, sha, short if sha == tip else f"{short}, where HEAD left {reference}")


def edits(base: Suite, head: Suite) -> list[str]:
    """What the head's suite says otherwise of how it is to be judged: shown, and not followed."""
    lines: list[str] = []
    for section in SECTIONS:
        old, new = (
            suite.model_dump(mode="json", exclude_defaults=True).get(section) for suite in (base, head)
        )
        for key, before, after in _differences(section, old, new):
            lines.append(f"edited by head, and judged as the base has it: {key}: {before} -> {after}")
    return lines


def _commit(root: Path, reference: str) -> str | None:
    """The commit that a name stands for; a branch that was fetched and never checked out counts."""
    if reference.startswith("-"):
        raise UsageError(f"{reference!r} is not the name of a commit")
    for name in (reference, f"refs/remotes/origin/{reference}"):
        sha = git(root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        if sha:
            return sha
    return None


def _if_shallow(root: Path, text: str) -> str:
    return text if git(root, "rev-parse", "--is-shallow-repository") == "true" else ""


def _differences(key: str, old: Any, new: Any) -> list[tuple[str, str, str]]:
    if old == new:
        return []
    if isinstance(old, dict) or isinstance(new, dict):
        one, other = (value if isinstance(value, dict) else {} for value in (old, new))
        names = sorted({*one, *other})
        return [d for name in names for d in _differences(f"{key}.{name}", one.get(name), other.get(name))]
    before, after = ("none" if value is None else str(value) for value in (old, new))
    return [(key, before, after)]
