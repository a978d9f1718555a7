"""Paged attention: right against float64, and the same bits however rows are batched, chunked, tiled and
paged."""

from __future__ import annotations

import mmap

import pytest
import torch
from kernel_cases import DTYPES, Sequences, numbers

from servegate_kernels.ops import AttentionPlan, Kernels
from servegate_kernels.plan import plan_rows
from servegate_kernels.sources import HEAD_SIZES, SPLIT_TOKENS

TILE = 32
EDGES = (
    1,
    15,
    16,
    17,
    TILE - 1,
    TILE + 1,
    SPLIT_TOKENS - 1,
    SPLIT_TOKENS,
    SPLIT_TOKENS + 1,
    2 * SPLIT_TOKENS + TILE - 1,
)
"""Lengths one below, at and one above a block of 16, a tile and a split."""


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_size"),
    [(3, 1, 64), (2, 2, 80), (10, 2, 96), (4, 1, 128), (17, 1, 64), (2, 1, 256)],
)
def test_matches_float64(
    kernels: Kernels, dtype: torch.dtype, heads: int, kv_heads: int, head_size: int
) -> None:
    case = Sequences((1, 17, SPLIT_TOKENS + 1), heads, kv_heads, head_size, dtype)
    for tiled in (True, False):
        results = case.run(kernels, {0: 1, 1: 17, 2: 3}, tiled=tiled)
        for i, rows in results.items():
            error = (rows.double() - case.reference(i)[-len(rows) :]).abs().max().item()
            assert error <= case.tolerance()


