"""The base of a pull request: found as the merge base, read from git, never from the tree."""

from __future__ import annotations

from pathlib import Path

import pytest
from repositories import SUITE, FakeTarget, commit, git, repository

from servegate import pipeline
from servegate.basecommit import edits, find_base, judged_by, suite_at
from servegate.bundle import recompute
from servegate.cli.main import exit_code
from servegate.errors import UsageError
from servegate.verdict import State, Verdict


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`main` has gone on since `change`, which is checked out, left it."""
    root = repository(tmp_path / "repo")
    git(root, "checkout", "--quiet", "-b", "change")
    (root / "change").touch()
    commit(root, "change")
    git(root, "checkout", "--quiet", "main")
    (root / "later").touch()
    commit(root, "later")
    git(root, "checkout", "--quiet", "change")
    monkeypatch.chdir(root)
    for name in ("CI", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return root


def test_the_base_is_where_head_left_the_branch_and_not_its_tip(repo: Path) -> None:
    """open-gsd/gsd-core#2857, godatadriven/dbt-bouncer#645: always the merge base."""
    found = find_base(repo, "main")
    assert found.sha == git(repo, "rev-parse", "main~1")
    assert found.said == f"{found.sha[:12]}, where HEAD left main"
    assert find_base(repo / "engine", found.sha[:10]).said == found.sha[:12]


def test_pushing_a_regression_twice_does_not_move_the_base(repo: Path) -> None:
    before = find_base(repo, "main").sha
    (repo / "change").write_text("again")
    commit(repo, "again")
    assert find_base(repo, "main").sha == before


def test_a_branch_that_was_only_fetched_is_found(repo: Path, tmp_path: Path) -> None:
    """What a CI checkout of a pull request has: a detached HEAD, and `origin/main` alone."""
    git(tmp_path, "clone", "--quiet", str(repo), "clone")
    clone = tmp_path / "clone"
    git(clone, "checkout", "--quiet", "--detach")
    git(clone, "branch", "--delete", "--force", "change")
    assert find_base(clone, "main").sha == git(repo, "rev-parse", "main~1")


def test_a_shallow_clone_is_told_what_to_fetch(repo: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", "--depth=1", "--no-single-branch", f"file://{repo}", "shallow")
    shallow = tmp_path / "shallow"
    with pytest.raises(UsageError, match=r"shallow.*git fetch --unshallow origin.*fetch-depth: 0"):
        find_base(shallow, "main")
    with pytest.raises(UsageError, match=r"no commit 'v1'.*git fetch origin v1.*--unshallow"):
        find_base(shallow, "v1")
    git(shallow, "fetch", "--quiet", "--unshallow", "origin")
    assert find_base(shallow, "main").sha == git(repo, "rev-parse", "main~1")


def test_unrelated_histories_have_no_base(repo: Path) -> None:
    git(repo, "checkout", "--quiet", "--orphan", "other")
    commit(repo, "unrelated")
    with pytest.raises(UsageError, match="main and HEAD have no common commit: they are unrelated histories"):
        find_base(repo, "main")


def test_where_there_is_no_repository_or_no_commit_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not inside a git repository"):
        find_base(tmp_path, "main")
    git(tmp_path, "init", "--quiet")
    with pytest.raises(UsageError, match="no commit yet"):
        find_base(tmp_path, "main")


def test_the_suite_is_read_as_base_has_it(repo: Path) -> None:
    (repo / "suite.yaml").write_text(SUITE.replace("10%", "50%"))
    base = find_base(repo, "main")
    found = suite_at(base, repo / "suite.yaml")
    assert found is not None
    assert found.policy.rules["decode_p95"].change == pytest.approx(0.1)
    assert suite_at(base, repo / "other.yaml") is None
    with pytest.raises(UsageError, match="outside the repository"):
        suite_at(base, repo.parent / "suite.yaml")


def test_edits_of_what_judges_are_listed_and_not_followed(repo: Path) -> None:
    base = find_base(repo, "main")
    old = suite_at(base, repo / "suite.yaml")
    assert old is not None
    policy = old.policy.model_copy(update={"inconclusive": "fail"})
    new = old.model_copy(update={"policy": policy, "pins": {"engine": "servegate 9"}})
    assert edits(old, new) == [
        "edited by head, and judged as the base has it: policy.inconclusive: none -> fail",
        "edited by head, and judged as the base has it: pins.engine: none -> servegate 9",
    ]
    assert judged_by(new, old) == old
    assert edits(old, old) == []


# --- check --base


@pytest.fixture
def baselined(repo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """Baselines are on `main`, committed before `change` left it."""
    answers(monkeypatch, tokens=24)
    git(repo, "checkout", "--quiet", "-B", "main", "main~1")
    assert exit_code(["baseline", "update", "suite.yaml"]) == 0
    commit(repo, "baselines")
    git(repo, "checkout", "--quiet", "-b", "tuned")
    capsys.readouterr()
    return repo


def answers(monkeypatch: pytest.MonkeyPatch, tokens: int, machine: str = "a") -> None:
    monkeypatch.setattr(
        pipeline, "open_target", lambda plan: FakeTarget(plan, tokens=tokens, machine=machine)
    )


def check(*arguments: str) -> int:
    return exit_code(["check", "suite.yaml", "--out", "out", *arguments])


def stored() -> Verdict:
    return Verdict.model_validate_json(Path("out/verdict.json").read_text())


def test_a_pull_request_that_edits_baseline_and_policy_is_judged_by_the_base(
    baselined: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, tokens=48)
    assert exit_code(["baseline", "update", "suite.yaml"]) == 0
    Path("suite.yaml").write_text(SUITE.replace("completion_tokens: {change: 5%}", "error_rate: {max: 0}"))
    assert check() == 0  # by its own baseline and policy it looks fine
    assert check("--base", "main") == 1
    rows = {row.metric: row for row in stored().comparison.rows if row.workload == "behaviour"}
    assert (rows["completion_tokens"].state, rows["completion_tokens"].base) == (State.REGRESSED, 48.0)
    notes = "\n".join(stored().comparison.notes)
    assert "judged as the base has it: policy.completion_tokens.change: 5% -> none" in notes
    assert "judged as the base has it: policy.error_rate.max" in notes
    assert "judged as the base has it: baselines/support/behaviour.json" in notes
    assert recompute(Path("out/verdict.json")).holds


def test_the_baselines_distance_is_said(baselined: Path) -> None:
    git(baselined, "checkout", "--quiet", "main")
    Path("later").touch()
    commit(baselined, "later")
    assert check("--base", "HEAD") == 0
    assert any("behaviour baseline: measured 2 commits before base" in n for n in stored().comparison.notes)


def test_timings_of_this_machine_come_from_the_nearest_ancestor_that_had_them(
    baselined: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in Path("baselines/support/timing").iterdir():
        path.unlink()
    commit(baselined, "timings of another machine only")
    answers(monkeypatch, tokens=24)
    assert check() == 0
    assert all(row.base is None for row in stored().comparison.rows if row.metric == "decode_p95")
    assert check("--base", "HEAD") == 0
    row = next(r for r in stored().comparison.rows if r.metric == "decode_p95" and r.workload == "latency")
    assert row.base == pytest.approx(10)


def test_a_suite_that_base_does_not_have_is_judged_by_its_own_and_said(baselined: Path) -> None:
    Path("new.yaml").write_text(SUITE.replace("name: support\ntarget", "name: new\ntarget"))
    assert exit_code(["check", "new.yaml", "--out", "out", "--base", "main"]) == 3
    assert "base has no such suite" in stored().comparison.notes
