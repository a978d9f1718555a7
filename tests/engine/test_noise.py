"""The hash behind every draw. Its values are fixed: kernels and stored baselines depend on them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from servegate_engine.noise import gumbel

CPU = torch.device("cpu")
MASK = 2**64 - 1
SEED, POSITION, TOKEN = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def reference_bits(seed: int, position: int, token: int) -> int:
    """The four lines of the module's docstring, in integers without a width."""
    x = (seed * SEED + position * POSITION + token * TOKEN) & MASK
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    x ^= x >> 31
    return x >> 11


def reference(seed: int, position: int, token: int) -> float:
    u = (reference_bits(seed, position, token) + 0.5) * 2.0**-53
    return -math.log(-math.log(u)) if u < 1.0 else math.inf


def inf_seed(position: int, token: int) -> int:
    """A seed whose hash has the 53 top bits all set, found by running the hash backwards."""

    def undo_shift(x: int, bits: int) -> int:
        y = x
        for _ in range(64 // bits + 1):
            y = x ^ (y >> bits)
        return y

    for low_bits in range(2**11):
        x = undo_shift(MASK - low_bits, 31)
        x = undo_shift(x * pow(0x94D049BB133111EB, -1, 2**64) & MASK, 27)
        x = undo_shift(x * pow(0xBF58476D1CE4E5B9, -1, 2**64) & MASK, 30)
        seed = (x - position * POSITION - token * TOKEN) * pow(SEED, -1, 2**64) & MASK
        if seed < 2**63:
            return seed
    raise LookupError("no such seed")


GOLDEN = [
    (0, 0, 0, 0x00000000000000, -3.62247112598261),
    (0, 0, 1, 0x05091AD494F651, -0.6147585422037777),
    (0, 1, 0, 0x1E5FD4B047DA74, 2.9538658570573757),
    (1, 0, 0, 0x1C4415072F63B9, 2.08684367696744),
    (42, 17, 49151, 0x182A78B5A6F6C6, 1.270136920094776),
    (9223372036854775807, 131071, 151935, 0x0EFBBF198AAF3D, 0.27602494523834376),
    (1234567890123456789, 4096, 1000, 0x1EA859802945C4, 3.149937641678974),
]


@pytest.mark.parametrize(("seed", "position", "token", "bits", "noise"), GOLDEN)
def test_the_values_are_these_for_ever(seed: int, position: int, token: int, bits: int, noise: float) -> None:
    assert reference_bits(seed, position, token) == bits
    assert float(gumbel([(seed, position)], token + 1, CPU)[0, token]) == pytest.approx(
        noise, rel=1e-14, abs=1e-14
    )


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**31), st.integers(1, 300))
def test_equal_to_the_reference_in_plain_python(seed: int, position: int, vocab_size: int) -> None:
    """Two log functions, each within an ulp; near u = 1 and u = 1/e the outer one enlarges that."""
    row = gumbel([(seed, position)], vocab_size, CPU)[0]
    expected = [reference(seed, position, token) for token in range(vocab_size)]
    assert row.tolist() == pytest.approx(expected, rel=1e-13, abs=1e-13)


def test_a_row_does_not_depend_on_its_neighbours_nor_on_the_vocabulary() -> None:
    draws = [(seed, position) for seed in (0, 1, 2**63 - 1) for position in (0, 1, 4096)]
    together = gumbel(draws, 1001, CPU)
    for row, draw in zip(together, draws, strict=True):
        assert torch.equal(row, gumbel([draw], 1001, CPU)[0])
        assert torch.equal(row[:64], gumbel([draw], 64, CPU)[0])


def test_the_largest_hash_gives_infinity_and_its_neighbour_does_not() -> None:
    """The corner that the module names: (2**53 - 1) + 0.5 rounds to 2**53."""
    seed = inf_seed(position=7, token=2)
    assert reference_bits(seed, 7, 2) == 2**53 - 1
    row = gumbel([(seed, 7)], 4, CPU)[0]
    assert row[2] == math.inf
    assert row[[0, 1, 3]].isfinite().all()
    assert (2**53 - 2 + 0.5) * 2.0**-53 < 1.0


def test_no_two_draws_of_a_request_share_a_hash_input() -> None:
    """``position * b + token * c`` repeats only if ``dp * b + dt * c = 0`` mod 2**64. For every distance in
    position up to 2**20 the one ``dt`` that does it is beyond any vocabulary."""
    inverse = pow(TOKEN, -1, 2**64)
    distance = np.arange(1, 2**20, dtype=np.uint64) * np.uint64(POSITION * inverse & MASK)
    nearest = np.minimum(distance, ~distance + np.uint64(1))
    assert int(nearest.min()) > 2**32


@pytest.mark.parametrize("axis", ["seed", "position", "token"])
def test_the_noise_is_standard_gumbel_along_each_axis(axis: str) -> None:
    n = 40_000
    if axis == "token":
        values = gumbel([(3, 5)], n, CPU)[0]
    else:
        values = gumbel([(i, 5) if axis == "seed" else (3, i) for i in range(n)], 1, CPU)[:, 0]
    assert stats.kstest(values.numpy(), "gumbel_r").pvalue > 0.01


@pytest.mark.parametrize("step", [(1, 0), (0, 1), (1, 1), (2**32, 0)], ids=str)
def test_neighbouring_seeds_positions_and_tokens_are_uncorrelated(step: tuple[int, int]) -> None:
    """Of 40,000 independent pairs a correlation beyond 4 standard errors (0.02) has odds of 1 in 16,000."""
    n = 40_000
    here = gumbel([(11, 13)], n, CPU)[0].numpy()
    there = gumbel([(11 + step[0], 13 + step[1])], n, CPU)[0].numpy()
    assert abs(np.corrcoef(here, there)[0, 1]) < 0.02
    assert abs(np.corrcoef(here[:-1], here[1:])[0, 1]) < 0.02
