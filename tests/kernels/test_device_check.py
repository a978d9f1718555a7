"""benchmarks/device_check.py as far as a machine with no GPU can take it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "device_check.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_dry_run_measures_and_reports(tmp_path: Path) -> None:
    out = tmp_path / "device.json"
    done = run("--dry-run", "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(out.read_text(encoding="utf-8"))
    assert report["card"] == "none: dry run on the host shim"
    values = {row["what"]: row["value"] for row in report["results"]}
    assert values["attention: alone = batched = one large page"] == "equal"
    assert values["matmul bfloat16: rows alone = in any batch"] == "equal"
    assert values["sampling: alone = batched"] == "equal"
    assert values["sampling: tokens of the host's sampler"] == "equal"
    assert values["engine: tokens with graphs = without"] == "equal"
    for what in ("attention B=1 L=40 block 64, of copy", "write_kv 4096 rows, of copy"):
        assert values[what] > 0
    assert values["engine decode, 2 requests, without graphs"] > 0
    assert all(row["what"] in done.stdout for row in report["results"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_without_a_device_it_says_so_in_one_line(tmp_path: Path) -> None:
    done = run("--out", str(tmp_path / "device.json"))
    assert done.returncode == 2
    assert done.stderr.startswith("device_check: ")
    assert len(done.stderr.splitlines()) == 1
