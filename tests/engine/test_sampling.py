"""The sampler. Fault numbers and repository references name the public reports a test comes from."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from test_noise import inf_seed

from servegate_engine import sampling
from servegate_engine.noise import gumbel
from servegate_engine.request import SamplingParams, TokenLogprob
from servegate_engine.sampling import GREEDY_BELOW, SampleRow, sample

INF = math.inf


def row(
    prompt: Sequence[int] = (0,),
    output: Sequence[int] = (),
    suppress: Sequence[int] = (),
    given: int | None = None,
    **params: Any,
) -> SampleRow:
    return SampleRow(SamplingParams(**params), prompt, output, suppress, given)


def draw(logits: Sequence[float], *rows: SampleRow) -> list[int]:
    """The ids drawn from the same logits under each of ``rows``."""
    results = sample(torch.tensor([logits] * len(rows), dtype=torch.float64), rows)
    return [result.token_id for result in results if result is not None]


def one(logits: Sequence[float], **kwargs: Any) -> TokenLogprob:
    result = sample(torch.tensor([logits], dtype=torch.float64), [row(**kwargs)])[0]
    assert result is not None
    return result


def seeds(count: int, **kwargs: Any) -> list[SampleRow]:
    return [row(seed=seed, **kwargs) for seed in range(count)]


# -- the obvious sampler: one row, plain Python, sorting -------------------------------------------------


def by_rank(values: dict[int, float]) -> list[int]:
    return sorted(values, key=lambda token: (-values[token], token))


def edited(logits: Sequence[float], r: SampleRow) -> dict[int, float]:
    """Steps 2 to 4 of the order in ``sampling.py``."""
    p = r.params
    values = {token: logit for token, logit in enumerate(logits) if token not in r.suppress and logit > -INF}
    for token in {*r.prompt_ids, *r.output_ids} & values.keys():
        penalty = p.repetition_penalty
        values[token] = values[token] / penalty if values[token] > 0 else values[token] * penalty
    for token, count in Counter(r.output_ids).items():
        if token in values:
            values[token] -= p.presence_penalty + p.frequency_penalty * count
    return values


def kept(logits: Sequence[float], r: SampleRow) -> dict[int, float]:
    """Steps 2 to 9: the tokens that may be drawn, with their scaled logits."""
    p = r.params
    values = edited(logits, r)
    if not values:
        return {}
    if p.temperature < GREEDY_BELOW:
        return {by_rank(values)[0]: 0.0}
    peak = max(values.values())
    values = {token: (value - peak) / p.temperature for token, value in values.items()}
    ranked = by_rank(values)[: p.top_k or None]
    if p.top_p < 1.0:
        total = sum(math.exp(values[token]) for token in ranked)
        nucleus, mass = [], 0.0
        for token in ranked:
            nucleus.append(token)
            mass += math.exp(values[token])
            if mass >= p.top_p * total:
                break
        ranked = nucleus
    if p.min_p > 0:
        ranked = [token for token in ranked if values[token] >= math.log(p.min_p)]
    return {token: values[token] for token in ranked}


def reference(logits: Sequence[float], r: SampleRow) -> int | None:
    values = kept(logits, r)
    if not values:
        return None
    position = len(r.prompt_ids) + len(r.output_ids)
    noise = gumbel([(r.params.seed, position)], len(logits), torch.device("cpu"))[0].tolist()
    return by_rank({token: value + noise[token] for token, value in values.items()})[0]


@st.composite
def cases(draw: st.DrawFn, max_rows: int = 5) -> tuple[list[list[float]], list[SampleRow]]:
    """Rows of logits with -inf among them, each under its own parameters.

    Sixteenths: many exact ties, and differences far above any rounding.
    """
    vocab_size = draw(st.integers(1, 12))
    ids = st.lists(st.integers(0, vocab_size - 1), max_size=4)
    sixteenths = st.integers(-32, 32).map(lambda n: n / 16)
    logit = st.one_of(sixteenths, sixteenths, st.just(-INF))
    logits, rows = [], []
    for _ in range(draw(st.integers(1, max_rows))):
        values = draw(st.lists(logit, min_size=vocab_size, max_size=vocab_size))
        values[draw(st.integers(0, vocab_size - 1))] = 1.0
        logits.append(values)
        params = SamplingParams(
            temperature=draw(st.sampled_from([0.0, 1e-9, 1e-5, 0.3, 0.7, 1.0, 3.0])),
            top_k=draw(st.sampled_from([0, 0, 0, 1, 2, 5, 100])),
            top_p=draw(st.sampled_from([1.0, 1.0, 1.0, 0.0, 0.1, 0.45, 0.83, 0.999])),
            min_p=draw(st.sampled_from([0.0, 0.0, 0.0, 0.07, 0.4, 1.0])),
            repetition_penalty=draw(st.sampled_from([1.0, 1.0, 0.5, 1.5])),
            presence_penalty=draw(st.sampled_from([0.0, 0.0, -0.5, 1.25])),
            frequency_penalty=draw(st.sampled_from([0.0, 0.0, -0.25, 0.75])),
            seed=draw(st.integers(0, 2**63 - 1)),
            top_logprobs=draw(st.sampled_from([0, 0, 1, 3, 20])),
        )
        rows.append(SampleRow(params, draw(ids), draw(ids), draw(st.one_of(st.just([]), ids))))
    return logits, rows


@settings(max_examples=150)
@given(cases())
def test_every_draw_is_that_of_the_obvious_sampler(case: tuple[list[list[float]], list[SampleRow]]) -> None:
    logits, rows = case
    results = sample(torch.tensor(logits, dtype=torch.float64), rows)
    ids = [None if result is None else result.token_id for result in results]
    assert ids == [reference(values, r) for values, r in zip(logits, rows, strict=True)]


@settings(max_examples=50)
@given(cases())
def test_fault_40_the_token_is_always_one_that_the_transforms_kept(
    case: tuple[list[list[float]], list[SampleRow]],
) -> None:
    """vllm-metal#622."""
    logits, rows = case
    for values, r, result in zip(logits, rows, sample(torch.tensor(logits), rows), strict=True):
        assert result is None or result.token_id in kept(values, r)


