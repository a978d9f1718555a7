"""The small kernels against float64, one rounding apart, and each row on its own."""

from __future__ import annotations

import pytest
import torch
from kernel_cases import DTYPES, UNIT, numbers

from servegate_kernels.launcher import ACCUMULATOR_OF
from servegate_kernels.ops import Kernels

ROWS = 5


def close(result: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype, operations: int) -> None:
    """Within one rounding to ``dtype`` and ``operations`` of the accumulator, relative to the largest
    magnitude near."""
    unit = UNIT[dtype] + operations * UNIT[ACCUMULATOR_OF[dtype]]
    torch.testing.assert_close(result.double(), expected, rtol=2 * unit, atol=8 * unit)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("columns", [16, 576, 2048])
def test_rms_norm(kernels: Kernels, dtype: torch.dtype, columns: int) -> None:
    x, weight = numbers(0, ROWS, columns, dtype=dtype), numbers(1, columns, dtype=dtype)
    wide = x.double()
    expected = wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    out = kernels.rms_norm(x, weight, 1e-5)
    close(out, expected, dtype, columns)
    assert torch.equal(kernels.rms_norm(x[3:4].clone(), weight, 1e-5), out[3:4])
    assert torch.equal(kernels.rms_norm(x.reshape(1, ROWS, columns), weight, 1e-5)[0], out)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_add_rms_norm_is_the_sum_then_the_norm(kernels: Kernels, dtype: torch.dtype) -> None:
    x, residual, weight = (
        numbers(0, ROWS, 576, dtype=dtype),
        numbers(1, ROWS, 576, dtype=dtype),
        numbers(2, 576, dtype=dtype),
    )
    out, total = kernels.add_rms_norm(x, residual, weight, 1e-5)
    assert torch.equal(total, x + residual)
    assert torch.equal(out, kernels.rms_norm(total, weight, 1e-5))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("head_size", [64, 80])
def test_rope(kernels: Kernels, dtype: torch.dtype, head_size: int) -> None:
    fused = numbers(0, ROWS, 6, head_size, dtype=dtype)
    positions = torch.tensor([3, 0, 99, 7, 7])
    angles = torch.outer(
        torch.arange(100.0).double(), 10000.0 ** -(torch.arange(head_size / 2).double() / (head_size / 2))
    )
    tables = [f(angles).to(ACCUMULATOR_OF[dtype]) for f in (torch.cos, torch.sin)]
    queries = fused[:, 1:4]
    first, second = queries.double().chunk(2, -1)
    cosines, sines = (table.double()[positions][:, None] for table in tables)
    expected = torch.cat([first * cosines - second * sines, second * cosines + first * sines], -1)
    out = kernels.rope(queries, *tables, positions)
    assert out.is_contiguous()
    close(out, expected, dtype, 3)
    assert torch.equal(kernels.rope(queries[2:3], *tables, positions[2:3]), out[2:3])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [16, 1040])
def test_silu_mul(kernels: Kernels, dtype: torch.dtype, width: int) -> None:
    gate_up = numbers(0, ROWS, 2 * width, dtype=dtype)
    gate_up[0, 0], gate_up[0, 1] = -1000.0, 1000.0
    gate, up = gate_up.double().chunk(2, -1)
    out = kernels.silu_mul(gate_up)
    assert out.isfinite().all()
    close(out, gate * torch.sigmoid(gate) * up, dtype, 6)
    assert torch.equal(kernels.silu_mul(gate_up[4:5].clone()), out[4:5])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_embedding(kernels: Kernels, dtype: torch.dtype) -> None:
    table, ids = numbers(0, 50, 96, dtype=dtype), torch.tensor([49, 0, 7, 7])
    assert torch.equal(kernels.embedding(table, ids), table[ids])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_write_kv_skips_slot_minus_one(kernels: Kernels, dtype: torch.dtype) -> None:
    fused = numbers(0, ROWS, 6, 64, dtype=dtype)
    keys, values = fused[:, 2:4], fused[:, 4:6]
    pools = torch.full((2, 48, 2, 64), torch.nan, dtype=dtype)
    slots = torch.tensor([17, -1, 0, 47, 16])
    kernels.write_kv(keys, values, pools[0], pools[1], slots)
    written = slots >= 0
    assert torch.equal(pools[0, slots[written]], keys[written])
    assert torch.equal(pools[1, slots[written]], values[written])
    untouched = torch.ones(48, dtype=torch.bool)
    untouched[slots[written]] = False
    assert pools[:, untouched].isnan().all()


def test_no_rows_launch_nothing(kernels: Kernels) -> None:
    empty = torch.empty(0, 64)
    assert kernels.rms_norm(empty, torch.ones(64), 1e-5).shape == (0, 64)
    assert kernels.silu_mul(empty).shape == (0, 32)
    assert kernels.embedding(torch.ones(4, 64), torch.empty(0, dtype=torch.int64)).shape == (0, 64)
    assert kernels.matmul(empty, torch.ones(8, 64)).shape == (0, 8)


def test_wrong_arguments_are_named(kernels: Kernels) -> None:
    x = torch.ones(2, 64)
    with pytest.raises(TypeError, match=r"x has dtype torch.int64"):
        kernels.rms_norm(x.long(), torch.ones(64), 1e-5)
    with pytest.raises(TypeError, match=r"weight has dtype torch.float64, not torch.float32"):
        kernels.rms_norm(x, torch.ones(64).double(), 1e-5)
    with pytest.raises(ValueError, match=r"weight has shape \[32\], not \[64\]"):
        kernels.rms_norm(x, torch.ones(32), 1e-5)
    with pytest.raises(ValueError, match="no multiple of 16 bytes"):
        kernels.rms_norm(torch.ones(2, 63), torch.ones(63), 1e-5)
    with pytest.raises(ValueError, match="x is not contiguous"):
        kernels.rms_norm(torch.ones(64, 2).T, torch.ones(64), 1e-5)
    with pytest.raises(TypeError, match=r"ids has dtype torch.int32, not torch.int64"):
        kernels.embedding(x, torch.zeros(3, dtype=torch.int32))
    with pytest.raises(TypeError, match="gate_up is on meta, the kernels run on c"):
        kernels.silu_mul(torch.ones(2, 64, device="meta"))
