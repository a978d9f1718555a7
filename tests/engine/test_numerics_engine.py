"""Reference numerics through the whole engine: preemption and prefix cache change no logprob and no token."""

from __future__ import annotations

import pytest
import torch

from servegate_engine.backends.torch_backend import TorchBackend
from servegate_engine.config import EngineConfig, ModelConfig
from servegate_engine.engine import Engine
from servegate_engine.request import Request, SamplingParams, TokenLogprob

BOUND = 1e-11
SHARED = [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198]
PROMPTS = [[*SHARED, *tail] for tail in ([504], [504, 3575], [657, 314, 260], [30, 657, 314, 260, 2240])]
NEW_TOKENS = 8

Model = tuple[ModelConfig, dict[str, torch.Tensor]]
Results = dict[str, list[TokenLogprob]]


def make(model: Model, **changes: int) -> Engine:
    settings = {"block_size": 4, "num_blocks": 64, "max_num_seqs": 4, "max_batched_tokens": 32} | changes
    config = EngineConfig(numerics="reference", **settings)  # type: ignore[arg-type]
    backend = TorchBackend(*model, config)
    return Engine(backend, config, vocab_size=model[0].vocab_size, max_position=model[0].max_position)


def serve(engine: Engine, requests: list[Request]) -> Results:
    for request in requests:
        engine.add(request)
    results: Results = {request.id: [] for request in requests}
    while engine.has_work:
        for event in engine.step():
            results[event.request_id] += event.logprobs
        engine.check()
    return results


def requests() -> list[Request]:
    params = SamplingParams(max_tokens=NEW_TOKENS, top_logprobs=3)
    return [Request(id=str(i), prompt_ids=tuple(ids), params=params) for i, ids in enumerate(PROMPTS)]


def assert_same(a: Results, b: Results) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert [t.token_id for t in a[name]] == [t.token_id for t in b[name]]
        assert len(a[name]) == NEW_TOKENS
        for one, other in zip(a[name], b[name], strict=True):
            assert abs(one.logprob - other.logprob) < BOUND
            assert abs(one.margin - other.margin) < BOUND
            assert all(abs(x[1] - y[1]) < BOUND for x, y in zip(one.top, other.top, strict=True))


@pytest.fixture(scope="module")
def alone(smollm2_reference: Model) -> Results:
    """Every request by itself in a fresh engine, its prompt in one step."""
    results: Results = {}
    for request in requests():
        results |= serve(make(smollm2_reference, block_size=16), [request])
    return results


def test_together_in_small_chunks(smollm2_reference: Model, alone: Results) -> None:
    assert_same(serve(make(smollm2_reference, block_size=3, max_batched_tokens=7), requests()), alone)


def test_forced_preemption(smollm2_reference: Model, alone: Results) -> None:
    """engines.md 26, 27: recompute must meet the very numbers that the first pass gave."""
    # Four requests of up to 29 tokens need 29 blocks of 4; with eleven they evict one another.
    engine = make(smollm2_reference, num_blocks=11, prefix_cache=False)
    assert_same(serve(engine, requests()), alone)
    assert engine.counters.preemptions > 0


@pytest.mark.parametrize(
    "warm_tokens", [9, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 3, 4, 16))]
)
def test_warm_prefix_cache(smollm2_reference: Model, alone: Results, warm_tokens: int) -> None:
    """engines.md 15 (vllm#46592): the length of a hit changed the shape of the rest, and so its bits."""
    engine = make(smollm2_reference)
    if warm_tokens:
        params = SamplingParams(max_tokens=1)
        serve(engine, [Request(id="warm", prompt_ids=tuple(SHARED[:warm_tokens]), params=params)])
    assert_same(serve(engine, requests()), alone)
    assert_same(serve(engine, requests()), alone)
    assert engine.counters.cached_tokens > 0


def test_scored_tokens_equal_generated_ones(smollm2_reference: Model, alone: Results) -> None:
    """Teacher forcing: scoring what was generated gives the logprobs it was generated with."""
    engine = make(smollm2_reference)
    for request in requests():
        given = tuple(t.token_id for t in alone[request.id])
        scored = Request(id=request.id, prompt_ids=request.prompt_ids, params=request.params, score_ids=given)
        assert_same(serve(engine, [scored]), {request.id: alone[request.id]})
