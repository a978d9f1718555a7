"""The host shim itself: what it must catch, and its number conversions against torch's, all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from servegate_kernels import shim, sources

KERNELS = r"""
struct alignas(16) Four { float at[4]; };

void skipped_barrier() { if (threadIdx.x != 7) __syncthreads(); }
void two_barriers() { if (threadIdx.x < 32) __syncthreads(); else
                                            __syncthreads(); }
void skipped_shuffle() { if (threadIdx.x % 2) __shfl_xor_sync(~0u, 1, 1); }
void thread_ids(long long* out) { __syncthreads(); out[threadIdx.x] = threadIdx.x; }
void last_writer(long long* out) { out[0] = threadIdx.x; }
void shuffle_by_5(long long* out) { out[threadIdx.x] = __shfl_xor_sync(~0u, (long long)threadIdx.x, 5); }
void read_then_write_shared(float* out) {
    BLOCK_SHARED(Four, s);
    if (threadIdx.x == 0) out[blockIdx.x] = s.at[3];
    s.at[3] = 1.0f;
}
void copied(const float* in, float* out) {
    BLOCK_SHARED(Four, s);
    copy16_start(s.at, in);
    copy_commit();
    out[0] = s.at[3];
    copy_wait<1>();
    out[1] = s.at[3];
    copy_wait<0>();
    out[2] = s.at[3];
}
template <typename T> void widened(const T* in, float* out, long long n) {
    for (long long i = threadIdx.x; i < n; i += blockDim.x) out[i] = widen(in[i]);
}
template <typename T> void narrowed(const float* in, T* out, long long n) {
    for (long long i = threadIdx.x; i < n; i += blockDim.x) out[i] = narrow<T>(in[i]);
}
"""

NAMES = [
    *("skipped_barrier", "two_barriers", "skipped_shuffle", "thread_ids", "last_writer", "shuffle_by_5"),
    *("read_then_write_shared", "copied", "widened<f16>", "widened<bf16>", "narrowed<f16>", "narrowed<bf16>"),
]

Run = Callable[..., None]


@pytest.fixture(scope="module")
def library() -> Path:
    return shim.build(
        sources.inline('#include "numeric.cuh"\n' + KERNELS, omit=frozenset({"device.cuh"})), NAMES
    )


@pytest.fixture
def run(library: Path) -> Run:
    def run(
        name: str, *arguments: torch.Tensor | int, threads: int = 64, grid: int = 1, backwards: bool = False
    ) -> None:
        symbol = f"kernel_{NAMES.index(name)}"
        shim.run(library, symbol, (grid, 1, 1), threads, arguments, backwards=backwards)

    return run


def test_a_barrier_that_some_threads_skip_is_an_error(run: Run) -> None:
    with pytest.raises(shim.ShimError, match=r"divergent barrier: 63 of 64 threads wait at kernels.cu:\d+"):
        run("skipped_barrier")


def test_two_barriers_met_at_once_are_an_error(run: Run) -> None:
    with pytest.raises(shim.ShimError, match=r"divergent barrier: kernels.cu:\d+ and kernels.cu:\d+"):
        run("two_barriers")


def test_a_shuffle_that_some_lanes_skip_is_an_error(run: Run) -> None:
    with pytest.raises(shim.ShimError, match="divergent barrier"):
        run("skipped_shuffle")


def test_a_launch_works_after_a_failed_one(run: Run) -> None:
    with pytest.raises(shim.ShimError):
        run("skipped_barrier")
    out = torch.zeros(64, dtype=torch.int64)
    run("thread_ids", out)
    assert out.tolist() == list(range(64))


def test_shared_memory_starts_as_nan_in_every_block(run: Run) -> None:
    out = torch.zeros(4, dtype=torch.float32)
    run("read_then_write_shared", out, grid=4)
    assert out.isnan().all()


def test_an_async_copy_lands_only_when_its_group_is_waited_for(run: Run) -> None:
    out = torch.zeros(3)
    run("copied", torch.ones(4), out, threads=1)
    assert out.isnan().tolist() == [True, True, False]


def test_running_backwards_shows_a_race(run: Run) -> None:
    results = []
    for backwards in (False, True):
        out = torch.zeros(1, dtype=torch.int64)
        run("last_writer", out, backwards=backwards)
        results.append(out.item())
    assert results == [63, 0]


def test_shuffles_exchange_within_a_warp(run: Run) -> None:
    out = torch.zeros(64, dtype=torch.int64)
    run("shuffle_by_5", out)
    assert out.tolist() == [i ^ 5 for i in range(64)]


@pytest.mark.parametrize(("element", "dtype"), [("f16", torch.float16), ("bf16", torch.bfloat16)])
def test_conversions_match_torch(run: Run, element: str, dtype: torch.dtype) -> None:
    """Every 16-bit pattern widened; every pattern, and the floats around the middle to its neighbour,
    narrowed."""
    bits = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16)
    wide = torch.empty(65536)
    run(f"widened<{element}>", bits, wide, 65536)
    expected = bits.view(dtype).float()
    torch.testing.assert_close(wide, expected, rtol=0, atol=0, equal_nan=True)
    middle = 1 << (12 if dtype == torch.float16 else 15)
    patterns = expected.view(torch.int32)
    floats = torch.cat(
        [(patterns + offset).view(torch.float32) for offset in (0, middle - 1, middle, middle + 1)]
    )
    narrow = torch.empty(len(floats), dtype=torch.int16)
    run(f"narrowed<{element}>", floats, narrow, len(floats))
    torch.testing.assert_close(narrow.view(dtype), floats.to(dtype), rtol=0, atol=0, equal_nan=True)


def test_a_kernel_that_does_not_compile_shows_the_compiler_s_words() -> None:
    with pytest.raises(shim.ShimError, match="no_such_name"):
        shim.build('#include "device.h"\nvoid k() { no_such_name(); }', ["k"])
