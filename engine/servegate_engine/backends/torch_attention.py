"""Attention over paged KV in PyTorch: which slots each sequence reads is planned once per step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from servegate_engine.batch import SequenceSlice, StepBatch

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]
"""q [B, heads, rows, head_dim], k and v [B, kv_heads, length, head_dim], additive mask broadcastable to
[B, heads, rows, length] or ``None`` -> [B, heads, rows, head_dim]. Query head h reads KV head
``h // (heads / kv_heads)``."""


def attend_reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    """``softmax(q k^T / sqrt(head_dim) + mask) v`` as it is written, in the type of its inputs."""
    batch, heads, rows, dim = q.shape
    kv_heads, length = k.shape[1:3]
    # The query heads that share a KV head become rows of it.
    scores = q.reshape(batch, kv_heads, -1, dim) @ k.transpose(-1, -2) * dim**-0.5
    scores = scores.view(batch, heads, rows, length)
    weights = torch.softmax(scores if mask is None else scores + mask, dim=-1)
    return (weights.view(batch, kv_heads, -1, length) @ v).view(batch, heads, rows, dim)


def attend_native(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    """PyTorch's fused kernel; sharing KV heads inside it is 1.3 times as fast as treating them as rows."""
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


@dataclass(frozen=True, slots=True)
class _Group:
    """Sequences that attend in one call: one sequence of any length, or several of one token each."""

    rows: slice | torch.Tensor
    """Their rows of the flat batch."""
    slots: torch.Tensor
    """[sequences * longest context] pool slots, in logical order."""
    num_sequences: int
    length: int
    """Query rows of each."""
    mask: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class AttentionLayout:
    """What planning needs to know of the model and the pool."""

    block_size: int
    dtype: torch.dtype
    batch_decodes: bool
    """Put all one-token sequences into one call, padded to the longest context. Without it each sequence
    attends alone, over exactly the tokens it sees."""


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """What each sequence of a step reads, as tensors that all layers share."""

    groups: tuple[_Group, ...]

    @staticmethod
    def of(batch: StepBatch, layout: AttentionLayout) -> AttentionPlan:
        decodes = [s for s in batch.sequences if layout.batch_decodes and s.length == 1]
        others = [s for s in batch.sequences if not (layout.batch_decodes and s.length == 1)]
        groups = [_decode_group(decodes, layout)] if decodes else []
        return AttentionPlan((*groups, *(_own_group(s, layout) for s in others)))

    def run(self, q: torch.Tensor, pages: torch.Tensor, attend: Attend) -> torch.Tensor:
        """q [T, heads, head_dim] over ``pages`` [slots, 2, kv_heads, head_dim] -> [T, heads * head_dim]."""
        if len(self.groups) == 1:
            return _run_group(self.groups[0], q, pages, attend)
        out = torch.empty(q.shape[0], q.shape[1] * q.shape[2], dtype=q.dtype)
        for group in self.groups:
            out[group.rows] = _run_group(group, q[group.rows], pages, attend)
        return out


def _run_group(group: _Group, q: torch.Tensor, pages: torch.Tensor, attend: Attend) -> torch.Tensor:
    """q [rows of the group, heads, head_dim] -> [rows of the group, heads * head_dim]."""
    _, _, kv_heads, dim = pages.shape
    kv = pages.index_select(0, group.slots).view(group.num_sequences, -1, 2, kv_heads, dim)
    k, v = kv.permute(2, 0, 3, 1, 4)
    q = q.reshape(group.num_sequences, group.length, -1, dim).transpose(1, 2)
    return attend(q, k, v, group.mask).transpose(1, 2).reshape(len(q) * group.length, -1)


def _decode_group(sequences: Sequence[SequenceSlice], layout: AttentionLayout) -> _Group:
    """One row each. Short contexts are padded with their own first slot: finite, and never a neighbour's."""
    lengths = np.array([s.context_length for s in sequences])
    longest = int(lengths.max())
    slots = np.empty((len(sequences), longest), dtype=np.int64)
    for row, s in zip(slots, sequences, strict=True):
        row[:] = s.block_table[0] * layout.block_size
        row[: s.context_length] = _slots(s, layout.block_size)
    mask = None
    if int(lengths.min()) < longest:
        padding = torch.from_numpy(np.arange(longest) >= lengths[:, None])[:, None, None, :]
        mask = torch.zeros(padding.shape, dtype=layout.dtype).masked_fill_(padding, -torch.inf)
    rows = [s.start for s in sequences]
    adjacent = rows == list(range(rows[0], rows[0] + len(rows)))
    return _Group(
        rows=slice(rows[0], rows[0] + len(rows)) if adjacent else torch.tensor(rows),
        slots=torch.from_numpy(slots).view(-1),
        num_sequences=len(sequences),
        length=1,
        mask=mask,
    )


def _own_group(s: SequenceSlice, layout: AttentionLayout) -> _Group:
    """All rows of one sequence, each seeing the tokens up to itself."""
    mask = None
    if s.length > 1:
        first = s.context_length - s.length
        hidden = torch.ones(s.length, s.context_length, dtype=torch.bool).triu(first + 1)
        mask = torch.zeros(hidden.shape, dtype=layout.dtype).masked_fill_(hidden, -torch.inf)
    return _Group(
        rows=slice(s.start, s.start + s.length),
        slots=torch.from_numpy(_slots(s, layout.block_size)),
        num_sequences=1,
        length=s.length,
        mask=mask,
    )


def _slots(s: SequenceSlice, block_size: int) -> np.ndarray:
    """[context_length] pool slots of a sequence's tokens, in logical order."""
    first = np.array(s.block_table, dtype=np.int64) * block_size
    return (first[:, None] + np.arange(block_size)).reshape(-1)[: s.context_length]
