"""``device: cuda`` from suite to fingerprint, on the host shim; and what is said where it cannot run."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from servegate.cli.main import exit_code
from servegate.plan import make_plan
from servegate.suite.loading import load_suite
from servegate.targets.embedded import EmbeddedTarget
from servegate_engine.backends import cuda_backend
from servegate_engine.config import EngineConfig
from servegate_engine.errors import ConfigError
from servegate_engine.loading import load_model
from servegate_kernels.ops import Kernels

sys.path.append(str(Path(__file__).parents[1] / "engine"))  # the engine's toy models

from toy import TOYS, toy_weights, write_gguf

SUITE = """\
version: 1
name: toy
target:
  kind: embedded
  model: {model}
  engine: {{device: cuda, num_blocks: 16}}
sampling: {{max_tokens: 4, ignore_eos: true}}
prompts: {{set: prompts.yaml, chat: false}}
workloads:
  behaviour: {{kind: closed, numerics: reference}}
policy: {{}}
"""
PROMPTS = """\
version: 1
name: toy
prompts:
  - {id: a, text: hello}
  - {id: b, text: no}
"""
CUDA = EngineConfig(device="cuda", num_blocks=16)


def toy_file(folder: Path, **changes: int) -> Path:
    config = replace(TOYS["llama"], **{"head_dim": 64, **changes})
    return write_gguf(folder / "toy.gguf", config, toy_weights(config))


def write_suite(folder: Path, model: str) -> Path:
    (folder / "prompts.yaml").write_text(PROMPTS)
    path = folder / "suite.yaml"
    path.write_text(SUITE.format(model=model))
    return path


@pytest.fixture
def on_shim(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_backend, "open_device", lambda: kernels.launcher)


@pytest.mark.usefixtures("on_shim")
def test_a_suite_runs_on_the_device_and_its_fingerprint_says_so(tmp_path: Path) -> None:
    records = {}
    for device in ("cuda", "cpu"):
        path = write_suite(tmp_path, str(toy_file(tmp_path)))
        path.write_text(path.read_text().replace("device: cuda", f"device: {device}"))
        plan = make_plan(load_suite(path, {}))
        target = EmbeddedTarget(plan)
        records[device] = target.measure(plan.workloads[0], lambda stage, done, total: None)
        fingerprint = target.fingerprint()
        assert fingerprint.machine["device"] == {"cuda": "host shim", "cpu": "cpu"}[device]
        assert fingerprint.served["engine.device"] == device
        assert fingerprint.served["backend"] == {"cuda": "cuda", "cpu": "torch"}[device]
        assert (fingerprint.software["cuda"], fingerprint.software["cupy"]) == ("none", "none")
        assert (fingerprint.software["kernels"] == "none") == (device == "cpu")
    answers = {
        device: [request.token_ids for request in record.rounds[0].requests]
        for device, record in records.items()
    }
    assert answers["cuda"] == answers["cpu"]


def test_nothing_is_claimed_before_anything_was_measured(tmp_path: Path) -> None:
    plan = make_plan(load_suite(write_suite(tmp_path, "m"), {}))
    fingerprint = EmbeddedTarget(plan).fingerprint()
    assert fingerprint.machine["device"] == fingerprint.software["cuda"] == "unknown"


@pytest.mark.usefixtures("on_shim")
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"head_dim": 16}, "head_dim is 16, the CUDA kernels take 64, 80, 96, 128, 256"),
        ({"intermediate_size": 100}, "intermediate_size is 100, the CUDA kernels take multiples of 8"),
    ],
)
def test_a_model_without_kernels_is_refused_before_its_weights_are_read(
    tmp_path: Path, changes: dict[str, int], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("servegate_engine.loading.read_weights", None)
    with pytest.raises(ConfigError, match=words):
        load_model(toy_file(tmp_path, **changes), CUDA)


@pytest.mark.usefixtures("on_shim")
def test_a_pool_that_does_not_fit_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^engine: the weights and 1099511627776 blocks [^\n]+$"):
        load_model(toy_file(tmp_path), replace(CUDA, num_blocks=2**40))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_no_device_is_said_before_the_model_is_looked_for() -> None:
    with pytest.raises(ConfigError, match=r"^engine: device is 'cuda': no NVIDIA driver[^\n]+$"):
        load_model("no-such-model", CUDA)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_no_device_is_exit_code_2_and_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_suite(tmp_path, "smollm2-135m")
    assert exit_code(["run", str(path), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "no NVIDIA driver" in error
    assert "Traceback" not in error
