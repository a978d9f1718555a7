"""`servegate ab` with real processes of an engine that answers otherwise in each of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from repositories import CLI_TESTS, commit, git, repository

from servegate.cli.main import exit_code
from servegate.verdict import Row, State, Verdict

SUITE = """\
version: 1
name: support
target: {kind: embedded, model: m}
prompts: {set: prompts.yaml}
workloads:
  behaviour: {kind: closed}
policy:
  completion_tokens: {change: 15%}
  finish_reasons: {equal: true}
"""
ENGINE = """\
import os, random, sys
sys.path.insert(0, {tests!r})
import servegate.targets.base as base
from fake_target import FakeTarget

class Target(FakeTarget):
    def __init__(self, plan):
        super().__init__(plan)
        with open({processes!r}, "ab") as started:
            started.write(b".")
        self.draw = random.Random(os.path.getsize({processes!r}))

    def _request(self, planned):
        self.tokens = round({tokens} * self.draw.uniform(0.95, 1.05))
        return super()._request(planned)

base.open_target = Target
"""
"""Each process draws with a seed of its own: the number of processes so far."""


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = repository(tmp_path / "repo")
    monkeypatch.chdir(root)
    (root / "suite.yaml").write_text(SUITE)
    write_engine(root, 100)
    commit(root, "an engine that varies")
    return root


def write_engine(root: Path, tokens: int) -> None:
    processes = str(root.parent / "processes")
    text = ENGINE.format(tests=CLI_TESTS, processes=processes, tokens=tokens)
    (root / "engine" / "sitecustomize.py").write_text(text)


def ab() -> tuple[int, Row, Verdict]:
    code = exit_code(
        ["ab", "suite.yaml", "--base", "main", "--budget", "10m", "--pythonpath", "engine", "--out", "out"]
    )
    verdict = Verdict.model_validate_json(Path("out/verdict.json").read_text())
    return code, next(r for r in verdict.comparison.rows if r.metric == "completion_tokens"), verdict


def test_longer_answers_of_an_engine_that_varies_are_found_and_explained_from_what_was_saved(
    repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    git(repo, "checkout", "--quiet", "-b", "longer")
    write_engine(repo, 130)
    code, row, verdict = ab()
    assert (code, row.state, row.change) == (1, State.REGRESSED, pytest.approx(0.3, abs=0.03))
    (note,) = [line for line in verdict.comparison.notes if "does not repeat itself" in line]
    assert "over 7 runs of base and 6 of head" in note
    assert len((repo.parent / "processes").read_bytes()) == 13
    assert "completion tokens rose" in capsys.readouterr().out
    assert exit_code(["explain", "out/verdict.json"]) == 0
    assert "the same verdict" in capsys.readouterr().out


@pytest.mark.slow
def test_an_engine_that_varies_passes_against_itself(repo: Path) -> None:
    code, row, _ = ab()
    assert (code, row.state) == (0, State.PASS)
    assert row.base != row.head
