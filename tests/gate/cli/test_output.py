"""Colour, encodings, and files that cannot be written."""

import io
import json
import sys

import pytest

from servegate.cli import output
from servegate.verdict import Comparison, Outcome, Verdict


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "stream", "colour"),
    [
        ({}, Tty(), True),
        ({}, io.StringIO(), False),
        ({"TERM": "dumb"}, Tty(), False),
        ({"NO_COLOR": "1"}, Tty(), False),
        ({"NO_COLOR": ""}, Tty(), True),
        ({"FORCE_COLOR": "1"}, io.StringIO(), True),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, io.StringIO(), True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, Tty(), False),
    ],
)
def test_colour(environment, stream, colour, monkeypatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert output.wants_colour(stream) is colour


@pytest.fixture
def verdict():
    def make(outcome: Outcome, code: int) -> Verdict:
        comparison = Comparison(suite="s", rows=())
        return Verdict(suite="s", outcome=outcome, exit_code=code, headline="→ FAIL", comparison=comparison)

    return make


def test_json_is_all_that_stdout_gets(verdict, capsys) -> None:
    told = verdict(Outcome.REGRESSED, 1)
    assert output.tell(told, as_json=True, verbose=True) == 1
    out, err = capsys.readouterr()
    assert Verdict.model_validate(json.loads(out)) == told
    assert err == ""


def test_a_stream_that_cannot_say_it_shows_a_question_mark(verdict, monkeypatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    output.tell(verdict(Outcome.REGRESSED, 1), as_json=False, verbose=False)
    stream.flush()
    assert stream.buffer.getvalue().startswith(b"? FAIL\n")


def test_regression_wins_over_a_report_that_cannot_be_written(verdict, tmp_path, capsys) -> None:
    nowhere = tmp_path / "missing" / "report.md"
    assert output.tell(verdict(Outcome.REGRESSED, 1), as_json=True, verbose=False, markdown=nowhere) == 1
    assert f"error: {nowhere}: No such file" in capsys.readouterr().err
    with pytest.raises(FileNotFoundError):
        output.tell(verdict(Outcome.PASS, 0), as_json=True, verbose=False, markdown=nowhere)


def test_markdown_file_is_written(verdict, tmp_path) -> None:
    report = tmp_path / "report.md"
    output.tell(verdict(Outcome.PASS, 0), as_json=True, verbose=False, markdown=report)
    assert report.read_text(encoding="utf-8").startswith("### ✅ ")
