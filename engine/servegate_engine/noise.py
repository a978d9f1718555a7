"""The noise of a draw: a hash of (seed, position, token id), and nothing else.

There is no generator to advance, so batching, chunking and preemption cannot move a random number
(vllm#11898 is what state per request leads to). For one token, in unsigned 64-bit wrap-around::

    x = seed * 0x9E3779B97F4A7C15 + position * 0xBF58476D1CE4E5B9 + token * 0x94D049BB133111EB
    x ^= x >> 30;  x *= 0xBF58476D1CE4E5B9;  x ^= x >> 27;  x *= 0x94D049BB133111EB;  x ^= x >> 31
    u = ((x >> 11) + 0.5) * 2**-53
    g = -log(-log(u))

The second line is the finaliser of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
generators", OOPSLA 2014). ``u`` and ``g`` are float64. Kernels implement these four lines as they stand.

One corner, kept because the formula is fixed: of the 2**53 values of ``x >> 11`` the largest alone rounds to
``u == 1`` and gives ``g == inf``. Such a token wins its draw, so whoever adds ``g`` to logits has to mask
*after* adding (``-inf + inf`` is NaN).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

_SEED, _POSITION, _TOKEN = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def gumbel(draws: Sequence[tuple[int, int]], vocab_size: int, device: torch.device) -> torch.Tensor:
    """Standard Gumbel noise of every token for each ``(seed, position)`` of ``draws``: float64 [R, V]."""
    uniform = _hash(draws, vocab_size, device).to(torch.float64).add_(0.5).mul_(2.0**-53)
    return uniform.log_().neg_().log_().neg_()


def _hash(draws: Sequence[tuple[int, int]], vocab_size: int, device: torch.device) -> torch.Tensor:
    """The top 53 bits of the hash, int64 [R, V].

    torch has no unsigned arithmetic; signed products and sums wrap to the same bits, and only the right
    shifts need care.
    """
    rows = [_signed(seed * _SEED + position * _POSITION) for seed, position in draws]
    tokens = torch.arange(vocab_size, dtype=torch.int64, device=device).mul_(_signed(_TOKEN))
    x = torch.tensor(rows, dtype=torch.int64, device=device)[:, None] + tokens
    shifted = torch.empty_like(x)  # one buffer for all: fresh pages cost more than the arithmetic
    for bits, factor in _MIX:
        x.bitwise_xor_(_shift_right(x, bits, shifted)).mul_(_signed(factor))
    x.bitwise_xor_(_shift_right(x, 31, shifted))
    return _shift_right(x, 11, shifted)


def _shift_right(x: torch.Tensor, bits: int, out: torch.Tensor) -> torch.Tensor:
    """Logical shift: int64's own is arithmetic, so the copies of the sign bit are cleared."""
    return torch.bitwise_right_shift(x, bits, out=out).bitwise_and_((1 << (64 - bits)) - 1)


def _signed(value: int) -> int:
    """``value`` mod 2**64 as the int64 with the same bits."""
    value %= 1 << 64
    return value - (1 << 64) if value >> 63 else value
