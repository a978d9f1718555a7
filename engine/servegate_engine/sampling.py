"""From logits to a token and its logprobs.

A row's result is a function of its own logits and its own :class:`SampleRow`, bit for bit, whatever shares
the call. Nothing is kept between calls. All arithmetic is float64. For each row, in this order:

1. raw logprobs: log-softmax of the logits as given. Everything reported is taken here; no later step,
   temperature included, changes a reported number.
2. suppress: the ids in ``suppress`` (the stop ids, until ``min_tokens`` are out) become -inf.
3. repetition penalty, over prompt and output: a positive logit is divided by it, any other multiplied.
4. presence and frequency penalty, over the output only: ``logit -= presence + frequency * count``.
5. greedy exit: at a temperature below ``GREEDY_BELOW`` the highest logit wins, ties to the lowest id, and
   the steps below do not apply.
6. temperature: ``(logit - highest) / temperature``. The best token sits at exactly 0 and the rest below, so
   no temperature can overflow.
7. top-k: the k most likely. Among equal logits the lowest ids stay, so it is exactly k.
8. top-p: the smallest set of the most likely tokens left by 7 whose share of *their* mass reaches p, ties as
   in 7; at least one.
9. min-p: tokens with at least ``min_p`` times the probability of the best.
10. draw: the highest of logit + Gumbel noise, ties to the lowest id, which is a draw from the softmax of
    what is left (Gumbel-max: Gumbel 1954; Maddison, Tarlow, Minka, "A* Sampling", NIPS 2014). The noise is a
    hash of (seed, position, token id): see ``noise.py``.

Bits do not depend on the neighbours because every step is elementwise, a comparison, or a sum in an order
that the row's own length fixes (library sums over rows split long rows over threads when there are few).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch

from servegate_engine.noise import gumbel
from servegate_engine.request import SamplingParams, TokenLogprob

GREEDY_BELOW = 1e-5
"""Temperatures under this are greedy: there, a lead of 5e-4 already outweighs any difference of noise."""

_SHORTLIST = 1024
"""How many of the most likely tokens top-k and top-p look at before they sort a whole row."""

_BLOCK = 1 << 20
"""Logits worked on at a time: a batch of 256 with a vocabulary of 150,000 would need gigabytes at once."""

_LARGEST = torch.finfo(torch.float64).max


@dataclass(frozen=True, slots=True)
class SampleRow:
    """What one row of logits is for. All ids are in ``[0, vocab_size)``: the engine checks at admission."""

    params: SamplingParams
    prompt_ids: Sequence[int]
    output_ids: Sequence[int]
    """Everything generated so far, the last token included."""
    suppress: Sequence[int] = ()
    """Ids that must not be drawn here."""
    given_token: int | None = None
    """Report this token's logprobs instead of drawing (teacher forcing)."""

    @property
    def position(self) -> int:
        """Position of the drawn token in its sequence."""
        return len(self.prompt_ids) + len(self.output_ids)

    @property
    def is_greedy(self) -> bool:
        return self.params.temperature < GREEDY_BELOW

    @property
    def is_edited(self) -> bool:
        """Whether a step before the greedy exit touches the logits."""
        p = self.params
        penalised = (p.repetition_penalty, p.presence_penalty, p.frequency_penalty) != (1.0, 0.0, 0.0)
        return penalised or len(self.suppress) > 0


