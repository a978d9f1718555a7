"""What one step computes, as plain integers decided on the CPU: a backend only obeys."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SequenceSlice:
    """One sequence's share of a step: tokens ``[start, start + length)`` of the flat batch."""

    start: int
    length: int
    context_length: int
    """Tokens of this sequence with KV once the step has run: this slice is its last ``length`` tokens."""
    block_table: tuple[int, ...]
    """Physical block of each logical block; covers ``context_length`` tokens."""


@dataclass(frozen=True, slots=True)
class StepBatch:
    """Everything one forward pass needs. T tokens of S sequences, flat, sequence after sequence."""

    token_ids: tuple[int, ...]
    """[T]"""
    positions: tuple[int, ...]
    """[T] position of each token in its own sequence."""
    slots: tuple[int, ...]
    """[T] where each token's K and V go: ``block * block_size + offset``."""
    sequences: tuple[SequenceSlice, ...]
    """[S]"""
    logit_rows: tuple[int, ...]
    """Ascending rows of the flat batch whose logits are wanted."""
