"""``sampling.py`` on kernels against ``sampling.py``: the same tokens, and numbers within rounding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from servegate_engine import sampling
from servegate_engine.backends import cuda_sampling
from servegate_engine.request import SamplingParams, TokenLogprob
from servegate_engine.sampling import SampleRow
from servegate_kernels.ops import Kernels

WIDE = {"temperature": 9.0, "top_p": 0.999}
"""Needs more tokens than the kernel sorts, where there are more."""


def random_rows(count: int, vocabulary: int, seed: int) -> list[SampleRow]:
    """Every mixture of parameters, histories with repeats, suppressed ids and given tokens among them."""
    generator = np.random.default_rng(seed)

    def one_of(*values: Any) -> Any:
        return values[generator.integers(len(values))]

    def ids(most: int) -> list[int]:
        return generator.integers(0, vocabulary, generator.integers(most + 1)).tolist()

    rows = []
    for _ in range(count):
        params = SamplingParams(
            temperature=one_of(0.0, 1e-9, 1e-5, 0.3, 1.0, 3.0),
            top_k=one_of(0, 0, 1, 5, 40, 1100),
            top_p=one_of(1.0, 1.0, 0.0, 0.1, 0.83, 0.99),
            min_p=one_of(0.0, 0.0, 0.07, 1.0),
            repetition_penalty=one_of(1.0, 1.0, 0.5, 1.5),
            presence_penalty=one_of(0.0, 0.0, -0.5, 1.25),
            frequency_penalty=one_of(0.0, 0.0, -0.25, 0.75),
            seed=int(generator.integers(2**63)),
            top_logprobs=one_of(0, 1, 3, 20),
        )
        given = one_of(None, None, None, int(generator.integers(vocabulary)))
        rows.append(SampleRow(params, ids(6), ids(6), one_of((), (), tuple(ids(4))), given))
    return rows


def assert_same(results: Sequence[TokenLogprob | None], expected: Sequence[TokenLogprob | None]) -> None:
    for mine, other in zip(results, expected, strict=True):
        assert (mine is None) == (other is None)
        if mine is not None and other is not None:
            assert mine.token_id == other.token_id
            assert mine.margin == other.margin
            assert [token_id for token_id, _ in mine.top] == [token_id for token_id, _ in other.top]
            numbers = [mine.logprob, *(logprob for _, logprob in mine.top)]
            assert numbers == pytest.approx([other.logprob, *(x for _, x in other.top)], rel=0, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("vocabulary", "count"), [(1, 5), (3, 20), (300, 60), (2500, 25)])
def test_every_row_is_that_of_the_host_s_sampler(
    kernels: Kernels, vocabulary: int, count: int, dtype: torch.dtype
) -> None:
    """Logits in steps of 1/16, so with many ties, and with -inf, NaN and +inf among them."""
    generator = np.random.default_rng(vocabulary)
    values = generator.normal(0.0, 3.0, (count, vocabulary)).__mul__(16).round() / 16
    values[generator.random(values.shape) < 0.1] = -math.inf
    values[:, -1] = 1.0
    values[count // 2, 0] = math.nan
    values[count // 3, 0] = math.inf
    logits = torch.from_numpy(values).to(dtype)
    rows = random_rows(count, vocabulary, seed=vocabulary)
    results = cuda_sampling.sample(kernels, logits, rows)
    assert_same(results, sampling.sample(logits, rows))
    assert results.count(None) >= (2 if vocabulary > 1 else 1)


def test_a_nucleus_wider_than_the_shortlist_is_drawn_by_the_host_s_sampler(kernels: Kernels) -> None:
    logits = torch.from_numpy(np.random.default_rng(0).normal(0.0, 1.0, (6, 3000)))
    rows = [SampleRow(SamplingParams(seed=i, **WIDE), (1,), ()) for i in range(6)]
    rows[2] = SampleRow(SamplingParams(top_logprobs=2), (1,), ())
    assert_same(cuda_sampling.sample(kernels, logits, rows), sampling.sample(logits, rows))


def test_a_row_is_alone(kernels: Kernels) -> None:
    """The same bits whatever shares the call, edited rows and wide ones included."""
    logits = torch.from_numpy(np.random.default_rng(1).normal(0.0, 3.0, (12, 1500))).float()
    rows = random_rows(12, 1500, seed=3)
    rows[5] = SampleRow(SamplingParams(**WIDE), (1,), ())
    alone = [cuda_sampling.sample(kernels, logits[i : i + 1], [row])[0] for i, row in enumerate(rows)]
    assert cuda_sampling.sample(kernels, logits, rows) == alone


def test_no_rows_and_wrong_rows(kernels: Kernels) -> None:
    assert cuda_sampling.sample(kernels, torch.zeros(0, 5), []) == []
    with pytest.raises(ValueError, match="2 rows of logits, but 1 rows to sample"):
        cuda_sampling.sample(kernels, torch.zeros(2, 5), random_rows(1, 5, 0))
