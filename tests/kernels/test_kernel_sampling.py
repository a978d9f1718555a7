"""Log-softmax and stateless sampling, against references written another way."""

from __future__ import annotations

import math
import os
from dataclasses import fields

import pytest
import torch
from kernel_cases import DTYPES, numbers

from servegate_kernels.ops import TOO_WIDE, Kernels, Logprobs

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
    floor = math.log(min_p) if min_p else -math.inf
    floats = [torch.full((rows,), x, dtype=torch.float64) for x in (temperature, top_p, floor)]
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
    result = kernels.log_softmax(logits, tokens, top)
    assert result.chosen[1] == -torch.inf
    assert result.chosen[2].isnan()
    torch.testing.assert_close(result.chosen[[0, 3]], expected[[0, 3], tokens[[0, 3]]], rtol=0, atol=1e-13)
    best = logits.double().topk(2, dim=-1).values
    assert torch.equal(result.margins, best[:, 0] - best[:, 1])
    for row in range(4):
        order = sorted(range(vocabulary), key=lambda i: (-logits[row, i].item(), i))[:top]
        assert result.top_ids[row].tolist() == order
        torch.testing.assert_close(result.top[row], expected[row, order], rtol=0, atol=1e-13)
    alone = kernels.log_softmax(logits[3:].clone(), tokens[3:], top)
    for field in fields(Logprobs):
        assert torch.equal(getattr(alone, field.name), getattr(result, field.name)[3:])


def test_log_softmax_of_a_masked_or_nan_row(kernels: Kernels) -> None:
    logits = torch.full((3, 5), -torch.inf)
    logits[1, 2] = torch.nan
    logits[2, 2] = torch.inf
    result = kernels.log_softmax(logits, torch.tensor([3, 3, 3]), 5)
    assert result.chosen[0] == -torch.inf
    assert (result.top[0] == -torch.inf).all()
    assert result.top_ids[0].tolist() == [0, 1, 2, 3, 4]
    assert result.chosen[1].isnan()
    assert result.top_ids[1].tolist() == [0, 1, 3, 4, -1]
    assert result.top[1].isnan().all()
    assert result.margins.isnan().all()


def test_the_margin_is_inf_where_one_token_is_possible(kernels: Kernels) -> None:
    logits = torch.tensor([[-torch.inf, 3.0, -torch.inf], [1.0, 1.0, 0.0]])
    assert kernels.log_softmax(logits, torch.tensor([1, 0]), 0).margins.tolist() == [math.inf, 0.0]


@pytest.mark.parametrize("vocabulary", [1025, 5000])
def test_top_p_gives_up_just_past_its_shortlist(kernels: Kernels, vocabulary: int) -> None:
    """Equal tokens, all of weight 1: sums are exact, and so is the length of the nucleus."""
    logits = torch.zeros(1, vocabulary)
    assert 0 <= draw(kernels, logits, top_p=1024 / vocabulary)[0] < 1024
    assert draw(kernels, logits, top_p=1025 / vocabulary - 1e-9) == [TOO_WIDE]


def halved(masses: list[float]) -> float:
    """The host sampler's ``_row_sums``, in Python's floats."""
    while len(masses) > 1:
        half = (len(masses) + 1) // 2
        right = [*masses[half:], 0.0]
        masses = [a + b for a, b in zip(masses[:half], right, strict=False)]
    return masses[0]


@pytest.mark.skipif(
    "SERVEGATE_KERNEL_TESTS" in os.environ, reason="to the last bit, with the host's exp only"
)
@pytest.mark.parametrize("vocabulary", [1300, 2999, 4096])
def test_top_p_adds_in_the_host_s_order_to_the_last_bit(kernels: Kernels, vocabulary: int) -> None:
    """Around the p at which the 1025th token becomes needed, each last bit of prefix and total decides."""
    logits = numbers(3, 1, vocabulary).float()
    values = logits[0].double().tolist()
    weights = [math.exp(x - max(values)) for x in values]
    prefix = 0.0
    for weight in sorted(weights, reverse=True)[:1024]:
        prefix += weight
    total = halved(weights)
    p = math.nextafter(math.nextafter(prefix / total, 0.0), 0.0)
    seen = set()
    for _ in range(5):
        too_wide = prefix < p * total
        seen.add(too_wide)
        assert (draw(kernels, logits, top_p=p) == [TOO_WIDE]) == too_wide
        p = math.nextafter(p, 1.0)
    assert len(seen) == 2


def test_top_p_of_a_top_k_past_the_shortlist_is_given_up(kernels: Kernels) -> None:
    """Its mass is that of ``top_k`` tokens, which are not sorted here."""
    logits = torch.zeros(1, 3000)
    assert draw(kernels, logits, top_p=0.01, top_k=1025) == [TOO_WIDE]
    assert 0 <= draw(kernels, logits, top_p=0.01, top_k=1024)[0] < 11
    assert 0 <= draw(kernels, logits, top_k=1025)[0] < 1025


def test_a_grid_that_cuda_refuses_is_one_clear_line(kernels: Kernels) -> None:
    x = torch.zeros(1, 65536 * 2 * 8 * 128, dtype=torch.float16)
    with pytest.raises(ValueError, match=r"silu_mul<f16>: a grid of 1 x 65536 x 1 blocks exceeds CUDA's"):
        kernels.silu_mul(x)
