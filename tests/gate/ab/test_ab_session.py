"""`servegate ab` from the command line: real git, real processes, an engine of arithmetic."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from repositories import PROMPTS, SUITE, commit, git, repository, write_engine

from servegate.ab.record import read_ab_record
from servegate.cli.main import exit_code
from servegate.history import courses
from servegate.masking import ANSWERS_NOTE
from servegate.verdict import State, Verdict

OPTIONS = ("--budget", "20s", "--launches", "2", "--pythonpath", "engine", "--out", "out")


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    root = repository(tmp_path / "repo")
    monkeypatch.chdir(root)
    return root


def ab(*arguments: str) -> int:
    return exit_code(["ab", "suite.yaml", *OPTIONS, *arguments])


def stored() -> Verdict:
    return Verdict.model_validate_json(Path("out/verdict.json").read_text())


def test_a_slower_head_is_found_and_explained_from_what_was_saved(
    repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    git(repo, "checkout", "--quiet", "-b", "slower")
    write_engine(repo, 13)
    (repo / "suite.yaml").write_text(SUITE.replace("decode_p95: {change: 10%}", "decode_p95: {change: 90%}"))
    before = git(repo, "status", "--porcelain")
    assert ab("--base", "main", "--json") == 1
    out = capsys.readouterr().out
    row = next(r for r in stored().comparison.rows if r.metric == "decode_p95")
    assert json.loads(out)["exit_code"] == 1
    assert (row.state, row.change) == (State.REGRESSED, pytest.approx(0.3))
    arms = read_ab_record(Path("out/ab.json"))
    assert (arms.base.suite_path, arms.head.suite_path) == ("suite.yaml", "suite.yaml")
    lengths = next(r for r in stored().comparison.rows if r.metric == "completion_tokens")
    assert lengths.state is State.PASS
    notes = "\n".join(stored().comparison.notes)
    assert "edited by head, and judged as the base has it: policy.decode_p95.change: " in notes

    assert exit_code(["explain", "out/verdict.json"]) == 0
    assert "the same verdict" in capsys.readouterr().out
    assert git(repo, "status", "--porcelain") == f"{before}\n?? out/"
    assert not list(Path(tempfile.gettempdir()).iterdir())


def test_the_exact_rows_hold_the_bases_own_answers(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_engine(repo, 10, tokens=30)
    assert ab("--base", "HEAD") == 1
    row = next(r for r in stored().comparison.rows if r.metric == "completion_tokens")
    assert (row.workload, row.base, row.head, row.state) == ("behaviour", 48.0, 60.0, State.REGRESSED)
    assert "completion tokens rose" in capsys.readouterr().out


def test_a_secret_in_an_answer_of_either_arm_is_not_saved(
    repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = "ghp_" + "a1B2" * 9
    write_engine(repo, 10, text=f"It is {token}.")
    assert ab("--base", "HEAD") in (0, 3)
    assert f"note: {ANSWERS_NOTE}" in capsys.readouterr().out
    assert not any(token in path.read_text() for path in Path("out").iterdir())
    assert '"text":"It is ***."' in Path("out/ab.json").read_text()
    assert exit_code(["explain", "out/verdict.json"]) == 0


def test_the_heads_run_is_added_to_a_history(repo: Path) -> None:
    write_engine(repo, 13)
    assert ab("--base", "HEAD", "--history", "history.sqlite") in (0, 1)
    found = {course.metric: course.points for course in courses(Path("history.sqlite"), "support")}
    (point,) = found["decode_p95"]
    assert (point.value, point.dirty, point.sha) == (13.0, True, git(repo, "rev-parse", "HEAD"))
    assert [point.value for point in found["completion_tokens"]] == [48.0] * len(found["completion_tokens"])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "say what to compare with"),
        (("--base", "nowhere"), 2, "no commit 'nowhere' in this clone; fetch it: git fetch origin nowhere"),
        (("--base", "-x"), 2, "'-x' is not the name of a commit"),
        (("--base", "main", "--budget", "5"), 2, "'5' is not a duration such as 90s, 5m or 1h"),
        (("--base", "main", "--budget", "0s"), 2, "'0s' is not a duration"),
        (("--base", "main", "--launches", "1"), 2, "1 is not in the range"),
        (("--base", "main", "--pythonpath", "no/such"), 2, "--pythonpath: no folder 'no/such'"),
        (("--base", "main", "--base-python", "/no/python"), 2, "base: /no/python cannot be run"),
    ],
)
def test_what_cannot_work_is_one_line_and_an_exit_code(
    repo: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, message: str
) -> None:
    assert ab(*arguments) == code
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    assert message in errors[0]


def test_two_interpreters_need_no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "suite.yaml").write_text(SUITE)
    (tmp_path / "prompts.yaml").write_text(PROMPTS)
    write_engine(tmp_path, 10)
    assert ab("--base-python", sys.executable) == 0
    assert "base and head differ in their interpreters" in stored().comparison.notes
    row = next(r for r in stored().comparison.rows if r.metric == "decode_p95")
    assert row.state is State.INCONCLUSIVE  # an engine of arithmetic repeats itself to the nanosecond
    assert "equal in every block" in row.reason


def test_a_suite_that_base_does_not_have_is_no_data(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repo / "new.yaml").write_text(SUITE)
    commit(repo, "new suite")
    assert exit_code(["ab", "new.yaml", *OPTIONS, "--base", "HEAD~1"]) == 3
    assert "has no such suite to compare with" in capsys.readouterr().err


def test_a_broken_suite_of_the_head_is_its_own_fault(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repo / "suite.yaml").write_text(SUITE + "colour: red\n")
    assert ab("--base", "HEAD") == 2
    assert "colour" in capsys.readouterr().err


def test_sigterm_in_the_middle_leaves_no_worktree_and_no_process(repo: Path) -> None:
    ready = repo.parent / "ready"
    os.mkfifo(ready)
    engine = repo / "engine" / "sitecustomize.py"
    engine.write_text(
        f"import os, time\nopen({str(ready)!r}, 'w').write(str(os.getpid()))\ntime.sleep(120)\n"
    )
    reader = os.open(ready, os.O_RDONLY | os.O_NONBLOCK)
    process = subprocess.Popen(
        [sys.executable, "-m", "servegate", "ab", "suite.yaml", *OPTIONS, "--base", "HEAD"],
        stderr=subprocess.PIPE,
        text=True,
    )
    select.select([reader], [], [], 60)
    arm = int(os.read(reader, 100))
    process.send_signal(signal.SIGTERM)
    error = process.communicate()[1]
    assert process.returncode == 4
    assert "interrupted; there is no verdict" in error
    assert not list((repo / "out").iterdir())
    with pytest.raises(ProcessLookupError):
        os.kill(arm, 0)
    assert not list(Path(tempfile.gettempdir()).iterdir())
    assert len(git(repo, "worktree", "list").splitlines()) == 1
