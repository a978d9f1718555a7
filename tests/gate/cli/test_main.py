"""Every exception becomes one line on stderr and the exit code of the public table."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from servegate.cli.main import cli, exit_code
from servegate.errors import MeasurementError, NoDataError, UsageError

HEAVY = [
    "torch", "numpy", "scipy", "jinja2", "pydantic", "rich", "github", "yaml", "jsonschema", "matplotlib",
]  # fmt: skip


@pytest.fixture
def failing(monkeypatch):
    """`servegate boom` raises what the test wants."""

    def arrange(error: BaseException) -> None:
        def callback() -> None:
            raise error

        monkeypatch.setitem(cli.commands, "boom", click.Command("boom", callback=callback))

    return arrange


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UsageError("s.yaml:3: unknown key"), 2, "error: s.yaml:3: unknown key\n"),
        (UsageError("a\nb"), 2, "error: a\nerror: b\n"),
        (NoDataError("no baseline"), 3, "error: no baseline\n"),
        (MeasurementError("target is down"), 4, "error: target is down\n"),
        (PermissionError(13, "Permission denied", "/out"), 2, "error: /out: Permission denied\n"),
    ],
)
def test_expected_errors(failing, capsys, error, code, line) -> None:
    failing(error)
    assert exit_code(["boom"]) == code
    out, err = capsys.readouterr()
    assert (out, err) == ("", line)


def test_interrupt_is_no_verdict(failing, capsys) -> None:
    failing(KeyboardInterrupt())
    assert exit_code(["boom"]) == 4
    assert "error: interrupted" in capsys.readouterr().err


def test_internal_error_is_one_line(failing, capsys, monkeypatch) -> None:
    failing(ValueError("odd\nthing"))
    assert exit_code(["boom"]) == 70
    err = capsys.readouterr().err
    assert err.startswith("error: internal: ValueError: odd thing; ")
    assert err.count("\n") == 1
    assert "SERVEGATE_TRACEBACK=1" in err

    monkeypatch.setenv("SERVEGATE_TRACEBACK", "1")
    assert exit_code(["boom"]) == 70
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_hostile_error_text_is_harmless(failing, capsys) -> None:
    failing(UsageError("x\n::error::pwn\x1b[31m\n##[group]y"))
    exit_code(["boom"])
    err = capsys.readouterr().err
    assert all(line.startswith("error: ") for line in err.splitlines())
    assert "\x1b" not in err
    assert "##[" not in err


@pytest.mark.parametrize(
    "args",
    [
        ["nonsense"],
        ["check"],
        ["check", "s.yaml", "--nonsense"],
        ["run", "s.yaml"],
        ["schema", "nonsense"],
        ["compare", "a"],
    ],
)
def test_usage_errors_exit_2(args, capsys) -> None:
    assert exit_code(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_commands_are_the_public_ones() -> None:
    assert set(cli.commands) == {
        "check", "run", "ab", "compare", "explain", "history", "baseline", "post",
        "report", "model", "doctor", "schema", "init",
    }  # fmt: skip


def test_help_and_version_import_nothing_heavy() -> None:
    program = (
        "import sys; from servegate.cli.main import exit_code\n"
        "for args in (['--help'], ['check', '--help'], ['--version']): assert exit_code(args) == 0\n"
        f"print('heavy:', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "heavy: []"
    assert "Exit codes" in done.stdout


def test_closed_pipe_is_quiet_and_keeps_the_exit_code() -> None:
    """The reader is gone before the first byte is written."""
    program = "from servegate.cli import main; main(['schema'])"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", program], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_init_writes_a_suite_once(tmp_path: Path, capsys) -> None:
    assert exit_code(["init", str(tmp_path / "gate")]) == 0
    assert (tmp_path / "gate" / "servegate.yaml").is_file()
    assert "next: " in capsys.readouterr().out
    assert exit_code(["init", str(tmp_path / "gate")]) == 2


@pytest.mark.parametrize("kind", ["suite", "record", "facts", "verdict"])
def test_schema_prints_only_json(kind: str, capsys) -> None:
    import json

    assert exit_code(["schema", kind]) == 0
    assert json.loads(capsys.readouterr().out)["$schema"].startswith("https://json-schema.org")
