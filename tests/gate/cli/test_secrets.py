"""A key in an answer, an error or a name is in nothing that a command writes, prints or uploads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_target import FakeTarget

from servegate import pipeline
from servegate.cli.main import exit_code
from servegate.errors import MeasurementError
from servegate.masking import ANSWERS_NOTE

TOKEN = "ghp_" + "a1B2" * 9
VALUE = "p4ss/word+of=40"


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """A suite with a baseline, and a head whose longer answers hold two secrets."""
    for name in ("CI", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("BACKEND_PASSWORD", VALUE)
    monkeypatch.setattr(pipeline, "open_target", FakeTarget)
    assert exit_code(["init", str(tmp_path)]) == 0
    file = tmp_path / "servegate.yaml"
    assert exit_code(["baseline", "update", str(file)]) == 0
    text = f"Your key is {TOKEN}, your password {VALUE}."
    monkeypatch.setattr(pipeline, "open_target", lambda plan: FakeTarget(plan, tokens=24, text=text))
    capsys.readouterr()
    return str(file)


def _files(folder: Path) -> Iterator[str]:
    return (path.read_text() for path in folder.rglob("*") if path.is_file())


def test_what_check_saves_holds_no_secret_and_still_gives_its_verdict(
    suite: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert exit_code(["check", suite, "--out", str(out)]) == 1
    said = capsys.readouterr()
    assert f"note: {ANSWERS_NOTE}" in said.out
    record = json.loads((out / "record.json").read_text())
    request = record["workloads"][0]["rounds"][0]["requests"][0]
    assert request["text"] == "Your key is ***, your password ***."
    assert len(request["token_ids"]) == 24
    assert exit_code(["explain", str(out / "verdict.json")]) == 0
    assert exit_code(["report", str(out), "--html", str(out / "r.html"), "--junit", str(out / "r.xml")]) == 0
    shown = [said.out, said.err, *capsys.readouterr(), *_files(out)]
    assert "your password ***" in (out / "r.html").read_text()
    assert not any(secret in text for secret in (TOKEN, VALUE) for text in shown)


def test_a_clean_run_says_nothing_of_secrets(
    suite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "open_target", FakeTarget)
    assert exit_code(["check", suite, "--out", str(tmp_path / "out")]) == 0
    assert "secret" not in (tmp_path / "out" / "record.json").read_text()


def test_what_was_saved_unmasked_is_masked_where_it_is_shown(
    suite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Older files, and files of a machine that does not know this one's secrets."""
    prompts = tmp_path / "prompts.yaml"
    prompts.write_text(f"version: 1\nname: keys\nprompts:\n  - id: {TOKEN}\n    text: hello\n")
    out, markdown = tmp_path / "out", tmp_path / "r.md"
    with monkeypatch.context() as elsewhere:
        elsewhere.delenv("BACKEND_PASSWORD")
        assert exit_code(["check", suite, "--out", str(out)]) == 3
    assert VALUE in (out / "record.json").read_text()
    assert TOKEN in (out / "verdict.json").read_text()
    capsys.readouterr()
    files = [str(next((out / "baselines").rglob("behaviour.json"))), str(out / "record.json")]
    exit_code(["compare", *files, "--suite", suite, "--markdown", str(markdown), "-v"])
    exit_code(["compare", *files, "--suite", suite, "--json"])
    exit_code(["explain", str(out / "verdict.json")])
    exit_code(["report", str(out), "--html", str(tmp_path / "r.html"), "--junit", str(tmp_path / "r.xml")])
    exit_code(["baseline", "update", suite])
    exit_code(["baseline", "show", suite])
    said = capsys.readouterr()
    assert "***" in said.out
    shown = [said.out, said.err, *((tmp_path / name).read_text() for name in ("r.md", "r.html", "r.xml"))]
    assert not any(secret in text for secret in (TOKEN, VALUE) for text in shown)


@pytest.mark.parametrize("error", [MeasurementError, ValueError, OSError])
def test_an_error_line_holds_no_secret(
    suite: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: type[Exception]
) -> None:
    def refuse(plan: object) -> None:
        raise error(f"HTTP 401 for https://someone:{VALUE}@example.org with {TOKEN}")

    monkeypatch.setattr(pipeline, "open_target", refuse)
    monkeypatch.delenv("SERVEGATE_TRACEBACK", raising=False)
    assert exit_code(["check", suite, "--out", str(Path(suite).parent / "out")]) != 0
    said = capsys.readouterr()
    assert "HTTP 401 for https://***@example.org with ***" in said.err
    assert said.err.count("\n") == 1


def test_a_traceback_that_was_asked_for_holds_no_secret(
    suite: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def break_down(plan: object) -> None:
        raise RuntimeError(f"with {TOKEN}")

    monkeypatch.setattr(pipeline, "open_target", break_down)
    monkeypatch.setenv("SERVEGATE_TRACEBACK", "1")
    assert exit_code(["check", suite, "--out", str(Path(suite).parent / "out")]) == 70
    said = capsys.readouterr().err
    assert "RuntimeError: with ***" in said
    assert TOKEN not in said
