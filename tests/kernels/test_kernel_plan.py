"""Row plans as plain integers, and the source text that every compiler gets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servegate_kernels import sources
from servegate_kernels.plan import plan_rows

SEQUENCE = st.integers(0, 40).flatmap(
    lambda rows: st.tuples(st.just(rows), st.integers(max(rows, 1), rows + 600))
)


@given(st.lists(SEQUENCE, max_size=6), st.integers(1, 40), st.sampled_from(sources.HEAD_SIZES), st.booleans())
def test_every_row_is_in_one_block_that_fits(
    sequences: list[tuple[int, int]], group_size: int, head_size: int, tiled: bool
) -> None:
    plan = plan_rows(sequences, group_size=group_size, element="bf16", head_size=head_size, tiled=tiled)
    covered = [row for first, count in plan.row_blocks for row in range(first, first + count)]
    assert covered == list(range(sum(rows for rows, _ in sequences)))
    for first, count in plan.row_blocks:
        assert len(set(plan.row_sequence[first : first + count])) == 1
        assert count * plan.heads_per_block <= plan.vectors
    assert all(tokens <= plan.splits * sources.SPLIT_TOKENS for tokens in plan.row_tokens)
    for i, (rows, tokens) in enumerate(sequences):
        seen = [n for n, s in zip(plan.row_tokens, plan.row_sequence, strict=True) if s == i]
        assert seen == list(range(tokens - rows + 1, tokens + 1))


def test_decode_gives_each_row_a_block_and_prefill_shares_one() -> None:
    decode = plan_rows([(1, 9), (1, 7)], group_size=3, element="float", head_size=64)
    assert (decode.row_blocks, decode.vectors) == (((0, 1), (1, 1)), 4)
    prefill = plan_rows([(7, 9), (1, 7)], group_size=3, element="float", head_size=64)
    assert (prefill.row_blocks, prefill.vectors) == (((0, 5), (5, 2), (7, 1)), 16)


@pytest.mark.parametrize("file", sources.CATALOGUE)
def test_headers_are_written_in_place_once(file: str) -> None:
    text = sources.assemble(file)
    assert "#include" not in text
    assert "#pragma once" not in text
    assert text.count("struct Accumulator {") == 1
    assert "mma.sync" in text
    assert '#include "device.cuh"' not in sources.assemble(file, omit=frozenset({"device.cuh"}))


def test_only_catalogued_kernels_exist() -> None:
    assert sources.file_of("attention_split<bf16, 128, 4>") == "attention.cu"
    with pytest.raises(KeyError):
        sources.file_of("attention_split<bf16, 72, 4>")
