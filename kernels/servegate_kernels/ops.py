"""The kernels as functions on torch tensors: arguments are checked on the host, then launched.

Every function works on a GPU and on the host shim, whichever the launcher is. Integers are int64 throughout.
Row counts may be 0. A row's result never depends on the other rows of the call.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from servegate_kernels.checks import Checks
from servegate_kernels.launcher import ACCUMULATOR_OF, ELEMENT_OF, Argument, Launcher
from servegate_kernels.plan import RowPlan
from servegate_kernels.sources import HEAD_SIZES

_GRID_LIMITS = (2**31 - 1, 65535, 65535)
"""Blocks in each grid dimension, by CUDA."""

NOTHING, TOO_WIDE = -1, -2
"""What ``sample`` gives instead of a token: ``sampling.cu``."""

SHORTLIST = 1024
"""The most tokens that its top-p sorts."""

LARGEST_VOCABULARY = 256 << 12
"""``THREADS << LEVELS`` there."""

_TILES = {"DecodeTile": (16, 32, 128), "MediumTile": (64, 64, 128), "LargeTile": (128, 128, 256)}
"""Rows, columns and threads of the tensor-core tiles in matmul.cu."""


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """A RowPlan with the block tables, on the launcher's device."""

    tables: torch.Tensor
    """[S, width] physical block of each logical block, -1 past a sequence's last."""
    row_sequence: torch.Tensor
    row_tokens: torch.Tensor
    row_blocks: torch.Tensor
    """[B, 2]"""
    block_size: int
    heads_per_block: int
    vectors: int
    splits: int

    @staticmethod
    def of(plan: RowPlan, tables: torch.Tensor, block_size: int) -> AttentionPlan:
        """Copies a plan to the device of ``tables``. Raises ValueError if a table is too short
        for its rows."""
        if block_size < 1:
            raise ValueError(f"block_size {block_size}")
        if max(plan.row_tokens, default=0) > tables.shape[1] * block_size:
            raise ValueError(
                f"{max(plan.row_tokens)} tokens do not fit {tables.shape[1]} blocks of {block_size}"
            )
        if max(plan.row_sequence, default=-1) >= tables.shape[0]:
            raise ValueError(f"{tables.shape[0]} block tables for {max(plan.row_sequence) + 1} sequences")

        def place(values: object, shape: tuple[int, ...]) -> torch.Tensor:
            return torch.tensor(values, dtype=torch.int64, device=tables.device).reshape(shape)

        return AttentionPlan(
            tables=tables,
            row_sequence=place(plan.row_sequence, (-1,)),
            row_tokens=place(plan.row_tokens, (-1,)),
            row_blocks=place(plan.row_blocks, (-1, 2)),
            block_size=block_size,
            heads_per_block=plan.heads_per_block,
            vectors=plan.vectors,
            splits=plan.splits,
        )


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Of R rows, in nat, on the launcher's device."""

    chosen: torch.Tensor
    """[R] float64; NaN where no token was given."""
    margins: torch.Tensor
    """[R] float64: best minus second best; inf if only one token is possible, NaN if the row has a NaN or
    +inf, or nothing but -inf."""
    top_ids: torch.Tensor
    """[R, top] int64, best first, ties by lower id; -1 where NaN leaves too few."""
    top: torch.Tensor
    """[R, top] float64."""


