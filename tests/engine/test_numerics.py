"""Reference numerics on the real model: one answer to 1e-11 nat, whatever the batch, pages or machine.

float64 rounds at 1.1e-16. Some 30 layers of 10 roundings each on logits of order 20 amplify that to about
1e-13; the bound leaves a factor of a hundred and is still a thousand times below what a near-tie needs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from paged import Driver
from plain_forward import plain_logprobs
from toy import TOYS, toy_weights

from servegate_engine.backends.torch_backend import TorchBackend
from servegate_engine.config import EngineConfig, ModelConfig

BOUND = 1e-11
# A question in the chat template, and the beginning of an answer.
IDS = [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198, 504, 3575, 282, 4649,
       314, 7042, 30, 657, 314, 260, 2240, 282, 260, 1495, 284, 553, 1343, 327]  # fmt: skip
OTHERS = [IDS[12:], IDS[::-1][:20], IDS[:7]]

Model = tuple[ModelConfig, dict[str, torch.Tensor]]


def driver(model: Model, block_size: int = 16, seed: int = 0) -> Driver:
    engine = EngineConfig(block_size=block_size, num_blocks=-(-512 // block_size), numerics="reference")
    return Driver(TorchBackend(*model, engine), block_size, engine.num_blocks, seed)


def worst(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max())


@pytest.fixture(scope="module")
def plain(smollm2_reference: Model) -> torch.Tensor:
    return plain_logprobs(*smollm2_reference, IDS)


@pytest.fixture(autouse=True)
def _restore_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_whole_prompt_equals_a_plain_forward(smollm2_reference: Model, plain: torch.Tensor) -> None:
    assert worst(driver(smollm2_reference).run(IDS), plain) < BOUND


@pytest.mark.parametrize(("block_size", "chunk"), [(3, 7), (64, 1)])
def test_chunks_and_pages_do_not_matter(
    smollm2_reference: Model, plain: torch.Tensor, block_size: int, chunk: int
) -> None:
    assert worst(driver(smollm2_reference, block_size).run(IDS, chunk), plain) < BOUND


def test_neighbours_do_not_matter(smollm2_reference: Model, plain: torch.Tensor) -> None:
    together = driver(smollm2_reference, 1).run_together([IDS, *OTHERS])
    assert worst(together[0], plain) < BOUND


def test_native_numerics_do_differ(smollm2_reference: Model, plain: torch.Tensor) -> None:
    """The inverse test: in float32 the same comparison sees the batch, so the bound above is not idle."""
    config, weights = smollm2_reference
    single = {name: weight.float() for name, weight in weights.items()}
    native = Driver(TorchBackend(config, single, EngineConfig(block_size=16, num_blocks=32)), 16, 32)
    whole, stepwise = native.run(IDS), native.run(IDS, 7)
    assert worst(whole.double(), plain) > 1e-8
    assert worst(whole, stepwise) > 1e-8
    assert worst(whole.double(), plain) < 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("block_size", [1, 3, 16, 64])
@pytest.mark.parametrize("chunk", [None, 1, 13])
def test_matrix(
    smollm2_reference: Model, plain: torch.Tensor, threads: int, block_size: int, chunk: int | None
) -> None:
    torch.set_num_threads(threads)
    paged = driver(smollm2_reference, block_size, seed=block_size)
    assert worst(paged.run(IDS, chunk), plain) < BOUND
    for result, ids in zip(paged.run_together([IDS, *OTHERS], seed=threads), [IDS, *OTHERS], strict=True):
        assert worst(result, paged.run(ids)) < BOUND


# Code paths of the libraries, oldest machine first.
_PATHS = {
    "compatible": {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
}


def run_elsewhere(path: str, what: str, out: Path) -> torch.Tensor:
    """The logprobs of ``IDS`` from a fresh process that uses the named code path."""
    environment = os.environ | _PATHS[path]
    subprocess.run([sys.executable, __file__, what, str(out)], env=environment, check=True)
    return torch.from_numpy(np.load(out))


def toy_logprobs() -> torch.Tensor:
    config = TOYS["qwen3"]
    return driver((config, toy_weights(config, torch.float64))).run([i % 96 for i in IDS], 7)


def test_instruction_sets_do_not_matter_to_a_toy(tmp_path: Path) -> None:
    assert worst(run_elsewhere("compatible", "toy", tmp_path / "out.npy"), toy_logprobs()) < BOUND


@pytest.mark.slow
@pytest.mark.parametrize("path", _PATHS)
def test_instruction_sets_do_not_matter(
    path: str, smollm2: Path, plain: torch.Tensor, tmp_path: Path
) -> None:
    assert worst(run_elsewhere(path, str(smollm2), tmp_path / "out.npy"), plain) < BOUND


if __name__ == "__main__":
    from servegate_engine.loading import load_weights

    if sys.argv[1] == "toy":
        result = toy_logprobs()
    else:
        result = driver(load_weights(Path(sys.argv[1]), torch.float64)).run(IDS, 7)
    np.save(sys.argv[2], result.numpy())
