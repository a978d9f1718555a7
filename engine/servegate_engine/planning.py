"""From the requests of a step to the flat batch that a backend runs."""

from __future__ import annotations

from collections.abc import Sequence

from servegate_engine.batch import SequenceSlice, StepBatch
from servegate_engine.request import Request


def build_batch(requests: Sequence[Request], wanted: Sequence[range], block_size: int) -> StepBatch:
    """The next ``num_scheduled`` tokens of each request, one after the other.

    ``wanted`` are the ``logit_positions`` of each request; ``logit_rows`` follow them in the same order.
    """
    token_ids: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    sequences: list[SequenceSlice] = []
    logit_rows: list[int] = []
    for request, logit_positions in zip(requests, wanted, strict=True):
        first = len(token_ids)
        start = request.num_computed
        length = request.num_scheduled
        end = start + length
        blocks = request.blocks
        if length == 1:  # decode, the common case
            token_ids.append(request.token_ids[start])
            positions.append(start)
            slots.append(blocks[start // block_size] * block_size + start % block_size)
        else:
            token_ids += request.token_ids[start:end]
            positions += range(start, end)
            slots += [blocks[p // block_size] * block_size + p % block_size for p in range(start, end)]
        sequences.append(SequenceSlice(first, length, end, tuple(blocks)))
        logit_rows += [first + position - start for position in logit_positions]
    return StepBatch(tuple(token_ids), tuple(positions), tuple(slots), tuple(sequences), tuple(logit_rows))