@settings(max_examples=50)
@given(cases())
def test_temperature_zero_is_the_limit_of_the_cold(case: tuple[list[list[float]], list[SampleRow]]) -> None:
    """At 1e-5 a lead of 1/16 is 6,250 nat. Among exact ties a temperature above the threshold still draws."""
    logits, rows = case
    for values, r in zip(logits, rows, strict=True):
        left = sorted(edited(values, r).values())
        if len(left) > 1 and left[-1] - left[-2] > 1e-3:
            same = [replace(r, params=replace(r.params, temperature=t)) for t in (0.0, 1e-12, GREEDY_BELOW)]
            assert len(set(draw(values, *same))) == 1


def test_top_p_is_a_share_of_what_a_long_top_k_kept() -> None:
    """Also where top-k is longer than the shortlist: 744 tokens hold 0.8 of the best 1500, 884 of all."""
    logits = [3.0] * 900 + [0.0] * 4100
    drawn = draw(logits, *seeds(200, temperature=1.0, top_k=1500, top_p=0.8))
    assert max(drawn) < len(kept(logits, row(temperature=1.0, top_k=1500, top_p=0.8))) == 744


# -- a row is alone --------------------------------------------------------------------------------------

MIXED = (
    {},
    {"top_logprobs": 7},
    {"temperature": 1.0},
    {"temperature": 0.8, "top_p": 0.9, "top_logprobs": 3},
    {"temperature": 5.0, "top_p": 0.999},
    {"temperature": 1.3, "top_k": 40, "min_p": 0.01},
    {"temperature": 0.0, "repetition_penalty": 1.3},
    {"temperature": 1.0, "presence_penalty": 0.5, "frequency_penalty": 0.25, "top_k": 2000},
)


def mixed_batch(vocab_size: int, dtype: torch.dtype) -> tuple[torch.Tensor, list[SampleRow]]:
    logits = np.random.default_rng(vocab_size).normal(0.0, 3.0, (len(MIXED), vocab_size))
    history = [token % vocab_size for token in range(0, 300, 7)]
    rows = [row(history, history[:i], seed=i, **params) for i, params in enumerate(MIXED)]
    return torch.from_numpy(logits).to(dtype), rows


