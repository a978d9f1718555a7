"""Every kernel compiles for every architecture with no GPU, spills nothing, and takes what the committed
table says."""

from __future__ import annotations

import pytest

from servegate_kernels import nvrtc, resources, sources

SAMPLE = {
    "attention.cu": ("attention_split<bf16, 128, 4>", "attention_merge<bf16>"),
    "matmul.cu": ("matmul_tensor<bf16, float, DecodeTile>",),
    "rows.cu": ("kv_write", "rms_norm<bf16>"),
}


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


@pytest.mark.parametrize("architecture", [80, 90])
@pytest.mark.parametrize("file", SAMPLE)
def test_a_sample_compiles_to_the_table_s_figures(file: str, architecture: int) -> None:
    kernels = resources.load()["kernels"]
    for name, figures in resources.measure(file, SAMPLE[file], architecture).items():
        assert figures == kernels[name][str(architecture)], name


@pytest.mark.slow
@pytest.mark.parametrize("architecture", resources.ARCHITECTURES)
@pytest.mark.parametrize("file", sources.CATALOGUE)
def test_everything_compiles_to_the_table_s_figures(file: str, architecture: int) -> None:
    kernels = resources.load()["kernels"]
    for name, figures in resources.measure(file, sources.CATALOGUE[file], architecture).items():
        assert figures == kernels[name][str(architecture)], name


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