@pytest.mark.parametrize("block_size", [1, 3, 16, 64, 256])
def test_lengths_around_every_edge(kernels: Kernels, block_size: int) -> None:
    case = Sequences(EDGES, 2, 1, 64, torch.float32)
    for i, rows in case.run(kernels, dict.fromkeys(range(len(EDGES)), 1), block_size=block_size).items():
        torch.testing.assert_close(rows.double(), case.reference(i)[-1:], rtol=0, atol=case.tolerance())


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("head_size", HEAD_SIZES)
@pytest.mark.parametrize("group", [1, 2, 4, 5, 8, 16, 20])
@pytest.mark.parametrize("block_size", [1, 16, 100, 256])
def test_matches_float64_everywhere(
    kernels: Kernels, dtype: torch.dtype, head_size: int, group: int, block_size: int
) -> None:
    case = Sequences((7, 100, SPLIT_TOKENS, 2 * SPLIT_TOKENS + TILE - 1), 2 * group, 2, head_size, dtype)
    for i, rows in case.run(kernels, {0: 7, 1: 5, 2: 1, 3: 2}, block_size=block_size).items():
        torch.testing.assert_close(
            rows.double(), case.reference(i)[-len(rows) :], rtol=0, atol=case.tolerance()
        )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_row_has_the_same_bits_in_every_company(
    kernels: Kernels, backwards_kernels: Kernels, dtype: torch.dtype
) -> None:
    """Alone = batched = chunked = tiled = any block size = other pages = other thread order."""
    length = SPLIT_TOKENS + TILE + 6
    case = Sequences((length, 40, 300), 6, 2, 64, dtype)
    last = 9
    expected = torch.cat(
        [
            case.run(kernels, {0: 1}, upto={0: end}, tiled=False)[0]
            for end in range(length - last + 1, length + 1)
        ]
    )
    whole = case.run(kernels, {1: 3, 0: last, 2: 1})[0]
    assert torch.equal(whole, expected)
    assert torch.equal(case.run(kernels, {0: 20})[0][-last:], expected)
    assert torch.equal(case.run(kernels, {0: last, 1: 40}, tiled=False)[0], expected)
    chunks = [case.run(kernels, {0: n}, upto={0: end})[0] for n, end in ((4, length - 5), (5, length))]
    assert torch.equal(torch.cat(chunks), expected)
    for block_size in (1, 3, 8, 64, 256):
        assert torch.equal(case.run(kernels, {0: last}, block_size=block_size, seed=block_size)[0], expected)
    assert torch.equal(case.run(backwards_kernels, {0: last, 1: 1})[0], expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_a_short_row_beside_a_long_one_keeps_its_zeros(kernels: Kernels, dtype: torch.dtype) -> None:
    """Tokens that a row cannot see are skipped, not weighted with 0: they may hold infinities for it."""
    case = Sequences((TILE + 2,), 2, 1, 64, dtype)
    expected = case.run(kernels, {0: 1}, upto={0: TILE + 1})[0]
    case.values[0][-1] = torch.inf
    both = case.run(kernels, {0: 2})[0]
    assert torch.equal(both[:1], expected)
    assert both[1].isinf().all()


def test_rows_that_see_nothing_are_zero(kernels: Kernels) -> None:
    case = Sequences((5,), 4, 2, 64, torch.float16)
    tables, key_pool, value_pool = case.pages(16, 0, (0,))
    plan = AttentionPlan.of(plan_rows([(2, 5)], group_size=2, element="f16", head_size=64), tables, 16)
    plan.row_tokens[0] = 0
    out = kernels.attention(case.queries[0][3:], key_pool, value_pool, plan, case.scale)
    assert torch.equal(out[0], torch.zeros_like(out[0]))
    torch.testing.assert_close(out[1].double(), case.reference(0)[-1], rtol=0, atol=case.tolerance())


def test_scores_below_every_finite_sentinel_still_count(kernels: Kernels) -> None:
    """FlashInfer #4267: with -5e4 for "masked", real scores of -5e5 lost to the mask."""
    case = Sequences((40,), 2, 1, 64, torch.float32)
    case.queries[0][:] = 1000.0
    case.keys[0].copy_(-60.0 - torch.arange(40.0)[:, None, None] / 8)
    out = case.run(kernels, {0: 1})[0]
    torch.testing.assert_close(out[0].double(), case.reference(0)[-1], rtol=1e-5, atol=1e-5)


def test_infinite_scores(kernels: Kernels) -> None:
    """A score of -inf takes its token out; a row of nothing else is 0; NaN is never hidden."""
    case = Sequences((3,), 2, 1, 64, torch.float32)
    case.queries[0][:] = 1.0
    case.keys[0][1] = -torch.inf
    expected = case.values[0][[0, 2], 0].double()
    weights = (case.keys[0][[0, 2], 0].double().sum(-1) * case.scale).softmax(0)
    out = case.run(kernels, {0: 1})[0][0]
    torch.testing.assert_close(out[0].double(), weights @ expected, rtol=1e-5, atol=1e-5)
    case.keys[0][:] = -torch.inf
    assert torch.equal(case.run(kernels, {0: 1})[0], torch.zeros(1, 2, 64))
    case.keys[0][2] = torch.nan
    assert case.run(kernels, {0: 1})[0].isnan().all()


def test_pools_beyond_32_bits(kernels: Kernels) -> None:
    """vllm#50427: block * size * width overflows 32 bits on a large pool. The pool is virtual: two pages of
    it exist."""
    slots, head_size, block_size = (1 << 25) + 64, 64, 16
    spaces = [mmap.mmap(-1, slots * head_size * 2, flags=mmap.MAP_PRIVATE) for _ in range(2)]
    pools = [torch.frombuffer(space, dtype=torch.float16).view(slots, 1, head_size) for space in spaces]
    case = Sequences((20,), 2, 1, head_size, torch.float16)
    tables = torch.tensor([[slots // block_size - 1, slots // block_size - 3]])
    places = torch.cat([torch.arange(16) + tables[0, 0] * 16, torch.arange(4) + tables[0, 1] * 16])
    kernels.write_kv(case.keys[0], case.values[0], pools[0], pools[1], places)
    plan = plan_rows([(1, 20)], group_size=2, element="f16", head_size=head_size)
    out = kernels.attention(
        case.queries[0][-1:], pools[0], pools[1], AttentionPlan.of(plan, tables, 16), case.scale
    )
    torch.testing.assert_close(out.double(), case.reference(0)[-1:], rtol=0, atol=case.tolerance())


def test_wrong_arguments_are_named(kernels: Kernels) -> None:
    case = Sequences((5,), 4, 2, 64, torch.float32)
    tables, key_pool, value_pool = case.pages(16, 0, (0,))
    plan = AttentionPlan.of(plan_rows([(1, 5)], group_size=2, element="float", head_size=64), tables, 16)
    query = case.queries[0][-1:]
    with pytest.raises(TypeError, match=r"value_pool has dtype torch\.float16"):
        kernels.attention(query, key_pool, value_pool.half(), plan, 1.0)
    with pytest.raises(ValueError, match="queries is not contiguous"):
        kernels.attention(query.transpose(1, 2), key_pool, value_pool, plan, 1.0)
    pool = numbers(0, 16, 2, 72, dtype=torch.float32)
    with pytest.raises(ValueError, match="head_size 72"):
        kernels.attention(numbers(0, 1, 4, 72, dtype=torch.float32), pool, pool, plan, 1.0)
    with pytest.raises(ValueError, match="row_tokens has shape"):
        kernels.attention(case.queries[0], key_pool, value_pool, plan, 1.0)
    with pytest.raises(ValueError, match="do not fit"):
        AttentionPlan.of(plan_rows([(1, 500)], group_size=2, element="float", head_size=64), tables, 16)
    with pytest.raises(ValueError, match="6 rows of 5 tokens"):
        plan_rows([(6, 5)], group_size=2, element="float", head_size=64)
