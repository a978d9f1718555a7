"""Every kernel compiles for every architecture with no GPU, spills nothing, and takes what the committed
table says."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from servegate_kernels import nvrtc, resources, sources

Figures = dict[str, list[int]]

MATRIX = [(file, architecture) for file in sources.CATALOGUE for architecture in resources.ARCHITECTURES]
"""Kernel files and architectures, the long ones first."""


@pytest.fixture(scope="session")
def compiled() -> dict[tuple[str, int], Figures]:
    """Everything, on all cores: two minutes of one, and nothing where it has been compiled before."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        jobs = {(file, arch): pool.submit(resources.measure, file, arch) for file, arch in MATRIX}
        return {key: job.result() for key, job in jobs.items()}


def test_the_table_is_of_these_sources() -> None:
    """Otherwise: python -m servegate_kernels.resources."""
    table = resources.load()
    assert table["digest"] == resources.digest()
    assert table["nvrtc"] == resources.compiler()
    assert list(table["kernels"]) == [name for names in sources.CATALOGUE.values() for name in names]
    assert all(tuple(map(int, row)) == resources.ARCHITECTURES for row in table["kernels"].values())


def test_nothing_spills_and_everything_fits() -> None:
    for name, row in resources.load()["kernels"].items():
        for architecture, (registers, shared, stack, spills) in row.items():
            assert (stack, spills) == (0, 0), f"{name} on sm_{architecture}"
            assert shared <= 48 * 1024, f"{name} on sm_{architecture}"
            assert registers <= 160, f"{name} on sm_{architecture}"


@pytest.mark.parametrize(("file", "architecture"), MATRIX)
def test_every_kernel_compiles_to_the_table_s_figures(
    compiled: dict[tuple[str, int], Figures], file: str, architecture: int
) -> None:
    kernels = resources.load()["kernels"]
    expected = {name: kernels[name][str(architecture)] for name in sources.CATALOGUE[file]}
    assert compiled[file, architecture] == expected


def test_what_was_compiled_is_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVEGATE_CACHE_DIR", str(tmp_path))
    figures = resources.measure("rows.cu", 90)
    monkeypatch.setattr(nvrtc, "compile_resources", None)
    assert resources.measure("rows.cu", 90) == figures


def test_a_spill_is_seen() -> None:
    """The check can fail: an array too large for 32 registers a thread."""
    source = """
    __global__ void __launch_bounds__(1024, 2) hungry(float* x) {
        float kept[64];
    #pragma unroll
        for (int i = 0; i < 64; ++i) kept[i] = x[i * 1024 + threadIdx.x];
        __syncthreads();
    #pragma unroll
        for (int i = 0; i < 64; ++i) x[(63 - i) * 1024 + threadIdx.x] = kept[i] * kept[(i * 7) % 64];
    }"""
    assert nvrtc.compile_resources(source, ["hungry"], 90)["hungry"].spill_bytes > 0


def test_an_error_shows_the_compiler_s_words() -> None:
    with pytest.raises(nvrtc.NvrtcError, match="no_such_name"):
        nvrtc.compile_resources("__global__ void k() { no_such_name(); }", ["k"], 80)
