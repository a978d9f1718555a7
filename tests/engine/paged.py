"""Drive a backend by hand: sequences on random physical pages, any share of them in a step."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from servegate_engine.backends.base import Backend
from servegate_engine.batch import SequenceSlice, StepBatch


@dataclass
class Paged:
    ids: Sequence[int]
    table: list[int] = field(default_factory=list)
    done: int = 0
    logprobs: list[torch.Tensor] = field(default_factory=list)


class Driver:
    """Hands out pages in an order shuffled by a seed, and collects the logprobs of every row."""

    def __init__(self, backend: Backend, block_size: int, num_blocks: int, seed: int = 0) -> None:
        self.backend = backend
        self.block_size = block_size
        self.free = list(range(num_blocks))
        random.Random(seed).shuffle(self.free)

    def step(self, shares: Sequence[tuple[Paged, int]]) -> None:
        """Run the next ``n`` tokens of each sequence in one batch."""
        tokens: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        slices: list[SequenceSlice] = []
        for sequence, n in shares:
            end = sequence.done + n
            while len(sequence.table) * self.block_size < end:
                sequence.table.append(self.free.pop())
            slices.append(SequenceSlice(len(tokens), n, end, tuple(sequence.table)))
            for position in range(sequence.done, end):
                block, offset = divmod(position, self.block_size)
                tokens.append(sequence.ids[position])
                positions.append(position)
                slots.append(sequence.table[block] * self.block_size + offset)
        rows = tuple(range(len(tokens)))
        batch = StepBatch(tuple(tokens), tuple(positions), tuple(slots), tuple(slices), rows)
        logprobs = torch.log_softmax(self.backend.forward(batch), dim=-1)
        for (sequence, n), piece in zip(shares, slices, strict=True):
            sequence.logprobs.append(logprobs[piece.start : piece.start + n])
            sequence.done += n

    def run(self, ids: Sequence[int], chunk: int | None = None) -> torch.Tensor:
        """[T, vocab] logprobs of one sequence alone, in chunks of ``chunk`` tokens (all at once without)."""
        sequence = Paged(ids)
        while sequence.done < len(ids):
            self.step([(sequence, min(chunk or len(ids), len(ids) - sequence.done))])
        self.release(sequence)
        return torch.cat(sequence.logprobs)

    def run_together(self, many: Sequence[Sequence[int]], seed: int = 0) -> list[torch.Tensor]:
        """Several sequences at once, each step giving each a random share of 1 to 7 tokens, or none."""
        chance = random.Random(seed)
        sequences = [Paged(ids) for ids in many]
        while any(s.done < len(s.ids) for s in sequences):
            shares = [(s, min(chance.randrange(8), len(s.ids) - s.done)) for s in sequences]
            shares = [(s, n) for s, n in shares if n]
            chance.shuffle(shares)
            if shares:
                self.step(shares)
        for sequence in sequences:
            self.release(sequence)
        return [torch.cat(sequence.logprobs) for sequence in sequences]

    def release(self, sequence: Paged) -> None:
        self.free = sequence.table + self.free
