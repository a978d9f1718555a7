"""The commands, end to end, on a target that needs no engine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fake_target import FakeTarget

from servegate import pipeline
from servegate.cli.main import exit_code
from servegate.errors import UsageError
from servegate.files import read_record
from servegate.verdict import Verdict

MACHINE = {"cpu": "a CPU", "cores": "2", "memory": "8 GiB", "os": "Linux x86_64"}


@pytest.fixture(autouse=True)
def outside_ci(monkeypatch) -> None:
    for name in ("CI", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def target(monkeypatch):
    """What the next commands measure: ``target(tokens=24)``."""

    def arrange(**answers) -> None:
        monkeypatch.setattr(pipeline, "open_target", lambda plan: FakeTarget(plan, **answers))

    arrange()
    return arrange


@pytest.fixture
def suite(tmp_path: Path, target, capsys) -> str:
    assert exit_code(["init", str(tmp_path)]) == 0
    capsys.readouterr()
    return str(tmp_path / "servegate.yaml")


@pytest.fixture
def baselined(suite: str, capsys) -> str:
    assert exit_code(["baseline", "update", suite]) == 0
    capsys.readouterr()
    return suite


def check(suite: str, *options: str) -> int:
    return exit_code(["check", suite, "--out", str(Path(suite).parent / "out"), *options])


def test_unchanged_passes(baselined: str, capsys) -> None:
    assert check(baselined) == 0
    out, err = capsys.readouterr()
    assert out.startswith("PASS: ")
    assert err == ""


def test_regression_exits_1_and_says_why(baselined: str, target, capsys) -> None:
    target(tokens=24)
    assert check(baselined) == 1
    out = capsys.readouterr().out
    assert out.startswith("FAIL: completion tokens doubled")
    assert "behaviour.completion_tokens" in out
    assert "100 % longer" in out
    assert f"servegate baseline update {baselined}" in out


def test_stdout_is_only_json(baselined: str, target, capsys) -> None:
    target(tokens=24)
    assert check(baselined, "--json") == 1
    out, _ = capsys.readouterr()
    assert Verdict.model_validate(json.loads(out)).exit_code == 1


def test_no_baseline_exits_3(suite: str, capsys) -> None:
    """The starter's ``error_rate: {max: 0}`` holds without a base: a limit kept is not a comparison made."""
    assert check(suite) == 3
    assert "baseline" in capsys.readouterr().out


def test_unwritable_out_is_said_before_anything_is_measured(baselined: str, monkeypatch, capsys) -> None:
    monkeypatch.setattr(pipeline, "open_target", lambda plan: pytest.fail("measured in vain"))
    assert exit_code(["check", baselined, "--out", "/proc/nowhere"]) == 2
    assert capsys.readouterr().err.startswith("error: /proc/nowhere: cannot be written to")


def test_regression_outlives_a_failure_to_save_it(baselined: str, target, monkeypatch, capsys) -> None:
    def full_disk(*arguments: object) -> None:
        raise UsageError("out/record.json: cannot be written: No space left on device")

    monkeypatch.setattr(pipeline, "save", full_disk)
    assert check(baselined) == 2
    target(tokens=24)
    assert check(baselined) == 1
    out, err = capsys.readouterr()
    assert "FAIL: completion tokens doubled" in out
    assert "nowhere but here" in err


def test_other_hardware_gates_exact_rows_and_names_both(baselined: str, target, capsys) -> None:
    target(machine="b", gap_ms=50)
    assert check(baselined) == 0
    out = capsys.readouterr().out
    assert "not comparable" in out
    target(machine="b", tokens=24)
    assert check(baselined) == 1


def test_interrupt_keeps_what_was_measured_and_never_passes(baselined: str, target, capsys) -> None:
    target(interrupt_at="latency")
    assert check(baselined) == 4
    record = json.loads((Path(baselined).parent / "out" / "record.json").read_text())
    assert record["complete"] is False
    assert [workload["name"] for workload in record["workloads"]] == ["behaviour"]


def test_a_record_names_its_suite_as_it_is_typed_in_the_repository(tmp_path: Path, target) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True, timeout=60)
    suites = tmp_path / "my suites"
    assert exit_code(["init", str(suites)]) == 0
    assert exit_code(["check", str(suites / "servegate.yaml"), "--out", str(tmp_path / "out")]) == 3
    assert read_record(tmp_path / "out" / "record.json").suite_path == "my suites/servegate.yaml"


def test_run_then_compare(baselined: str, target, tmp_path: Path, capsys) -> None:
    base, head, report = tmp_path / "base.json", tmp_path / "head.json", tmp_path / "report.md"
    assert exit_code(["run", baselined, "--out", str(base)]) == 0
    target(tokens=24)
    assert exit_code(["run", baselined, "--out", str(head)]) == 0
    capsys.readouterr()
    options = ["--suite", baselined, "--markdown", str(report), "--json"]
    assert exit_code(["compare", str(base), str(head), *options]) == 1
    assert json.loads(capsys.readouterr().out)["outcome"] == "regressed"
    assert "| `behaviour.completion_tokens` |" in report.read_text(encoding="utf-8")


