"""`--history`: every run can be added to a history, and none depends on it."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_target import FakeTarget

from servegate import pipeline
from servegate.cli.main import exit_code
from servegate.history import courses


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(pipeline, "open_target", FakeTarget)
    monkeypatch.chdir(tmp_path)
    assert exit_code(["init", "support"]) == 0
    return "support/servegate.yaml"


def test_check_and_update_add_to_a_history(suite: str, tmp_path: Path) -> None:
    history = tmp_path / "history.sqlite"
    assert exit_code(["baseline", "update", suite, "--reason", "first", "--history", str(history)]) == 0
    assert exit_code(["check", suite, "--history", str(history)]) == 0
    points = next(c for c in courses(history, "support") if c.metric == "completion_tokens").points
    assert [point.accepted for point in points] == ["first", None]


def test_a_history_that_cannot_be_written_changes_no_verdict(
    suite: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["baseline", "update", suite]) == 0
    assert exit_code(["check", suite, "--history", str(tmp_path)]) == 0
    assert "warning: " in capsys.readouterr().err
