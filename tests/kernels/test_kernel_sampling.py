"""Log-softmax and stateless sampling, against references written another way."""

from __future__ import annotations

import math

import pytest
import torch
from kernel_cases import DTYPES, numbers

from servegate_kernels.ops import Kernels

MASK = (1 << 64) - 1


def noise(seed: int, position: int, token: int) -> float:
    """The hash as specified, in Python's integers."""
    x = (seed * 0x9E3779B97F4A7C15 + position * 0xBF58476D1CE4E5B9 + token * 0x94D049BB133111EB) & MASK
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    x ^= x >> 31
    return -math.log(-math.log(((x >> 11) + 0.5) * 2.0**-53))


def kept_tokens(row: list[float], temperature: float, top_k: int, top_p: float, min_p: float) -> list[int]:
    """The kept set by sorting: what the kernel finds by bisection."""
    order = sorted((i for i, x in enumerate(row) if x > -math.inf), key=lambda i: (-row[i], i))
    if top_k > 0:
        order = order[:top_k]
    weights = [math.exp((row[i] - row[order[0]]) / temperature) for i in order]
    kept, before, mass = [], 0.0, sum(weights)
    for i, weight in zip(order, weights, strict=True):
        if kept and top_p < 1.0 and before >= top_p * mass:
            break
        before += weight
        if weight >= min_p:
            kept.append(i)
    return kept


