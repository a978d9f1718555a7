"""The invariance check can fail: a kernel that follows pages is right within rounding, and caught by its
bits."""

from __future__ import annotations

from pathlib import Path

import torch
from kernel_cases import Sequences

from servegate_kernels import shim, sources


def _block_ordered(case: Sequences, block_size: int) -> torch.Tensor:
    text = (Path(__file__).parent / "block_ordered.cu").read_text(encoding="utf-8")
    library = shim.build(sources.inline(text, omit=frozenset({"device.cuh"})), ["block_ordered"])
    tables, key_pool, value_pool = case.pages(block_size, block_size, (0,))
    query, out = case.queries[0][-1], torch.full((1, case.head_size), torch.nan)
    arguments = [
        query,
        key_pool,
        value_pool,
        tables,
        case.tokens[0],
        out,
        case.head_size,
        block_size,
        case.scale,
    ]
    shim.run(library, "kernel_0", (1, 1, 1), 1, arguments)
    return out


def test_a_page_ordered_kernel_fails_the_check() -> None:
    case = Sequences((301,), 1, 1, 64, torch.float32)
    results = [_block_ordered(case, block_size) for block_size in (1, 3, 16, 64, 256)]
    for result in results:
        torch.testing.assert_close(result.double(), case.reference(0)[-1], rtol=0, atol=case.tolerance())
    assert not all(torch.equal(result, results[0]) for result in results)