class Kernels:
    """The kernels on one device. TypeError: a wrong dtype or device; ValueError: a wrong shape."""

    def __init__(self, launcher: Launcher) -> None:
        self.launcher = launcher
        self._check = Checks(launcher.device)

    def attention(
        self,
        queries: torch.Tensor,
        key_pool: torch.Tensor,
        value_pool: torch.Tensor,
        plan: AttentionPlan,
        scale: float,
    ) -> torch.Tensor:
        """Causal attention of each row over the tokens it sees; 0 for a row that sees none.

        queries [R, heads, head_size]; pools [slots, kv_heads, head_size], token t of a sequence in slot
        ``table[t // block_size] * block_size + t % block_size`` -> [R, heads, head_size]. K and V of the rows
        themselves must be in the pools already.
        """
        element = self._check.element(queries, "queries")
        rows, heads, head_size = self._check.shape(queries, "queries", 3)
        _, kv_heads, _ = self._check.shape(key_pool, "key_pool", 3)
        self._check.like(queries, key_pool=key_pool, value_pool=value_pool)
        self._check.expect(key_pool, "key_pool", (key_pool.shape[0], kv_heads, head_size))
        self._check.expect(value_pool, "value_pool", tuple(key_pool.shape))
        self._check.integers(tables=plan.tables, row_sequence=plan.row_sequence, row_tokens=plan.row_tokens)
        self._check.integers(row_blocks=plan.row_blocks)
        self._check.expect(plan.row_tokens, "row_tokens", (rows,))
        self._check.expect(plan.row_sequence, "row_sequence", (rows,))
        for pool in (key_pool, value_pool):
            self._check.words(pool, "a head of the pools", head_size)
        if head_size not in HEAD_SIZES:
            raise ValueError(
                f"head_size {head_size}: attention is built for {', '.join(map(str, HEAD_SIZES))}"
            )
        if heads % kv_heads:
            raise ValueError(f"{heads} heads are no multiple of {kv_heads} KV heads")
        out = self.launcher.empty(queries.shape, queries.dtype)
        if rows == 0:
            return out
        accumulator = ACCUMULATOR_OF[queries.dtype]
        partial = self.launcher.empty((rows, heads, plan.splits, head_size), accumulator)
        state = self.launcher.empty((rows, heads, plan.splits, 2), accumulator)
        head_groups = -(-(heads // kv_heads) // plan.heads_per_block)
        arguments: list[Argument] = [
            *(queries, key_pool, value_pool),
            *(plan.tables, plan.row_sequence, plan.row_tokens, plan.row_blocks),
            *(partial, state, heads, kv_heads),
            *(plan.heads_per_block, plan.block_size, plan.tables.shape[1], plan.splits, scale),
        ]
        grid = (plan.row_blocks.shape[0], kv_heads * head_groups, plan.splits)
        self._launch(f"attention_split<{element}, {head_size}, {plan.vectors}>", grid, 128, arguments)
        arguments = [partial, state, plan.row_tokens, out, heads, head_size, plan.splits]
        self._launch(f"attention_merge<{element}>", (rows, heads, 1), 128, arguments)
        return out

    def write_kv(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        key_pool: torch.Tensor,
        value_pool: torch.Tensor,
        slots: torch.Tensor,
    ) -> None:
        """Writes K and V [R, kv_heads, head_size] to ``slots`` [R] of the pools; slot -1 is skipped.

        Rows of keys and values may lie apart (views of a fused projection). Slots must be distinct.
        """
        self._check.element(keys, "keys")
        rows, kv_heads, head_size = self._check.shape(keys, "keys", 3, rows_apart=True)
        self._check.shape(values, "values", 3, rows_apart=True)
        self._check.expect(values, "values", (rows, kv_heads, head_size))
        self._check.like(keys, values=values, key_pool=key_pool, value_pool=value_pool)
        for name, pool in (("key_pool", key_pool), ("value_pool", value_pool)):
            self._check.shape(pool, name, 3)
            self._check.expect(pool, name, (key_pool.shape[0], kv_heads, head_size))
        self._check.integers(slots=slots)
        self._check.expect(slots, "slots", (rows,))
        words = self._check.words(keys, "a row of keys", kv_heads * head_size)
        strides = [self._check.words(x, "the distance of rows", x.stride(0)) for x in (keys, values)]
        if rows:
            arguments: list[Argument] = [keys, values, key_pool, value_pool, slots, words, *strides]
            self._launch("kv_write", (rows, 1, 1), 128, arguments)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """``x / sqrt(mean(x^2) + eps) * weight`` over the last dimension of x, rounded once."""
        return self._norm(x, None, None, weight, eps)

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """``s = x + residual`` rounded to the dtype; returns ``(rms_norm(s), s)``."""
        self._check.like(x, residual=residual)
        self._check.shape(residual, "residual", x.dim())
        self._check.expect(residual, "residual", tuple(x.shape))
        total = self.launcher.empty(x.shape, x.dtype)
        return self._norm(x, residual, total, weight, eps), total

    def _norm(
        self,
        x: torch.Tensor,
        residual: torch.Tensor | None,
        total: torch.Tensor | None,
        weight: torch.Tensor,
        eps: float,
    ) -> torch.Tensor:
        """The norm of x, or with a residual of their sum, which is written to ``total``."""
        element = self._check.element(x, "x")
        self._check.shape(x, "x", x.dim())
        self._check.like(x, weight=weight)
        self._check.shape(weight, "weight", 1)
        columns = x.shape[-1]
        self._check.expect(weight, "weight", (columns,))
        self._check.words(x, "a row", columns)
        out = self.launcher.empty(x.shape, x.dtype)
        rows = x.numel() // columns
        if rows:
            arguments: list[Argument] = [x, residual, weight, out, total, columns, eps]
            self._launch(f"rms_norm<{element}>", (rows, 1, 1), 128, arguments)
        return out

    def rope(
        self, x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        """Rotates the pairs (i, i + head_size/2) of each head by the angle of the row's position.

        x [R, heads, head_size], rows may lie apart; tables [positions, head_size / 2] in the accumulator's
        dtype, positions [R] within them -> [R, heads, head_size].
        """
        element = self._check.element(x, "x")
        rows, heads, head_size = self._check.shape(x, "x", 3, rows_apart=True)
        accumulator = ACCUMULATOR_OF[x.dtype]
        for name, table in (("cosines", cosines), ("sines", sines)):
            self._check.shape(table, name, 2)
            self._check.expect(table, name, (cosines.shape[0], head_size // 2))
            self._check.typed(table, name, accumulator)
        self._check.integers(positions=positions)
        self._check.expect(positions, "positions", (rows,))
        if head_size % 2:
            raise ValueError(f"head_size {head_size} is odd")
        out = self.launcher.empty(x.shape, x.dtype)
        if rows:
            arguments: list[Argument] = [x, cosines, sines, positions, out, heads, head_size, x.stride(0)]
            self._launch(f"rope<{element}>", (rows, 1, 1), 128, arguments)
        return out

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """[R, 2 * width] -> [R, width]: ``silu(first half) * second half``, rounded once."""
        element = self._check.element(gate_up, "gate_up")
        rows, double_width = self._check.shape(gate_up, "gate_up", 2)
        width = double_width // 2
        packs = self._check.words(gate_up, "half a row", width)
        out = self.launcher.empty((rows, width), gate_up.dtype)
        if rows:
            self._launch(f"silu_mul<{element}>", (rows, -(-packs // 128), 1), 128, [gate_up, out, width])
        return out

    def embedding(self, table: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Rows ``ids`` [R] of ``table`` [vocabulary, columns] -> [R, columns]. Ids must be in range."""
        self._check.element(table, "table")
        _, columns = self._check.shape(table, "table", 2)
        self._check.integers(ids=ids)
        (rows,) = self._check.shape(ids, "ids", 1)
        words = self._check.words(table, "a row of the table", columns)
        out = self.launcher.empty((rows, columns), table.dtype)
        if rows:
            self._launch("embedding", (rows, 1, 1), 128, [table, ids, out, words])
        return out

    def matmul(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        *,
        out_dtype: torch.dtype | None = None,
    ) -> torch.Tensor:
        """``x @ weight.T + bias``: x [m, k], weight [n, k], bias [n] -> [m, n], rounded once to
        ``out_dtype``.

        out_dtype: x's, or float32 for half and bfloat16 (logits). The bits of a row do not depend on m.
        """
        element = self._check.element(x, "x")
        m, k = self._check.shape(x, "x", 2)
        n, _ = self._check.shape(weight, "weight", 2)
        self._check.like(x, weight=weight)
        self._check.expect(weight, "weight", (n, k))
        if bias is not None:
            self._check.like(x, bias=bias)
            self._check.shape(bias, "bias", 1)
            self._check.expect(bias, "bias", (n,))
        out_dtype = out_dtype or x.dtype
        if out_dtype not in (x.dtype, ACCUMULATOR_OF[x.dtype]):
            raise TypeError(f"out_dtype {out_dtype} for a product of {x.dtype}")
        self._check.words(x, "k", k)
        self._check.words(weight, "k", k)
        out = self.launcher.empty((m, n), out_dtype)
        if m == 0 or n == 0:
            return out
        if element in ("float", "double"):
            per_thread = 1 if m <= 16 else 4
            name, rows, columns, threads = f"matmul_scalar<{element}, {per_thread}>", 16 * per_thread, 64, 256
        else:
            tile = "DecodeTile" if m <= 16 else "MediumTile" if m <= 256 else "LargeTile"
            rows, columns, threads = _TILES[tile]
            name = f"matmul_tensor<{element}, {ELEMENT_OF[out_dtype]}, {tile}>"
        self._launch(name, (-(-m // rows), -(-n // columns), 1), threads, [x, weight, bias, out, m, n, k])
        return out

    def log_softmax(self, logits: torch.Tensor, tokens: torch.Tensor, top: int) -> Logprobs:
        """From logits [R, vocabulary] the logprobs of ``tokens`` [R] (negative: none, NaN), the margins, and
        the ``top`` best."""
        element = self._check.element(logits, "logits")
        rows, vocabulary = self._check.shape(logits, "logits", 2)
        self._check.integers(tokens=tokens)
        self._check.expect(tokens, "tokens", (rows,))
        if not 0 <= top <= vocabulary:
            raise ValueError(f"top {top} of {vocabulary} tokens")
        result = Logprobs(
            chosen=self.launcher.empty((rows,), torch.float64),
            margins=self.launcher.empty((rows,), torch.float64),
            top_ids=self.launcher.empty((rows, top), torch.int64),
            top=self.launcher.empty((rows, top), torch.float64),
        )
        if rows:
            arguments: list[Argument] = [
                *(logits, tokens, result.chosen, result.margins, result.top_ids, result.top),
                *(vocabulary, top),
            ]
            self._launch(f"log_softmax<{element}>", (rows, 1, 1), 256, arguments)
        return result

    def sample(
        self,
        logits: torch.Tensor,
        temperature: torch.Tensor,
        top_k: torch.Tensor,
        top_p: torch.Tensor,
        floors: torch.Tensor,
        seeds: torch.Tensor,
        positions: torch.Tensor,
    ) -> torch.Tensor:
        """Draws one token a row from logits [R, vocabulary], masked tokens -inf -> ids int64 [R].

        Per row [R]: temperature float64 (below 1e-5: greedy), top_k int64 (0: off), top_p float64 (1: off),
        floor float64 (log of min_p, -inf: off), seed and position int64. The transforms apply in that order;
        ties go to the lowest id. ``NOTHING``: all tokens are masked, or a logit is NaN or +inf. ``TOO_WIDE``:
        top-p needs more than the ``SHORTLIST`` most likely tokens.
        """
        element = self._check.element(logits, "logits")
        rows, vocabulary = self._check.shape(logits, "logits", 2)
        if vocabulary > LARGEST_VOCABULARY:
            raise ValueError(f"{vocabulary} tokens: sampling takes at most {LARGEST_VOCABULARY}")
        for name, values in (("temperature", temperature), ("top_p", top_p), ("floors", floors)):
            self._check.typed(values, name, torch.float64)
            self._check.expect(values, name, (rows,))
        self._check.integers(top_k=top_k, seeds=seeds, positions=positions)
        for name, values in (("top_k", top_k), ("seeds", seeds), ("positions", positions)):
            self._check.expect(values, name, (rows,))
        drawn = self.launcher.empty((rows,), torch.int64)
        if rows:
            arguments: list[Argument] = [
                *(logits, temperature, top_k, top_p, floors, seeds, positions),
                *(drawn, vocabulary),
            ]
            self._launch(f"sample<{element}>", (rows, 1, 1), 256, arguments)
        return drawn

    def _launch(
        self, expression: str, grid: tuple[int, int, int], threads: int, arguments: list[Argument]
    ) -> None:
        """Raises ValueError, with the shape that was asked for, where CUDA would say "invalid argument"."""
        if any(blocks > limit for blocks, limit in zip(grid, _GRID_LIMITS, strict=True)):
            raise ValueError(f"{expression}: a grid of {' x '.join(map(str, grid))} blocks exceeds CUDA's")
        self.launcher.launch(expression, grid, threads, arguments)
