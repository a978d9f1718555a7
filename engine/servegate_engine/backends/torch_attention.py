"""Attention over paged KV in PyTorch: which slots each sequence reads is planned once per step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from servegate_engine.batch import SequenceSlice, StepBatch

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]
"""q [B, kv_heads, rows, head_dim], k and v [B, kv_heads, length, head_dim], additive mask broadcastable to
[B, kv_heads, rows, length] or ``None`` -> [B, kv_heads, rows, head_dim]. The query heads that share a KV head
are rows of it, so grouped-query attention never copies K or V."""


def attend_reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    """``softmax(q k^T / sqrt(head_dim) + mask) v`` as it is written, in the type of its inputs."""
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores + mask
    return torch.softmax(scores, dim=-1) @ v


def attend_native(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


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
    heads_per_kv_head: int
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
    _, _, kv_heads, dim = pages.shape
    sequences, length = group.num_sequences, group.length
    kv = pages.index_select(0, group.slots).view(sequences, -1, 2, kv_heads, dim).permute(2, 0, 3, 1, 4)
    # [T, heads, dim] -> [sequences, kv_heads, query heads of one KV head x length, dim]
    q = q.reshape(sequences, length, kv_heads, -1, dim).permute(0, 2, 3, 1, 4)
    out = attend(q.reshape(sequences, kv_heads, -1, dim), kv[0], kv[1], group.mask)
    out = out.view(sequences, kv_heads, -1, length, dim).permute(0, 3, 1, 2, 4)
    return out.reshape(sequences * length, -1)


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
        mask = mask.repeat(layout.heads_per_kv_head, 1)
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
