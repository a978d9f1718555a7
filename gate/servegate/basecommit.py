"""The base of a pull request: one commit, found in one way, and read from git rather than from the tree.

What decides a verdict (suite, prompts, baselines, policy, pins) is read as the base commit has it, so that a
pull request is judged on what it edits there and never by it.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from servegate.baseline import Baseline
from servegate.errors import UsageError
from servegate.repository import git, root_of, run_git
from servegate.suite.check import require
from servegate.suite.schema import Suite
from servegate.suite.yaml_reader import read_yaml
from servegate.wording import count

_SHA = re.compile(r"[0-9a-f]{40,64}")

SECTIONS: Final = ("policy", "pins", "prices", "quality")
"""Of a suite: what judges. The rest is what is measured, and each arm has its own."""


@dataclass(frozen=True)
class BaseCommit:
    root: Path
    """Top folder of the repository."""
    sha: str
    said: str
    """How it was found, for the report."""

    def git(self, *arguments: str) -> str | None:
        return git(self.root, *arguments)

    def inside(self, path: Path) -> str:
        """The path from the repository's top, as git names it. UsageError where it lies outside."""
        try:
            return path.resolve().relative_to(self.root.resolve()).as_posix()
        except ValueError:
            raise UsageError(
                f"{path}: outside the repository {self.root}, so base has no such file"
            ) from None

    def read(self, path: Path, sha: str | None = None) -> bytes | None:
        """A file as the commit has it, or None."""
        answer = run_git(self.root, "show", f"{sha or self.sha}:{self.inside(path)}")
        return answer.stdout if answer is not None and answer.returncode == 0 else None


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


def suite_at(base: BaseCommit, path: Path) -> Suite | None:
    """The suite file as base has it; None where base has none. UsageError where it is no suite."""
    text = base.read(path)
    if text is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        copy.write_bytes(text)
        return require(Suite, read_yaml(copy))


def judged_by(head: Suite, base: Suite) -> Suite:
    """Head's suite, to be judged as base judges."""
    return head.model_copy(update={section: getattr(base, section) for section in SECTIONS})


def export_baselines(base: BaseCommit, folder: Path, suite: str, into: Path) -> None:
    """The suite's baselines as base has them, under ``into``.

    Timings of a machine that base no longer has come from the nearest ancestor that had them.
    """
    below = base.inside(folder / suite)
    listed = base.git("ls-tree", "-r", "--name-only", base.sha, "--", below) or ""
    found = dict.fromkeys(listed.splitlines(), base.sha)
    deleted = base.git(
        "log", "--format=%H", "--diff-filter=D", "--name-only", base.sha, "--", f"{below}/timing"
    )
    commit = ""
    for line in (deleted or "").split("\n"):  # newest first
        if _SHA.fullmatch(line):
            commit = line
        elif line:
            found.setdefault(line, f"{commit}^")
    for name, sha in found.items():
        content = base.read(base.root / name, sha)
        target = into / suite / Path(name).relative_to(below)
        if content is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)


def baseline_notes(base: BaseCommit, folder: Path, stored: Baseline) -> list[str]:
    """How far the baselines that are used lie behind base, and which of them head edits in vain."""
    lines = []
    for part in stored.parts:
        what = (
            "behaviour baseline" if part is stored.behaviour else f"timing baseline ({stored.hardware_key})"
        )
        sha = part.commit.sha if part.commit is not None else "unknown"
        distance = base.git("rev-list", "--count", f"{sha}..{base.sha}")
        if distance is None:
            lines.append(f"{what}: the commit it was measured at is not in this clone")
        elif distance != "0":
            lines.append(f"{what}: measured {count(int(distance), 'commit')} before base")
    changed = base.git("diff", "--name-only", base.sha, "--", base.inside(folder)) or ""
    lines += [f"edited by head, and judged as the base has it: {name}" for name in changed.splitlines()]
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