def sample(logits: torch.Tensor, rows: Sequence[SampleRow]) -> list[TokenLogprob | None]:
    """Draw (or score the given token of) each row of ``logits`` [R, V], float32 or float64, any device.

    ``None`` for a row that no token can be drawn from: its logits hold a NaN or +inf, or nothing but -inf is
    left once ``suppress`` is applied. A margin is inf where only one token is possible at all. ``top`` has
    ``min(top_logprobs, V)`` entries. ``logits`` is left as it is.
    """
    if len(rows) != len(logits):
        raise ValueError(f"{len(logits)} rows of logits, but {len(rows)} rows to sample")
    step = max(1, _BLOCK // logits.shape[1])
    return [
        result
        for start in range(0, len(rows), step)
        for result in _sample_block(logits[start : start + step], rows[start : start + step])
    ]


def _sample_block(logits: torch.Tensor, rows: Sequence[SampleRow]) -> list[TokenLogprob | None]:
    raw = logits.detach().double()
    best = _argmax(raw)  # a NaN counts as the maximum
    peak = raw.gather(1, best[:, None])
    tokens = _choose(raw, best, rows)

    shifted = raw - peak
    mass = _row_sums(shifted.exp())
    chosen = shifted.gather(1, tokens.clamp(min=0)[:, None])
    tops = _most_likely(shifted, [row.params.top_logprobs for row in rows])
    runner_up = shifted.scatter_(1, best[:, None], -math.inf).amax(dim=1)

    numbers = torch.stack((peak[:, 0], mass, chosen[:, 0], runner_up), dim=1).tolist()
    results: list[TokenLogprob | None] = []
    for token, top, (highest, total, logit, second) in zip(tokens.tolist(), tops, numbers, strict=True):
        if token < 0 or not math.isfinite(highest):
            results.append(None)
            continue
        log_total = math.log(total)
        listed = tuple((token_id, value - log_total) for token_id, value in top)
        results.append(TokenLogprob(token, logit - log_total, 0.0 - second, listed))
    return results


def _choose(raw: torch.Tensor, best: torch.Tensor, rows: Sequence[SampleRow]) -> torch.Tensor:
    """Steps 2 to 10: token ids, int64 [R]; -1 where nothing is left to draw. ``best`` is the plain argmax."""
    given = [(i, row.given_token) for i, row in enumerate(rows) if row.given_token is not None]
    busy = [
        i for i, row in enumerate(rows) if row.given_token is None and (row.is_edited or not row.is_greedy)
    ]
    tokens = best.clone()
    if given:
        where, ids = zip(*given, strict=True)
        tokens[list(where)] = torch.tensor(ids, device=raw.device)
    if busy:
        tokens[busy] = _draw(_pick(raw, busy), [rows[i] for i in busy])
    return tokens


def _draw(logits: torch.Tensor, rows: Sequence[SampleRow]) -> torch.Tensor:
    """As :func:`_choose`, for rows that need more than an argmax. ``logits`` is overwritten."""
    tokens = _argmax(edit(logits, rows))
    peak = logits.gather(1, tokens[:, None])
    warm = [i for i, row in enumerate(rows) if not row.is_greedy]
    if warm:
        warm_rows = [rows[i] for i in warm]
        temperature = _column([row.params.temperature for row in warm_rows], logits)
        scaled = _pick(logits, warm).sub_(peak[warm]).div_(temperature)
        _keep_top_k_top_p(scaled, [row.params for row in warm_rows])
        _keep_min_p(scaled, [row.params for row in warm_rows])
        noise = gumbel([(row.params.seed, row.position) for row in warm_rows], scaled.shape[1], scaled.device)
        noise.clamp_(max=_LARGEST)  # it can be inf (see noise.py), and -inf + inf would be NaN
        tokens[warm] = _argmax(noise.add_(scaled))
    return tokens.masked_fill_(peak[:, 0] == -math.inf, -1)


def edit(logits: torch.Tensor, rows: Sequence[SampleRow]) -> torch.Tensor:
    """Steps 2 to 4, in place, of float64 ``logits`` [S, V] on any device, which it returns."""
    _suppress(logits, rows)
    _penalise(logits, rows)
    return logits


def _suppress(logits: torch.Tensor, rows: Sequence[SampleRow]) -> None:
    if any(row.suppress for row in rows):
        logits[_index([row.suppress for row in rows], logits)] = -math.inf


def _penalise(logits: torch.Tensor, rows: Sequence[SampleRow]) -> None:
    """Steps 3 and 4. Each id occurs once a row, so no write races another."""
    factors = [row.params.repetition_penalty for row in rows]
    if any(factor != 1.0 for factor in factors):
        seen = [
            {*row.prompt_ids, *row.output_ids} if factor != 1.0 else set[int]()
            for row, factor in zip(rows, factors, strict=True)
        ]
        index = _index(seen, logits)
        old = logits[index]
        factor = _column(factors, logits)[index[0], 0]
        logits[index] = _bounded(torch.where(old > 0, old / factor, old * factor), old)

    amounts = [(row.params.presence_penalty, row.params.frequency_penalty) for row in rows]
    if any(amount != (0.0, 0.0) for amount in amounts):
        counts = [
            Counter(row.output_ids) if amount != (0.0, 0.0) else Counter[int]()
            for row, amount in zip(rows, amounts, strict=True)
        ]
        index = _index(counts, logits)
        old = logits[index]
        presence, frequency = (_column(column, logits)[index[0], 0] for column in zip(*amounts, strict=True))
        count = _column([n for own in counts for n in own.values()], logits)[:, 0]
        logits[index] = _bounded(old - (presence + frequency * count), old)


def _bounded(new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """``new``, kept finite wherever ``old`` was: a huge penalty must neither mask a token nor make a NaN."""
    return torch.where(old.isfinite(), new.clamp(-_LARGEST, _LARGEST), old)


def _keep_top_k_top_p(scaled: torch.Tensor, params: Sequence[SamplingParams]) -> None:
    """Set to -inf what top-k and top-p drop. ``scaled`` [S, V] has its maximum at 0 in each row.

    Both keep a prefix of one order (logit descending, id ascending), so together they are one number a row:
    how many to keep.
    """
    vocab_size = scaled.shape[1]
    rows = [i for i, p in enumerate(params) if 0 < p.top_k < vocab_size or p.top_p < 1.0]
    width = min(vocab_size, _SHORTLIST, max((params[i].top_k or _SHORTLIST for i in rows), default=0))
    while rows:
        part = _pick(scaled, rows)
        limit = np.array([min(params[i].top_k or vocab_size, vocab_size) for i in rows])
        top_p = np.array([params[i].top_p for i in rows])
        highest = part.topk(width, dim=1).values
        mass = np.cumsum(highest.exp().cpu().numpy(), axis=1)
        total = mass[np.arange(len(rows)), np.minimum(limit, width) - 1]
        if (limit > width).any():
            total = np.where(limit > width, _row_sums(part.exp()).cpu().numpy(), total)
        # A token is needed if the mass of those before it falls short of p.
        nucleus = 1 + (mass < (top_p * total)[:, None]).sum(axis=1)
        count = np.minimum(np.where(top_p < 1.0, nucleus, vocab_size), limit)
        # A row whose top-k is beyond the shortlist: the mass of its k tokens is not known yet.
        cut_short = (limit > width) & (limit < vocab_size) & (top_p < 1.0)
        settled = ((count <= width) & ~cut_short).nonzero()[0]
        if len(settled):
            counts = torch.from_numpy(count[settled]).to(part.device)
            scaled[[rows[i] for i in settled]] = _keep_first(part[settled], counts, highest[settled])
        rows = [rows[i] for i in ((count > width) | cut_short).nonzero()[0]]
        width = vocab_size


def _keep_first(part: torch.Tensor, count: torch.Tensor, highest: torch.Tensor) -> torch.Tensor:
    """``part`` [S, V] with all but the first ``count`` [S] of each row at -inf.

    ``highest`` [S, W] are each row's largest values, descending, W at least ``count``.
    """
    last = highest.gather(1, count[:, None] - 1)
    kept = part >= last
    if bool((kept.sum(dim=1) > count).any()):
        ties_wanted = count - (highest > last).sum(dim=1)
        tied = part == last
        kept &= ~tied | (tied.cumsum(dim=1) <= ties_wanted[:, None])
    return part.masked_fill_(~kept, -math.inf)


def _keep_min_p(scaled: torch.Tensor, params: Sequence[SamplingParams]) -> None:
    """Set to -inf what min-p drops: relative to the best, which sits at 0, the bound is ``log(min_p)``."""
    if any(p.min_p for p in params):
        bound = _column([math.log(p.min_p) if p.min_p else -math.inf for p in params], scaled)
        scaled.masked_fill_(scaled < bound, -math.inf)


def _most_likely(shifted: torch.Tensor, counts: Sequence[int]) -> list[list[tuple[int, float]]]:
    """Each row's ``counts[row]`` largest as ``(id, value)``, descending, ties by lowest id.

    ``topk`` gives the values; it promises nothing about which of several equal ones it names.
    """
    tops: list[list[tuple[int, float]]] = [[] for _ in counts]
    rows = [i for i, count in enumerate(counts) if count]
    if not rows:
        return tops
    part = _pick(shifted, rows)
    wanted = torch.tensor([min(counts[i], part.shape[1]) for i in rows], device=part.device)[:, None]
    smallest = part.topk(int(wanted.max()), dim=1).values.gather(1, wanted - 1)
    row, token = (part >= smallest).nonzero(as_tuple=True)
    value = part[row, token].cpu().numpy()
    where, ids = row.cpu().numpy(), token.cpu().numpy()
    order = np.lexsort((ids, -value, where))
    for i, token_id, number in zip(where.tolist(), ids[order].tolist(), value[order].tolist(), strict=True):
        if len(tops[rows[i]]) < counts[rows[i]]:
            tops[rows[i]].append((token_id, number))
    return tops


def _row_sums(x: torch.Tensor) -> torch.Tensor:
    """Sum of each row of ``x`` [R, V], which is overwritten: halves are added until one column is left.

    Plain additions in an order that V alone fixes, on every device and with any number of threads.
    """
    width = x.shape[1]
    while width > 1:
        half = (width + 1) // 2
        x[:, : width - half] += x[:, half:width]
        width = half
    return x[:, 0]


def _argmax(x: torch.Tensor) -> torch.Tensor:
    """The lowest id of each row's maximum. NumPy's is many times faster than torch's on a CPU."""
    if x.device.type == "cpu":
        return torch.from_numpy(x.numpy().argmax(axis=1))
    return x.argmax(dim=1)


def _pick(x: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
    """A copy of some rows."""
    return x.index_select(0, torch.tensor(rows, device=x.device))


def _column(values: Sequence[float], like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, device=like.device)[:, None]


def _index(ids: Sequence[Collection[int]], like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """``(row, id)`` index tensors of each row's ids."""
    row = np.repeat(np.arange(len(ids)), [len(own) for own in ids])
    token = np.fromiter(chain.from_iterable(ids), dtype=np.int64, count=len(row))
    return torch.from_numpy(row).to(like.device), torch.from_numpy(token).to(like.device)
