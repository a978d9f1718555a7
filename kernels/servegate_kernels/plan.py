"""Which rows of a step share a block of threads: plain integers, decided on the CPU before anything is
launched.

Only speed depends on a plan. Each row's arithmetic is fixed by the token count it sees (attention.cu), so
every plan gives the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from servegate_kernels.sources import SPLIT_TOKENS, Element, narrow_vectors, wide_vectors


@dataclass(frozen=True, slots=True)
class RowPlan:
    """R rows of S sequences, in B row blocks."""

    row_sequence: tuple[int, ...]
    """[R] the row's sequence, an index into the block tables."""
    row_tokens: tuple[int, ...]
    """[R] how many tokens the row sees, its own included."""
    row_blocks: tuple[tuple[int, int], ...]
    """[B] first row and number of rows; all of one sequence."""
    heads_per_block: int
    vectors: int
    """(row, head) pairs a block has room for: selects the instantiation."""
    splits: int
    """Splits of the longest row."""


def plan_rows(
    sequences: Sequence[tuple[int, int]],
    *,
    group_size: int,
    element: Element,
    head_size: int,
    tiled: bool = True,
) -> RowPlan:
    """Plans one launch of attention.

    sequences: of each sequence its rows in this launch and its token count once they are in; the rows are its
    last tokens. group_size: query heads per KV head. tiled: let neighbouring rows of a sequence share their
    reads of K and V.
    """
    row_sequence: list[int] = []
    row_tokens: list[int] = []
    row_blocks: list[tuple[int, int]] = []
    widest = wide_vectors(element, head_size)
    prefill = tiled and any(rows > 1 for rows, _ in sequences)
    vectors = widest if prefill or group_size > narrow_vectors() else narrow_vectors()
    heads_per_block = min(group_size, vectors)
    rows_per_block = vectors // heads_per_block if tiled else 1
    for sequence, (rows, tokens) in enumerate(sequences):
        if not 0 <= rows <= tokens:
            raise ValueError(f"sequence {sequence}: {rows} rows of {tokens} tokens")
        first = len(row_sequence)
        row_sequence += [sequence] * rows
        row_tokens += range(tokens - rows + 1, tokens + 1)
        row_blocks += [
            (first + start, min(rows_per_block, rows - start)) for start in range(0, rows, rows_per_block)
        ]
    return RowPlan(
        row_sequence=tuple(row_sequence),
        row_tokens=tuple(row_tokens),
        row_blocks=tuple(row_blocks),
        heads_per_block=heads_per_block,
        vectors=vectors,
        splits=max(1, -(-max(row_tokens, default=1) // SPLIT_TOKENS)),
    )
