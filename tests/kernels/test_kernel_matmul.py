"""The matrix product: right against float64, and a row's bits independent of how many rows there are."""

from __future__ import annotations

import pytest
import torch
from kernel_cases import DTYPES, UNIT, numbers

from servegate_kernels.launcher import ACCUMULATOR_OF
from servegate_kernels.ops import Kernels


def tolerance(dtype: torch.dtype, out_dtype: torch.dtype, k: int) -> float:
    """k products of at most 4 and as many additions, then one rounding of a value of at most 4 k."""
    return (k + 1) * 4 * k * UNIT[ACCUMULATOR_OF[dtype]] + 4 * k * UNIT[out_dtype]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("m", "n", "k"), [(1, 33, 40), (17, 64, 64), (70, 130, 104)])
def test_matches_float64(kernels: Kernels, dtype: torch.dtype, m: int, n: int, k: int) -> None:
    x, weight, bias = (numbers(i, *s, dtype=dtype) for i, s in enumerate([(m, k), (n, k), (n,)]))
    expected = x.double() @ weight.double().T
    for out_dtype in {dtype, ACCUMULATOR_OF[dtype]}:
        atol = tolerance(dtype, out_dtype, k)
        plain = kernels.matmul(x, weight, out_dtype=out_dtype)
        torch.testing.assert_close(plain.double(), expected, rtol=0, atol=atol)
        biased = kernels.matmul(x, weight, bias, out_dtype=out_dtype)
        torch.testing.assert_close(biased.double(), expected + bias.double(), rtol=0, atol=atol)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_row_does_not_depend_on_the_number_of_rows(kernels: Kernels, dtype: torch.dtype) -> None:
    """1 row, a decode tile, medium tiles and large tiles: every tile shape and every place in a tile."""
    x, weight = numbers(0, 260, 72, dtype=dtype), numbers(1, 40, 72, dtype=dtype)
    expected = kernels.matmul(x, weight)
    for first, last in ((0, 1), (259, 260), (100, 116), (3, 20), (50, 150)):
        assert torch.equal(kernels.matmul(x[first:last].clone(), weight), expected[first:last])
    order = torch.randperm(260, generator=torch.Generator().manual_seed(0))
    assert torch.equal(kernels.matmul(x[order], weight), expected[order])


def test_the_check_can_fail() -> None:
    """The same sums in another order differ in bits: float32, one order of k against two halves added."""
    x, weight = numbers(0, 8, 512, dtype=torch.float32), numbers(1, 64, 512, dtype=torch.float32)

    def ascending(columns: slice) -> torch.Tensor:
        total = torch.zeros(8, 64)
        for k in range(512)[columns]:
            total = total + x[:, k, None] * weight[None, :, k] / 3
        return total

    assert not torch.equal(ascending(slice(None)), ascending(slice(0, 256)) + ascending(slice(256, 512)))


def test_threads_and_blocks_backwards(kernels: Kernels, backwards_kernels: Kernels) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        x, weight = numbers(0, 20, 64, dtype=dtype), numbers(1, 70, 64, dtype=dtype)
        assert torch.equal(kernels.matmul(x, weight), backwards_kernels.matmul(x, weight))


def test_infinities_and_nan_stay_in_their_row(kernels: Kernels) -> None:
    x, weight = numbers(0, 20, 64, dtype=torch.bfloat16), numbers(1, 40, 64, dtype=torch.bfloat16)
    expected = kernels.matmul(x, weight)
    x[5, 3] = torch.nan
    out = kernels.matmul(x, weight)
    assert out[5].isnan().all()
    others = torch.arange(20) != 5
    assert torch.equal(out[others], expected[others])


def test_wrong_arguments_are_named(kernels: Kernels) -> None:
    x = torch.ones(2, 64)
    with pytest.raises(ValueError, match=r"weight has shape \[8, 32\], not \[8, 64\]"):
        kernels.matmul(x, torch.ones(8, 32))
    with pytest.raises(TypeError, match=r"out_dtype torch\.float16 for a product of torch\.float32"):
        kernels.matmul(x, torch.ones(8, 64), out_dtype=torch.float16)
    with pytest.raises(ValueError, match=r"bias has shape \[7\], not \[8\]"):
        kernels.matmul(x, torch.ones(8, 64), torch.ones(7))
