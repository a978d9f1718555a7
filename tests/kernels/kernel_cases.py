"""Inputs for kernel tests, poisoned wherever no kernel may look, and the references they are held to."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from servegate_kernels.launcher import ACCUMULATOR_OF, ELEMENT_OF
from servegate_kernels.ops import AttentionPlan, Kernels
from servegate_kernels.plan import plan_rows

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)

UNIT = {dtype: torch.finfo(dtype).eps / 2 for dtype in DTYPES}
"""Largest relative error of one rounding."""


def numbers(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Multiples of 1/1024 in [-2, 2): from integers, so the same on every CPU; cast to ``dtype``."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randint(-2048, 2048, shape, generator=generator).double() / 1024).to(dtype)


@dataclass
class Sequences:
    """Sequences with their own q, k, v, whatever pages they lie in: ``tokens[i]`` tokens of sequence i."""

    tokens: tuple[int, ...]
    heads: int
    kv_heads: int
    head_size: int
    dtype: torch.dtype

    def __post_init__(self) -> None:
        self.queries = [self._numbers(3 * i, count, self.heads) for i, count in enumerate(self.tokens)]
        self.keys = [self._numbers(3 * i + 1, count, self.kv_heads) for i, count in enumerate(self.tokens)]
        self.values = [self._numbers(3 * i + 2, count, self.kv_heads) for i, count in enumerate(self.tokens)]
        self.scale = self.head_size**-0.5

    def _numbers(self, seed: int, count: int, heads: int) -> torch.Tensor:
        return numbers(seed, count, heads, self.head_size, dtype=self.dtype)

    def pages(self, block_size: int, seed: int, which: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
        """Block tables and pools of the chosen sequences: physical pages in random order, everything that no
        token owns NaN, table tails -1."""
        needed = [-(-self.tokens[i] // block_size) for i in which]
        order = torch.randperm(sum(needed) + 3, generator=torch.Generator().manual_seed(seed))
        tables = torch.full((len(which), max(needed) + 2), -1)
        pools = torch.full(
            (2, len(order) * block_size, self.kv_heads, self.head_size), float("nan"), dtype=self.dtype
        )
        start = 0
        for row, (i, count) in enumerate(zip(which, needed, strict=True)):
            tables[row, :count] = order[start : start + count]
            start += count
            token = torch.arange(self.tokens[i])
            slots = tables[row, token // block_size] * block_size + token % block_size
            pools[0, slots] = self.keys[i]
            pools[1, slots] = self.values[i]
        return tables, pools[0], pools[1]

    def run(
        self,
        kernels: Kernels,
        rows: dict[int, int],
        *,
        block_size: int = 16,
        seed: int = 0,
        tiled: bool = True,
        upto: dict[int, int] | None = None,
    ) -> dict[int, torch.Tensor]:
        """One launch: the last ``rows[i]`` rows of sequence i, whose history ends at ``upto[i]`` (default:
        its end)."""
        which = tuple(rows)
        ends = {i: (upto or {}).get(i, self.tokens[i]) for i in which}
        tables, key_pool, value_pool = self.pages(block_size, seed, which)
        plan = plan_rows(
            [(rows[i], ends[i]) for i in which],
            group_size=self.heads // self.kv_heads,
            element=ELEMENT_OF[self.dtype],
            head_size=self.head_size,
            tiled=tiled,
        )
        queries = torch.cat([self.queries[i][ends[i] - rows[i] : ends[i]] for i in which])
        place = AttentionPlan.of(plan, tables, block_size)
        out = kernels.attention(queries, key_pool, value_pool, place, self.scale)
        return dict(zip(which, out.split([rows[i] for i in which]), strict=True))

    def reference(self, i: int) -> torch.Tensor:
        """Every row of sequence i: gathered, plain softmax, float64."""
        group = self.heads // self.kv_heads
        keys, values = (x[i].double().repeat_interleave(group, dim=1) for x in (self.keys, self.values))
        scores = torch.einsum("qhd,khd->hqk", self.queries[i].double(), keys) * self.scale
        visible = torch.ones(scores.shape[1:], dtype=torch.bool).tril()
        weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
        return torch.einsum("hqk,khd->qhd", weights, values)

    def tolerance(self) -> float:
        """A bound on the error of an output element, with u the unit of the accumulator and 2 the largest
        |v|.

        A score is a sum of head_size products of at most 4, scaled: off by at most (head_size + 2) u 4
        head_size scale. A weight is exp of a difference of two scores, and sums of n weights (online, so with
        one rescaling per tile) are off by a relative (2 n + 8) u; numerator and denominator both are. Last,
        one rounding to the output's type.
        """
        unit = UNIT[ACCUMULATOR_OF[self.dtype]]
        score = (self.head_size + 2) * unit * 4 * self.head_size * self.scale
        return 2 * (4 * score + 2 * (2 * max(self.tokens) + 8) * unit) + 2 * UNIT[self.dtype]
