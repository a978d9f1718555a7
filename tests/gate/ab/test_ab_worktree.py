"""Real git, real signals: nothing outlives the run, and the checkout is not touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from repositories import commit, git, repository

from servegate.ab.worktree import KIND, remove_left_worktrees, worktree
from servegate.errors import UsageError
from servegate.temporary import owned_folder, prefix

HOLDS = """\
import sys
from pathlib import Path
from servegate.signals import ending_in_order
from servegate.ab.worktree import worktree
try:
    with ending_in_order(), worktree(Path(sys.argv[1]), sys.argv[2]) as tree:
        print(tree, flush=True)
        {then}
except KeyboardInterrupt:
    sys.exit(9)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder of the test's own, for this process and those that it starts."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = repository(tmp_path / "repo")
    (root / "suite.yaml").write_text("version: 2\n")
    commit(root, "head")
    (root / "prompts.yaml").write_text("edited, not committed\n")
    (root / "untracked").touch()
    return root


def state(root: Path) -> tuple[str, ...]:
    return (git(root, "status", "--porcelain"), git(root, "rev-parse", "HEAD"), git(root, "branch"))


def test_the_base_is_checked_out_elsewhere_and_the_checkout_stays(repo: Path, temporary: Path) -> None:
    before = state(repo)
    with worktree(repo, git(repo, "rev-parse", "HEAD~1")) as tree:
        assert (tree / "suite.yaml").read_text().startswith("version: 1")
        assert tree.parent.parent == temporary
        assert state(repo) == before
    assert not list(temporary.iterdir())
    assert len(git(repo, "worktree", "list").splitlines()) == 1
    assert state(repo) == before


def test_it_goes_away_with_files_in_it_and_after_an_error(repo: Path, temporary: Path) -> None:
    tree = worktree(repo, "HEAD")
    (tree.__enter__() / "left.log").touch()
    assert not tree.__exit__(RuntimeError, RuntimeError(), None)
    assert not list(temporary.iterdir())


def test_a_commit_that_is_not_there_is_a_usage_error_and_leaves_nothing(repo: Path, temporary: Path) -> None:
    with pytest.raises(UsageError, match="could not be checked out"), worktree(repo, "0" * 40):
        pass
    assert not list(temporary.iterdir())


def test_no_hook_of_the_user_runs(repo: Path, tmp_path: Path) -> None:
    hook = repo / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    with worktree(repo, "HEAD"):
        assert not (tmp_path / "ran").exists()


def test_a_call_from_inside_a_git_hook_leaves_the_users_index_alone(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (repo / ".git" / "index").read_bytes()
    monkeypatch.setenv("GIT_INDEX_FILE", str(repo / ".git" / "index"))
    monkeypatch.setenv("GIT_DIR", str(repo / ".git"))
    with worktree(repo, "HEAD~1"):
        assert (repo / ".git" / "index").read_bytes() == before


def hold(repo: Path, then: str) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS.format(then=then), str(repo), "HEAD~1"],
        stdout=subprocess.PIPE,
        text=True,
    )
    if process.stdout is None:
        raise RuntimeError("no stdout")
    return process, Path(process.stdout.readline().strip())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_removes_it(repo: Path, temporary: Path, number: signal.Signals) -> None:
    process, tree = hold(repo, "import time; time.sleep(60)")
    assert tree.is_dir()
    process.send_signal(number)
    process.communicate()
    assert process.returncode == 9
    assert not list(temporary.iterdir())
    assert len(git(repo, "worktree", "list").splitlines()) == 1


def test_a_crash_removes_it(repo: Path, temporary: Path) -> None:
    process, _ = hold(repo, "raise ValueError")
    process.communicate()
    assert not list(temporary.iterdir())


def test_what_a_killed_run_left_is_removed_by_the_next_one(repo: Path, temporary: Path) -> None:
    process, tree = hold(repo, "import time; time.sleep(60)")
    process.kill()
    process.communicate()
    assert tree.is_dir()
    with worktree(repo, "HEAD"):
        assert not tree.exists()
        assert len(git(repo, "worktree", "list").splitlines()) == 2
    assert not list(temporary.iterdir())


def test_a_worktree_that_was_locked_when_its_run_was_killed_is_removed_too(
    repo: Path, temporary: Path
) -> None:
    process, tree = hold(repo, "import time; time.sleep(60)")
    git(repo, "worktree", "lock", str(tree))
    process.kill()
    process.communicate()
    remove_left_worktrees(repo)
    assert not tree.exists()


def test_other_worktrees_and_running_runs_are_left_alone(repo: Path, temporary: Path) -> None:
    git(repo, "worktree", "add", "--detach", str(temporary / "mine"), "HEAD")
    gone = temporary / "unmounted"
    git(repo, "worktree", "add", "--detach", str(gone), "HEAD")
    git(repo, "worktree", "lock", str(gone))
    running, notes = temporary / f"{prefix(KIND)}{os.getpid()}-running", temporary / f"{prefix(KIND)}notes"
    for folder in (running, notes):
        folder.mkdir()
    with worktree(repo, "HEAD"):
        assert len(git(repo, "worktree", "list").splitlines()) == 4
    assert running.is_dir()
    assert notes.is_dir()


def test_other_folders_of_a_killed_run_go_the_same_way(temporary: Path) -> None:
    """Such as the baselines that `check --base` reads from the base commit."""
    code = (
        "import os\nfrom servegate.temporary import owned_folder\nwith owned_folder('base'):\n"
        "    os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", code], check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = temporary.iterdir()
    with owned_folder("logs"):
        assert left.is_dir()  # of another kind
    with owned_folder("base") as folder:
        assert list(temporary.iterdir()) == [folder]
    assert not list(temporary.iterdir())
