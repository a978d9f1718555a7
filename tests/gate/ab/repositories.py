"""Real git repositories with a suite whose engine is arithmetic: code of the arm's own, found by its path."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CLI_TESTS = str(Path(__file__).parent.parent / "cli")
sys.path.insert(0, CLI_TESTS)

from fake_target import FakeTarget as FakeTarget  # noqa: E402  (shared with the tests of the commands)

SUITE = """\
version: 1
name: support
target: {kind: embedded, model: m}
prompts: {set: prompts.yaml}
workloads:
  behaviour: {kind: closed, numerics: reference}
  latency: {kind: closed, numerics: native}
policy:
  completion_tokens: {change: 5%}
  logprob_delta: {max: 1e-6}
  decode_p95: {change: 10%}
"""
PROMPTS = """\
version: 1
name: support
prompts:
  - {id: a, text: "Hello?"}
  - {id: b, text: "Anybody?"}
"""
ENGINE = """\
import sys
sys.path.insert(0, {tests!r})
import servegate.targets.base as base
from fake_target import FakeTarget
gap_ms = {gap_ms}

class Target(FakeTarget):
    def __init__(self, plan):
        super().__init__(plan, gap_ms=gap_ms, tokens={tokens}, text={text!r})

base.open_target = Target
"""


def git(root: Path, *arguments: str) -> str:
    config = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", "-C", str(root), *config, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def write_engine(root: Path, gap_ms: int, tokens: int = 24, text: str = "words") -> None:
    """The arm's own engine, imported before anything else because it is called `sitecustomize`."""
    (root / "engine").mkdir(exist_ok=True)
    (root / "engine" / "sitecustomize.py").write_text(
        ENGINE.format(tests=CLI_TESTS, gap_ms=gap_ms, tokens=tokens, text=text)
    )


def repository(root: Path) -> Path:
    """One commit on `main` with the suite and an engine of 10 ms a token."""
    root.mkdir()
    git(root, "init", "--quiet", "--initial-branch=main")
    (root / "suite.yaml").write_text(SUITE)
    (root / "prompts.yaml").write_text(PROMPTS)
    write_engine(root, 10)
    commit(root, "base")
    return root


def commit(root: Path, message: str) -> str:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", message)
    return git(root, "rev-parse", "HEAD")
