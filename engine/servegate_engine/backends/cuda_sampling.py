"""``sampling.py`` by kernels: the logits stay on the device, and a few numbers a row come back.

The kernels follow the same steps and add in the same order. Penalties and suppressed ids, which touch a few
logits of a few rows, are that file's own code, on the device. So is a row whose top-p needs more tokens than
the kernel sorts: a flat distribution, where a full sort is the work to be done.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from servegate_engine import sampling
from servegate_engine.request import TokenLogprob
from servegate_engine.sampling import SampleRow
from servegate_kernels.ops import TOO_WIDE, Kernels

_BLOCK = 1 << 24
"""Edited logits worked on at a time, in float64."""


def sample(kernels: Kernels, logits: torch.Tensor, rows: Sequence[SampleRow]) -> list[TokenLogprob | None]:
    """As :func:`servegate_engine.sampling.sample`, of ``logits`` [R, V] on the device of the kernels."""
    if len(rows) != len(logits):
        raise ValueError(f"{len(logits)} rows of logits, but {len(rows)} rows to sample")
    if not rows:
        return []
    tokens = _choose(kernels, logits, rows)
    width = min(max(row.params.top_logprobs for row in rows), logits.shape[1])
    found = kernels.log_softmax(logits, tokens, width)
    columns = (tokens[:, None], found.chosen[:, None], found.margins[:, None], found.top_ids, found.top)
    numbers = torch.cat([column.double() for column in columns], dim=1).tolist()  # ids are exact in float64

    results = [_result(row, own, width) for row, own in zip(rows, numbers, strict=True)]
    wide = [i for i, own in enumerate(numbers) if own[0] == TOO_WIDE]
    if wide:
        again = sampling.sample(logits[wide], [rows[i] for i in wide])
        for i, result in zip(wide, again, strict=True):
            results[i] = result
    return results


def _result(row: SampleRow, numbers: Sequence[float], width: int) -> TokenLogprob | None:
    """``numbers``: token, its logprob, margin, then ``width`` ids and as many logprobs."""
    token, logprob, margin, *top = numbers
    if token < 0 or math.isnan(margin):
        return None
    count = min(row.params.top_logprobs, width)
    listed = tuple((int(token_id), value) for token_id, value in zip(top[:count], top[width:], strict=False))
    return TokenLogprob(int(token), logprob, margin, listed)


def _choose(kernels: Kernels, logits: torch.Tensor, rows: Sequence[SampleRow]) -> torch.Tensor:
    """Given or drawn tokens, int64 [R], negative where there is none (yet)."""
    given = [i for i, row in enumerate(rows) if row.given_token is not None]
    edited = [i for i, row in enumerate(rows) if row.given_token is None and row.is_edited]
    elsewhere = {*given, *edited}
    tokens = _draw(kernels, logits, [None if i in elsewhere else row for i, row in enumerate(rows)])
    if given:
        tokens[given] = torch.tensor([rows[i].given_token for i in given], device=tokens.device)
    step = max(1, _BLOCK // logits.shape[1])
    for start in range(0, len(edited), step):
        some = edited[start : start + step]
        own = [rows[i] for i in some]
        tokens[some] = _draw(kernels, sampling.edit(logits[some].double(), own), own)
    return tokens


def _draw(kernels: Kernels, logits: torch.Tensor, rows: Sequence[SampleRow | None]) -> torch.Tensor:
    """Steps 5 to 10 of ``sampling.py``. None: a row of no interest, which takes the cheapest way."""
    floats = np.zeros((3, len(rows)))
    integers = np.zeros((3, len(rows)), dtype=np.int64)
    for i, row in enumerate(rows):
        if row is not None:
            p = row.params
            floats[:, i] = p.temperature, p.top_p, math.log(p.min_p) if p.min_p else -math.inf
            integers[:, i] = p.top_k, p.seed, row.position
    packed = torch.from_numpy(np.concatenate((floats.view(np.int64), integers))).to(logits.device)  # one copy
    temperature, top_p, floors = packed[:3].view(torch.float64)
    top_k, seeds, positions = packed[3:]
    return kernels.sample(logits, temperature, top_k, top_p, floors, seeds, positions)