def alone(logits: torch.Tensor, rows: Sequence[SampleRow]) -> list[TokenLogprob | None]:
    return [sample(logits[i : i + 1], [r])[0] for i, r in enumerate(rows)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("vocab_size", [1, 7, 64, 1000, 32_768, 49_152, 50_001])
def test_a_row_has_the_same_bits_alone_and_in_a_batch(vocab_size: int, dtype: torch.dtype) -> None:
    logits, rows = mixed_batch(vocab_size, dtype)
    assert sample(logits, rows) == alone(logits, rows)


def test_the_check_above_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inverse: a sum whose order depends on the number of rows is found out."""

    def by_row_count(x: torch.Tensor) -> torch.Tensor:
        return x.flip(1).cumsum(1)[:, -1] if len(x) > 1 else x.cumsum(1)[:, -1]

    monkeypatch.setattr(sampling, "_row_sums", by_row_count)
    logits, rows = mixed_batch(1000, torch.float64)
    assert sample(logits, rows) != alone(logits, rows)


@settings(max_examples=50)
@given(cases(), st.randoms(use_true_random=False))
def test_permuted_rows_give_permuted_results(
    case: tuple[list[list[float]], list[SampleRow]], random: Any
) -> None:
    logits, rows = case
    order = list(range(len(rows)))
    random.shuffle(order)
    results = sample(torch.tensor(logits), rows)
    assert results == alone(torch.tensor(logits), rows)
    assert sample(torch.tensor([logits[i] for i in order]), [rows[i] for i in order]) == [
        results[i] for i in order
    ]


def test_working_block_by_block_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, rows = mixed_batch(1000, torch.float32)
    whole = sample(logits, rows)
    for block in (1, 2500, 3000):
        monkeypatch.setattr(sampling, "_BLOCK", block)
        assert sample(logits, rows) == whole


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_the_number_of_threads_changes_nothing(threads: Callable[[int], None]) -> None:
    logits, rows = mixed_batch(150_001, torch.float32)
    threads(1)
    single = sample(logits, rows)
    threads(2)
    assert sample(logits, rows) == single


def test_the_logits_are_left_as_they_are() -> None:
    for dtype in (torch.float32, torch.float64):
        logits, rows = mixed_batch(64, dtype)
        before = logits.clone()
        sample(logits, rows)
        assert torch.equal(logits, before)


def test_logits_that_need_gradients_or_come_from_inference_mode_are_fine() -> None:
    logits, rows = mixed_batch(64, torch.float64)
    expected = sample(logits, rows)
    assert sample(logits.clone().requires_grad_(), rows) == expected
    with torch.inference_mode():
        inference = logits.clone()
        assert sample(inference, rows) == expected
    assert sample(inference, rows) == expected


# -- logprobs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vocab_size", [2, 3, 64, 50_001])
def test_logprobs_are_log_softmax_to_an_ulp_or_two(vocab_size: int) -> None:
    """Against exact summation. A halving tree of n positive terms is off by at most log2(n) roundings
    relative, so the logarithm by 16 * 1.1e-16 here, and the difference adds roundings of its own size."""
    logits = np.random.default_rng(1).normal(0.0, 3.0, vocab_size)
    log_total = logits.max() + math.log(math.fsum(math.exp(x - logits.max()) for x in logits))
    result = one(logits.tolist(), top_logprobs=min(20, vocab_size))
    assert result.logprob == pytest.approx(logits.max() - log_total, abs=1e-14)
    second, first = sorted(logits)[-2:]
    assert result.margin == first - second
    for token, logprob in result.top:
        assert logprob == pytest.approx(logits[token] - log_total, abs=2e-14)
    assert [token for token, _ in result.top] == np.argsort(-logits, kind="stable")[:20].tolist()


def test_float32_logits_are_widened_before_anything_else() -> None:
    logits = torch.tensor([[3.1, 2.2, -1.7, 0.3]])
    assert sample(logits, [row(top_logprobs=4)]) == sample(logits.double(), [row(top_logprobs=4)])


def test_fault_38_reported_numbers_are_raw_whatever_is_done_to_the_logits() -> None:
    """vllm#9453, ollama#16196, trl#4159, prime-rl#697."""
    logits = [1.0, 0.5, -0.25, 3.0]
    plain = one(logits, given=3, top_logprobs=4)
    for params in (
        {"temperature": 0.5}, {"temperature": 2.0, "top_k": 1}, {"top_p": 0.1, "temperature": 1.0},
        {"repetition_penalty": 5.0}, {"presence_penalty": 2.0}, {"frequency_penalty": -2.0},
    ):  # fmt: skip
        assert one(logits, prompt=[3], output=[3], given=3, top_logprobs=4, **params) == plain
        drawn = one(logits, prompt=[3], output=[3], top_logprobs=4, **params)
        assert (drawn.logprob, drawn.margin, drawn.top) == (
            dict(plain.top)[drawn.token_id],
            plain.margin,
            plain.top,
        )
    assert one(logits, suppress=[3], top_logprobs=4).top == plain.top


def test_fault_39_a_token_is_listed_once() -> None:
    """vllm#36660, #36746: exactly ``top_logprobs`` unique entries, the drawn token among them or not."""
    greedy = one([1.0, 3.0, 2.0, 0.0], top_logprobs=3)
    assert [token for token, _ in greedy.top] == [1, 2, 0]
    assert greedy.top[0] == (greedy.token_id, greedy.logprob)
    assert [token for token, _ in one([1.0, 3.0, 2.0, 0.0], given=3, top_logprobs=3).top] == [1, 2, 0]


def test_top_logprobs_list_ties_by_lowest_id() -> None:
    assert [token for token, _ in one([1.0, 2.0, 1.0, 2.0, 1.0], top_logprobs=4).top] == [1, 3, 0, 2]
    assert [token for token, _ in one([0.0] * 5000, top_logprobs=3).top] == [0, 1, 2]


def test_a_vocabulary_smaller_than_top_logprobs_is_listed_whole() -> None:
    assert [token for token, _ in one([0.0, 1.0], top_logprobs=20).top] == [1, 0]


def test_a_given_token_is_scored_and_nothing_is_drawn() -> None:
    result = one([1.0, 3.0, 2.0], given=2, temperature=1.0, suppress=[2])
    assert result.token_id == 2
    assert result.logprob == pytest.approx(2.0 - math.log(sum(map(math.exp, (1.0, 3.0, 2.0)))), abs=1e-15)
    assert result.margin == 1.0


def test_an_impossible_given_token_scores_minus_infinity() -> None:
    assert one([1.0, -INF], given=1).logprob == -INF


def test_margins_at_the_edges() -> None:
    tie = one([2.0, 2.0, 1.0])
    assert (tie.token_id, tie.margin, math.copysign(1.0, tie.margin)) == (0, 0.0, 1.0)
    assert one([2.0]).margin == INF
    assert one([2.0, -INF]).margin == INF
    assert one([2.0]).logprob == 0.0


@pytest.mark.parametrize("params", MIXED)
@pytest.mark.parametrize("bad", [[math.nan, 0.0, 1.0], [0.0, INF, 1.0], [-INF] * 3, [INF, math.nan, -INF]])
def test_a_row_without_finite_logits_is_none_and_its_neighbours_are_served(
    bad: list[float], params: dict[str, Any]
) -> None:
    logits = torch.tensor([[0.0, 1.0, 3.0], bad, [0.0, 5.0, -INF]])
    rows = [row(), row([1], [2], **params), row()]
    results = sample(logits, rows)
    assert results[1] is None
    assert [result.token_id for result in results if result is not None] == [2, 1]


def test_a_row_with_nothing_left_to_draw_is_none() -> None:
    rows = [row(suppress=[0, 1]), row(suppress=[0, 1], temperature=1.0)]
    assert sample(torch.zeros(2, 2), rows) == [None, None]
    assert sample(torch.tensor([[-INF, 1.0]]), [row(suppress=[1])]) == [None]


def test_rows_and_logits_must_match() -> None:
    assert sample(torch.zeros(0, 4), []) == []
    with pytest.raises(ValueError, match="2 rows of logits, but 1 rows to sample"):
        sample(torch.zeros(2, 4), [row()])


# -- penalties -------------------------------------------------------------------------------------------


def test_fault_29_presence_and_frequency_ignore_the_prompt_and_repetition_does_not() -> None:
    """vllm-metal#69, TRT-LLM#5623, vmlx-swift#294. Token 0 leads by 0.5 and is in the prompt."""
    logits = [2.0, 1.5, 0.0]
    for penalty in ({"presence_penalty": 1.0}, {"frequency_penalty": 1.0}):
        assert one(logits, prompt=[0], **penalty).token_id == 0
        assert one(logits, prompt=[0], output=[0], **penalty).token_id == 1
    assert one(logits, prompt=[0], repetition_penalty=2.0).token_id == 1
    assert one(logits, prompt=[2], output=[0], repetition_penalty=2.0).token_id == 1


def test_fault_30_the_history_includes_the_last_token() -> None:
    """vllm-gaudi#1769, MTPLX#157: a model that repeats a token; the penalty flips it at step 2."""
    logits = [2.0, 1.5, 0.0]
    output: list[int] = []
    for _ in range(4):
        output.append(one(logits, output=output, frequency_penalty=1.0).token_id)
    assert output == [0, 1, 0, 1]


def test_frequency_counts_and_presence_does_not() -> None:
    assert one([3.0, 1.5], output=[0, 0, 0], presence_penalty=1.0).token_id == 0
    assert one([3.0, 1.5], output=[0], frequency_penalty=1.0).token_id == 0
    assert one([3.0, 1.5], output=[0, 0], frequency_penalty=1.0).token_id == 1


def test_repetition_pushes_negative_logits_down_too() -> None:
    assert one([-1.0, -1.5], prompt=[0], repetition_penalty=2.0).token_id == 1
    assert one([-1.0, -0.8], prompt=[0, 0, 0], repetition_penalty=0.5).token_id == 0


@pytest.mark.parametrize(
    "params",
    [
        {"repetition_penalty": 1e-308}, {"repetition_penalty": 1e308}, {"presence_penalty": 1e308},
        {"frequency_penalty": -1e308}, {"frequency_penalty": 1e308, "presence_penalty": -1e308},
    ],
)  # fmt: skip
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_no_penalty_is_large_enough_to_break_a_row(params: dict[str, float], temperature: float) -> None:
    rows = [row([0, 2], [0, 0, 0, 1, 1, 2], temperature=temperature, **params)]
    logits = torch.tensor([[1e10, -1e10, -INF, 1.0]])
    result = sample(logits, rows)[0]
    assert result is not None
    assert result.token_id != 2


def test_a_penalty_beyond_float64_makes_ties_not_masks() -> None:
    assert one([-1e10, -1e10], prompt=[0, 1], repetition_penalty=1e308).token_id == 0
    rows = seeds(40, prompt=[0, 1], repetition_penalty=1e-308, temperature=1.0)
    assert set(draw([1e10, 1e10], *rows)) == {0, 1}


# -- greedy, temperature ---------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1e-12, 1e-9, 1e-6, 1e-5, 1e-4, 1e-3])
def test_fault_34_a_tiny_temperature_neither_overflows_nor_wanders(temperature: float) -> None:
    """vllm#1623, #3063, #2937, TRT-LLM#15715."""
    for logits in ([1e4, 1e4 - 1.0, -1e4], [-1e30, 1e30, 0.0], [1.0, 2.0, -INF]):
        best = logits.index(max(logits))
        assert draw(logits, *seeds(20, temperature=temperature)) == [best] * 20


def test_ties_are_drawn_at_the_threshold_and_go_to_the_lowest_id_below_it() -> None:
    assert draw([2.0, 2.0], *seeds(40, temperature=GREEDY_BELOW * 0.99)) == [0] * 40
    assert set(draw([2.0, 2.0], *seeds(40, temperature=GREEDY_BELOW))) == {0, 1}


@pytest.mark.parametrize("temperature", [5e-324, 1.7e308])
def test_the_extreme_temperatures(temperature: float) -> None:
    drawn = set(draw([0.0, 5.0, -5.0], *seeds(200, temperature=temperature)))
    assert drawn == ({1} if temperature < 1 else {0, 1, 2})


def test_greedy_ignores_the_filters() -> None:
    """mini-sglang samples at temperature 0 unless top_p is 1."""
    logits = [1.0, 1.0 + 1e-12, 0.0]
    assert draw(logits, *seeds(20, top_p=0.9, top_k=2, min_p=0.1)) == [1] * 20


def test_fault_35_greedy_rows_bypass_scaling_in_a_mixed_batch() -> None:
    """vllm#22180: a stand-in temperature of -1 turned -inf into +inf."""
    logits = torch.tensor([[-INF, 1.0, 2.0, -INF]] * 3)
    rows = [row(temperature=0.7, seed=1), row(suppress=[2]), row(temperature=0.7, seed=2)]
    results = sample(logits, rows)
    assert results[1] is not None
    assert results[1].token_id == 1
    assert all(result is not None and result.token_id in (1, 2) for result in results)


# -- top-k, top-p, min-p ---------------------------------------------------------------------------------


def test_fault_31_top_k_one_is_the_lowest_id_of_the_best() -> None:
    """tpu-inference#3580."""
    assert draw([0.0, 2.0, 2.0], *seeds(50, temperature=1.0, top_k=1)) == [1] * 50


@pytest.mark.parametrize("batch", [1, 8])
def test_fault_18_top_k_keeps_exactly_k_of_tied_tokens_at_any_batch_size(batch: int) -> None:
    """vllm#50979."""
    rows = seeds(400, temperature=1.0, top_k=3)
    logits = [1.0, 0.0, 1.0, 2.0, 1.0]
    drawn = {token for i in range(0, 400, batch) for token in draw(logits, *rows[i : i + batch])}
    assert drawn == {0, 2, 3}


def test_fault_32_top_p_is_a_share_of_what_top_k_left() -> None:
    """mlx-lm#388: top-k first, then an un-normalised top-p masked everything."""
    assert draw([0.0] * 10, *seeds(50, temperature=1.0, top_k=1, top_p=0.8)) == [0] * 50
    assert set(draw([0.0] * 10, *seeds(400, temperature=1.0, top_k=4, top_p=0.75))) == {0, 1, 2}


@pytest.mark.parametrize(("top_p", "count"), [(0.0, 1), (1e-9, 1), (0.5, 4), (0.51, 5), (1.0, 8)])
def test_fault_33_top_p_keeps_the_best_and_stops_at_p(top_p: float, count: int) -> None:
    """simply#42: an empty set became token 0. Eight equal tokens: p = 0.5 is reached by exactly four."""
    assert set(draw([0.0] * 8, *seeds(800, temperature=1.0, top_p=top_p))) == set(range(count))
    assert draw([0.0, 0.0, 9.0], *seeds(9, temperature=1.0, top_p=min(top_p, 0.5))) == [2] * 9


def test_top_p_looks_beyond_its_first_guess() -> None:
    """5,000 equal tokens, half of the mass: ids 0 to 2,499 stay, and top-k alone may ask for as many."""
    for params in ({"top_p": 0.5}, {"top_k": 2500}, {"top_k": 5000, "top_p": 0.5}):
        drawn = draw([0.0] * 5000, *seeds(60, temperature=1.0, **params))
        assert max(drawn) < 2500
        assert max(drawn) > 2000


def test_min_p_is_relative_to_the_best() -> None:
    logits = [math.log(8), math.log(4), math.log(3.9), 0.0]
    assert set(draw(logits, *seeds(400, temperature=1.0, min_p=0.4999))) == {0, 1}
    assert set(draw([1.0, 1.0, 0.99], *seeds(100, temperature=1.0, min_p=1.0))) == {0, 1}


# -- the draw --------------------------------------------------------------------------------------------

LOGITS = [0.0, 1.0, -1.0, 0.5, 2.0, -2.0, 0.25, 1.5]


def softmax(logits: Sequence[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    weights = np.exp(np.array(logits))
    return weights / weights.sum()


def walk(count: int, seed: int = 0, **params: Any) -> list[int]:
    """Draws at ``count`` successive positions."""
    params = {"temperature": 1.0, **params}
    return draw(LOGITS, *[row(range(n), seed=seed, **params) for n in range(1, count + 1)])


def chi_square(drawn: Sequence[int], probabilities: Any) -> float:
    counts = np.bincount(drawn, minlength=len(LOGITS))
    return float(stats.chisquare(counts, probabilities * len(drawn)).pvalue)


def test_draws_follow_the_softmax_over_positions_and_over_seeds() -> None:
    assert chi_square(walk(20_000), softmax(LOGITS)) > 0.01
    assert chi_square(draw(LOGITS, *seeds(20_000, temperature=1.0)), softmax(LOGITS)) > 0.01


@pytest.mark.parametrize("temperature", [0.3, 0.7, 3.0])
def test_draws_follow_the_softmax_at_any_temperature(temperature: float) -> None:
    expected = softmax([x / temperature for x in LOGITS])
    drawn = walk(10_000, temperature=temperature)
    # Cells that expect fewer than five draws are pooled, as the test statistic needs.
    common = expected * len(drawn) >= 5
    counts = np.bincount(drawn, minlength=len(LOGITS))
    observed, wanted = (np.append(x[common], x[~common].sum()) for x in (counts, expected * len(drawn)))
    used = wanted > 0
    assert stats.chisquare(observed[used], wanted[used]).pvalue > 0.01


def test_the_chi_square_can_fail() -> None:
    """Inverse: the same draws against a softmax at temperature 1.1."""
    assert chi_square(walk(20_000), softmax([x / 1.1 for x in LOGITS])) < 1e-6


def test_successive_draws_and_parallel_seeds_are_independent() -> None:
    first, second = walk(20_000, seed=0), walk(20_000, seed=1)
    for pairs in (zip(first[::2], first[1::2], strict=True), zip(first, second, strict=True)):
        table = np.zeros((len(LOGITS), len(LOGITS)))
        for a, b in pairs:
            table[a, b] += 1
        assert stats.chi2_contingency(table).pvalue > 0.01


def test_fault_36_seeds_give_different_outputs_and_the_same_seed_the_same() -> None:
    """vllm#11898, #14280, #16863: four completions of one prompt under four seeds."""
    outputs = [walk(32, seed=seed) for seed in (1, 2, 3, 4)]
    assert len({tuple(output) for output in outputs}) == 4
    assert walk(32, seed=1) == outputs[0]


def test_fault_37_nothing_of_a_finished_request_reaches_the_next_in_its_slot() -> None:
    """vllm#43894, #51890."""
    logits = torch.tensor([LOGITS, LOGITS])
    plain = [row(temperature=1.0, seed=3), row()]
    fresh = sample(logits, plain)
    sample(logits, [row(suppress=[4], temperature=0.5, top_k=2, output=[1]), row(suppress=[4, 7])])
    assert sample(logits, plain) == fresh


def test_a_draw_depends_on_its_position_not_on_where_the_prompt_ends() -> None:
    """vllm#5349: after a recompute outputs were counted as prompt."""
    assert draw(LOGITS, *[row(range(n), range(40 - n), temperature=1.0, seed=5) for n in range(1, 40)]) == (
        draw(LOGITS, row(range(40), temperature=1.0, seed=5)) * 39
    )


def test_infinite_noise_wins_its_draw_but_not_past_a_mask() -> None:
    seed = inf_seed(position=7, token=2)
    logits = [0.0, 0.0, -50.0, 0.0]
    assert one(logits, prompt=range(7), seed=seed, temperature=1.0).token_id == 2
    assert one(logits, prompt=range(7), seed=seed, temperature=1.0, suppress=[2]).token_id != 2
    assert one(logits, prompt=range(7), seed=seed, temperature=1.0, top_k=3).token_id != 2


def test_top_p_of_one_keeps_even_what_the_sum_cannot_see() -> None:
    """1 + 1e-22 is 1 in float64: the mass is reached before the last of top-k's four tokens."""
    seed = inf_seed(position=7, token=2)
    logits = [0.0, 0.0, -50.0, 0.0, -60.0]
    assert one(logits, prompt=range(7), seed=seed, temperature=1.0, top_k=4).token_id == 2