def test_a_broken_record_is_one_line(tmp_path: Path, capsys) -> None:
    broken = tmp_path / "base.json"
    broken.write_text('{"schema_version": 1, "suite": ')
    assert exit_code(["compare", str(broken), str(broken)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {broken}: cut off or not JSON")
    assert err.count("\n") == 1


def test_explain_recomputes(baselined: str, target, capsys) -> None:
    target(tokens=24)
    check(baselined)
    capsys.readouterr()
    verdict = Path(baselined).parent / "out" / "verdict.json"
    assert exit_code(["explain", str(verdict)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "recomputed from the saved files: the same verdict"
    start = next(i for i, line in enumerate(lines) if line.startswith("behaviour.completion_tokens"))
    assert lines[start].endswith("regressed")
    assert lines[start + 1] == "  base 60 tokens (n 5), head 120 tokens (n 5): 100 % longer"
    assert lines[start + 2] == "  rule: ±5 %"
    assert lines[start + 3].startswith("  why: ")
    assert "  what would change it: a head from 57 tokens to 63 tokens" in lines[start:]


@pytest.mark.parametrize("file", ["record.json", "verdict.json"])
def test_explain_is_loud_about_edited_files(baselined: str, file: str, capsys) -> None:
    check(baselined)
    capsys.readouterr()
    path = Path(baselined).parent / "out" / file
    path.write_text(path.read_text().replace('"PASS: ', '"PASS: really, ').replace("2026", "2027"))
    assert exit_code(["explain", str(path.with_name("verdict.json"))]) == 4
    assert "NOT TO BE TRUSTED" in capsys.readouterr().out


def test_baseline_update_shows_old_and_new(baselined: str, target, capsys) -> None:
    target(tokens=24)
    assert exit_code(["baseline", "update", baselined, "--reason", "longer answers are wanted"]) == 0
    out, err = capsys.readouterr()
    assert "behaviour: completion_tokens 60 tokens -> 120 tokens (+100 %)" in out.splitlines()
    assert "behaviour.json" in err
    assert exit_code(["baseline", "show", baselined]) == 0
    out = capsys.readouterr().out
    assert "  accepted because: longer answers are wanted" in out.splitlines()
    assert "    completion_tokens 120 tokens (n 5)" in out.splitlines()


def test_baseline_update_is_refused_in_ci(suite: str, monkeypatch, capsys) -> None:
    monkeypatch.setenv("CI", "true")
    assert exit_code(["baseline", "update", suite]) == 2
    assert "not updated in CI" in capsys.readouterr().err
    assert exit_code(["baseline", "show", suite]) == 3
    assert exit_code(["baseline", "update", suite, "--in-ci"]) == 0


def test_doctor_names_what_is_missing_and_the_command(monkeypatch, capsys) -> None:
    from servegate import doctor

    monkeypatch.setattr(doctor, "_version", lambda *names: None)
    monkeypatch.setattr(doctor, "known_models", lambda: {"smollm2-135m": None})
    assert exit_code(["doctor"]) == 0
    lines = {line.split()[1]: line for line in capsys.readouterr().out.splitlines()}
    assert lines["torch"].startswith("missing")
    assert lines["torch"].endswith("run: pip install 'servegate[engine]'")
    assert "servegate model fetch smollm2-135m" in lines["model"]


def test_doctor_knows_the_driver_and_the_cpu(monkeypatch) -> None:
    from servegate import doctor

    fixes = {driver: doctor._cuda(driver, None)[0].fix for driver in ("580.65", "550.1", doctor.NONE)}
    assert fixes == {
        "580.65": "pip install 'servegate[cuda13]'",
        "550.1": "pip install 'servegate[cuda12]'",
        doctor.NONE: None,
    }
    assert "native is bfloat16" in doctor._cpu("x", "flags\t\t: fpu avx2 amx_bf16\n").found
    assert "native is float32" in doctor._cpu("x", "flags\t\t: fpu avx2\n").found


def test_doctor_shows_what_the_engine_finds_of_the_gpu(monkeypatch, capsys) -> None:
    from servegate import doctor

    command = "pip install 'servegate[cuda13]'"
    monkeypatch.setattr(doctor, "machine_facts", lambda: {**MACHINE, "gpu": "NVIDIA L4", "driver": "580.65"})
    monkeypatch.setattr(doctor, "cuda_problems", lambda: [("CuPy is not installed", command)])
    assert exit_code(["doctor"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "CuPy" in line]
    assert line.split()[:2] == ["missing", "cuda"]
    assert line.endswith(f"CuPy is not installed; run: {command}")
    monkeypatch.setattr(doctor, "cuda_problems", lambda: [])
    assert exit_code(["doctor"]) == 0
    assert "fit together" in capsys.readouterr().out


def test_doctor_does_without_an_engine(monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "servegate_engine.backends", None)
    assert exit_code(["doctor"]) == 0
    assert "no engine that could use a GPU" in capsys.readouterr().out


def test_doctor_json(monkeypatch, capsys) -> None:
    assert exit_code(["doctor", "--json"]) == 0
    names = [finding["name"] for finding in json.loads(capsys.readouterr().out)["findings"]]
    assert {"python", "torch", "cuda", "gpu", "cpu"} <= set(names)


def test_models(monkeypatch, capsys, tmp_path: Path) -> None:
    from servegate.targets import embedded

    monkeypatch.setattr(embedded, "fetch_model", lambda name: tmp_path / f"{name}.gguf")
    assert exit_code(["model", "fetch", "m"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/m.gguf\n"
    monkeypatch.setattr(embedded, "known_models", lambda: {"m": None})
    assert exit_code(["model", "list"]) == 0
    assert capsys.readouterr().out == "m  not fetched\n"
