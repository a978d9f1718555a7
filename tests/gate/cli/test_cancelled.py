"""A cancelled CI job sends SIGTERM: real processes, an engine of arithmetic."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from servegate.cli.main import exit_code
from servegate.files import read_record

FAKE = str(Path(__file__).parent)
ENGINE = """\
import os, sys, time
sys.path.insert(0, {fake!r})
import servegate.targets.base as base
from fake_target import FakeTarget

def wait():
    with open({ready!r}, "w") as ready:
        ready.write(".")
    time.sleep(120)

class Target(FakeTarget):
    def measure(self, workload, progress):
        if workload.name == {at!r}:
            wait()
        return super().measure(workload, progress)

def opened(plan):
    if {at!r} == "start":
        wait()
    return Target(plan)

base.open_target = opened
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A suite, and a temporary folder of its own."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.delenv("CI", raising=False)
    assert exit_code(["init", str(tmp_path / "suite")]) == 0
    capsys.readouterr()
    return tmp_path


def cancelled(
    folder: Path, at: str, *command: str, number: signal.Signals = signal.SIGTERM
) -> tuple[int, str]:
    """Exit code and stderr of a command that is sent the signal while it measures ``at``."""
    ready = folder / "ready"
    os.mkfifo(ready)
    (folder / "engine").mkdir()
    engine = ENGINE.format(fake=FAKE, ready=str(ready), at=at)
    (folder / "engine" / "sitecustomize.py").write_text(engine)
    reader = os.open(ready, os.O_RDONLY | os.O_NONBLOCK)
    process = subprocess.Popen(
        [sys.executable, "-m", "servegate", *command],
        env={**os.environ, "PYTHONPATH": str(folder / "engine")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    select.select([reader], [], [], 60)
    os.close(reader)
    process.send_signal(number)
    error = process.communicate(timeout=60)[1]
    return process.returncode, error


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_cancelled_check_leaves_what_it_measured_whole_and_never_passes(
    folder: Path, number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    out = folder / "out"
    command = ("check", str(folder / "suite" / "servegate.yaml"), "--out", str(out))
    assert cancelled(folder, "latency", *command, number=number) == (4, "")
    record = read_record(out / "record.json")
    assert (record.complete, [w.name for w in record.workloads]) == (False, ["behaviour"])
    assert sorted(path.name for path in out.iterdir()) == ["record.json", "suite.json", "verdict.json"]
    assert exit_code(["explain", str(out / "verdict.json")]) == 0
    assert "the same verdict" in capsys.readouterr().out
    assert not list((folder / "tmp").iterdir())


def test_cancelled_before_anything_was_measured_leaves_nothing(folder: Path) -> None:
    out = folder / "out"
    command = ("check", str(folder / "suite" / "servegate.yaml"), "--out", str(out))
    code, error = cancelled(folder, "start", *command)
    assert (code, error.strip()) == (4, "error: interrupted; there is no verdict")
    assert not list(out.iterdir())
    assert not list((folder / "tmp").iterdir())


def test_a_cancelled_update_leaves_the_baselines_alone(folder: Path) -> None:
    suite = folder / "suite" / "servegate.yaml"
    code, error = cancelled(folder, "latency", "baseline", "update", str(suite))
    assert code != 0
    assert "the run was interrupted" in error
    assert not list(folder.rglob("baselines"))


def test_a_cancelled_run_leaves_its_record_marked_incomplete(folder: Path) -> None:
    suite, out = folder / "suite" / "servegate.yaml", folder / "record.json"
    assert cancelled(folder, "latency", "run", str(suite), "--out", str(out))[0] == 4
    assert not read_record(out).complete
