"""`servegate compare` on two files of `pytest --benchmark-json`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from servegate.cli.main import exit_code


def document(path: Path, *, cpu: str = "A", **medians_s: float) -> str:
    """A file of pytest-benchmark 5.3, reduced to what is read."""
    entries = [{"fullname": name, "stats": _stats(median)} for name, median in medians_s.items()]
    machine = {"system": "Linux", "machine": "x86_64", "cpu": {"brand_raw": cpu, "count": 4}}
    path.write_text(json.dumps({"machine_info": machine, "benchmarks": entries}))
    return str(path)


def _stats(median: float) -> dict[str, object]:
    data = [median * (1 + share / 1000) for share in range(-10, 11)]
    return {"median": median, "rounds": len(data), "data": data}


@pytest.mark.parametrize(
    ("head", "options", "code", "headline"),
    [
        ({"a": 0.0101, "b": 0.02}, ("--change", "50%"), 0, "PASS: "),
        ({"a": 0.03, "b": 0.02}, (), 1, "FAIL: time p50 "),
        ({"a": 0.03, "b": 0.02}, ("--change", "900%"), 0, "PASS: "),
        ({"a": 0.03, "b": 0.02}, ("--floor", "1s"), 0, "PASS: "),
        ({"a": 0.01}, (), 3, "NO COMPARABLE DATA: b"),
        ({"c": 0.01}, (), 3, "NO COMPARABLE DATA: "),
        ({}, (), 3, "NO COMPARABLE DATA: "),
    ],
    ids=["equal", "slower", "allowed", "under the floor", "vanished", "no overlap", "empty"],
)
def test_benchmarks_are_judged_by_change_and_floor(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    head: dict[str, float],
    options: tuple[str, ...],
    code: int,
    headline: str,
) -> None:
    files = [document(tmp_path / "base.json", a=0.01, b=0.02), document(tmp_path / "head.json", **head)]
    report = tmp_path / "report.md"
    assert exit_code(["compare", *files, *options, "--markdown", str(report)]) == code
    assert capsys.readouterr().out.startswith(headline)
    assert "servegate baseline update" not in report.read_text(encoding="utf-8")


def test_two_empty_files_are_not_green(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [document(tmp_path / "base.json"), document(tmp_path / "head.json", cpu="B")]
    assert exit_code(["compare", *files]) == 3
    assert "nothing was compared" in capsys.readouterr().out


def test_what_is_judged_can_be_read_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [document(tmp_path / "base.json", a=0.01), document(tmp_path / "head.json", cpu="B", a=0.01)]
    assert exit_code(["compare", *files, "--json"]) == 3
    (row,) = json.loads(capsys.readouterr().out)["comparison"]["rows"]
    assert (row["workload"], row["state"]) == ("a", "not comparable")


@pytest.mark.parametrize(
    ("base", "head", "options", "message"),
    [
        ("bench.json", "record.json", (), "record.json: not a pytest-benchmark file, and the other one is"),
        ("record.json", "bench.json", (), "record.json: not a pytest-benchmark file, and the other one is"),
        ("bench.json", "gone.json", (), "gone.json: not a pytest-benchmark file, and the other one is"),
        ("bench.json", "bench.json", (), "the same file as"),
        ("bench.json", "other.json", ("--suite", "s.yaml"), "--suite has no rule for pytest-benchmark files"),
        ("bench.json", "other.json", ("--change", "fast"), "change: "),
        (
            "record.json",
            "record.json",
            ("--floor", "1ms"),
            "--change and --floor judge pytest-benchmark files",
        ),
        ("broken.json", "bench.json", (), "broken.json: not a pytest-benchmark file"),
    ],
)
def test_what_does_not_go_together_is_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    base: str,
    head: str,
    options: tuple[str, ...],
    message: str,
) -> None:
    document(tmp_path / "bench.json", a=0.01)
    document(tmp_path / "other.json", a=0.02)
    (tmp_path / "record.json").write_text('{"schema_version": 1}')
    (tmp_path / "broken.json").write_text('{"machine_info": {}, "benchmarks": [')
    assert exit_code(["compare", str(tmp_path / base), str(tmp_path / head), *options]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert message in said.err
    assert said.err.count("\n") == 1