def draw(
    kernels: Kernels,
    logits: torch.Tensor,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    seed: int = 1,
    first_position: int = 0,
) -> list[int]:
    rows = logits.shape[0]
    floats = [torch.full((rows,), x, dtype=torch.float64) for x in (temperature, top_p, min_p)]
    positions = torch.arange(first_position, first_position + rows)
    ids = kernels.sample(
        logits,
        floats[0],
        torch.full((rows,), top_k),
        floats[1],
        floats[2],
        torch.full((rows,), seed),
        positions,
    )
    return ids.tolist()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "min_p"),
    [
        (1.0, 0, 1.0, 0.0),
        (0.7, 5, 1.0, 0.0),
        (1.5, 0, 0.8, 0.0),
        (1.0, 40, 0.5, 0.0),
        (2.0, 0, 1.0, 0.2),
        (0.3, 1000, 0.99, 0.01),
    ],
)
def test_draws_match_the_sorted_reference(
    kernels: Kernels, dtype: torch.dtype, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    """Logits in steps of 1/8: plenty of ties at every boundary."""
    logits = (numbers(0, 6, 300).mul(8).round().div(4)).to(dtype)
    logits[1, :250] = -torch.inf
    drawn = draw(kernels, logits, temperature, top_k, top_p, min_p, seed=-3, first_position=1000)
    for row, token in enumerate(drawn):
        values = logits[row].double().tolist()
        kept = kept_tokens(values, temperature, top_k, top_p, min_p)
        highest = max(values)
        scores = {i: (values[i] - highest) / temperature + noise(-3, 1000 + row, i) for i in kept}
        assert token == max(kept, key=lambda i: (scores[i], -i))


def test_kept_set_by_many_draws(kernels: Kernels) -> None:
    """Ties at the boundary of top-k: the lowest ids stay, nothing else is ever drawn (tpu-inference#3580)."""
    row = torch.tensor([0.0, 2.0, 1.0, 1.0, 1.0, 2.0, -torch.inf, 1.0])
    logits = row.repeat(30, 1)
    assert set(draw(kernels, logits, temperature=9.0, top_k=4)) == {1, 2, 3, 5}
    assert set(draw(kernels, logits[:5], temperature=9.0, top_k=1)) == {1}
    assert set(draw(kernels, logits[:5], temperature=9.0, top_p=0.0)) == {1}
    assert set(draw(kernels, logits[:5], temperature=9.0, top_p=1e-9, top_k=3)) == {1}
    assert set(draw(kernels, logits.repeat(2, 1), temperature=9.0)) == {0, 1, 2, 3, 4, 5, 7}


@pytest.mark.parametrize("temperature", [0.0, 1e-300, 1e-12, 1e-5])
def test_greedy_and_almost_greedy_take_the_lowest_best(kernels: Kernels, temperature: float) -> None:
    """vllm#1623 and others: tiny temperatures must not become inf or NaN."""
    logits = torch.tensor([[1.0, 5.0, 4.999, -torch.inf, 5.0]])
    drawn = draw(kernels, logits, temperature, top_p=0.4)
    assert drawn == [1]


def test_nothing_to_draw(kernels: Kernels) -> None:
    assert draw(kernels, torch.full((1, 300), -torch.inf)) == [-1]
    for bad in (torch.nan, torch.inf):
        logits = numbers(0, 2, 300)
        logits[1, 299] = bad
        for temperature in (0.0, 1.0):
            drawn = draw(kernels, logits, temperature)
            assert drawn[0] >= 0
            assert drawn[1] == -1


def test_frequencies_follow_the_softmax(kernels: Kernels) -> None:
    """Chi-square over 1000 draws of 5 tokens; 18.5 is exceeded once in a thousand with 4
    degrees of freedom."""
    row = torch.tensor([0.0, 1.0, 2.0, -1.0, 0.5])
    expected = row.double().softmax(0) * 1000
    counts = torch.bincount(torch.tensor(draw(kernels, row.repeat(1000, 1), seed=7)), minlength=5)
    assert ((counts - expected).square() / expected).sum() < 18.5


def test_a_draw_depends_on_seed_and_position_only(kernels: Kernels, backwards_kernels: Kernels) -> None:
    logits = numbers(0, 1, 300).repeat(8, 1)
    drawn = draw(kernels, logits, first_position=50)
    assert [draw(kernels, logits[:1], first_position=50 + i)[0] for i in range(8)] == drawn
    assert draw(backwards_kernels, logits, first_position=50) == drawn
    assert draw(kernels, logits, seed=2, first_position=50) != drawn
    assert draw(kernels, logits, first_position=51) != drawn


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("vocabulary", [3, 300, 1000])
def test_log_softmax(kernels: Kernels, dtype: torch.dtype, vocabulary: int) -> None:
    logits = numbers(0, 4, vocabulary).mul(4).round().to(dtype)  # ties
    logits[1, 1] = -torch.inf
    tokens, top = torch.tensor([2, 1, -1, 0]), min(7, vocabulary)
    expected = logits.double().log_softmax(-1)
    chosen, ids, logprobs = kernels.log_softmax(logits, tokens, top)
    assert chosen[1] == -torch.inf
    assert chosen[2].isnan()
    torch.testing.assert_close(chosen[[0, 3]], expected[[0, 3], tokens[[0, 3]]], rtol=0, atol=1e-13)
    for row in range(4):
        order = sorted(range(vocabulary), key=lambda i: (-logits[row, i].item(), i))[:top]
        assert ids[row].tolist() == order
        torch.testing.assert_close(logprobs[row], expected[row, order], rtol=0, atol=1e-13)
    alone = kernels.log_softmax(logits[3:].clone(), tokens[3:], top)
    assert all(
        torch.equal(one, all_rows[3:]) for one, all_rows in zip(alone, (chosen, ids, logprobs), strict=True)
    )


def test_log_softmax_of_a_masked_or_nan_row(kernels: Kernels) -> None:
    logits = torch.full((2, 5), -torch.inf)
    logits[1, 2] = torch.nan
    chosen, ids, logprobs = kernels.log_softmax(logits, torch.tensor([3, 3]), 5)
    assert chosen[0] == -torch.inf
    assert (logprobs[0] == -torch.inf).all()
    assert ids[0].tolist() == [0, 1, 2, 3, 4]
    assert chosen[1].isnan()
    assert ids[1].tolist() == [0, 1, 3, 4, -1]
    assert logprobs[1].isnan().all()
