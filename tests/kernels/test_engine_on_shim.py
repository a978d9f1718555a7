"""The whole model on the CUDA backend, its kernels on the host shim, against the PyTorch backend."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from servegate_engine.backends.base import Backend
from servegate_engine.backends.cuda_backend import CudaBackend, require_kernels
from servegate_engine.backends.torch_backend import TorchBackend
from servegate_engine.config import EngineConfig, ModelConfig
from servegate_engine.engine import Engine
from servegate_engine.errors import ConfigError
from servegate_engine.request import FinishReason, Request, SamplingParams, TokenLogprob
from servegate_engine.sampling import SampleRow
from servegate_kernels.loader import DeviceError
from servegate_kernels.ops import Kernels

sys.path.append(str(Path(__file__).parents[1] / "engine"))  # the engine's toy models and page driver

from paged import Driver, Paged
from toy import TOYS, toy_weights

Result = tuple[list[TokenLogprob], FinishReason | None]

IDS = [(7 * i * i + 3 * i) % 96 for i in range(21)]
OTHERS = [IDS[5:12], [3], IDS[::-1]]


def toy(name: str) -> ModelConfig:
    return replace(TOYS[name], head_dim=64)


def make(
    kernels: Kernels, config: ModelConfig, dtype: torch.dtype, block_size: int = 16, seed: int = 0
) -> tuple[CudaBackend, Driver]:
    engine = EngineConfig(
        block_size=block_size,
        num_blocks=-(-256 // block_size),
        numerics="reference" if dtype == torch.float64 else "native",
    )
    backend = CudaBackend(config, toy_weights(config, dtype), engine, kernels.launcher)
    return backend, Driver(backend, block_size, engine.num_blocks, seed)


@pytest.mark.parametrize("name", TOYS)
def test_reference_equals_the_torch_backend(kernels: Kernels, name: str) -> None:
    """Tokens equal, logprobs within the 1e-9 nat that reference numerics promise between CPU and GPU."""
    config = toy(name)
    engine = EngineConfig(block_size=16, num_blocks=16, numerics="reference")
    torch_driver = Driver(TorchBackend(config, toy_weights(config, torch.float64), engine), 16, 16)
    expected = torch_driver.run(IDS)
    result = make(kernels, config, torch.float64)[1].run(IDS, 7)
    assert torch.equal(result.argmax(-1), expected.argmax(-1))
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_bits_do_not_depend_on_pages_chunks_or_neighbours(kernels: Kernels, dtype: torch.dtype) -> None:
    """Native numerics as well: what the PyTorch backend cannot promise on a CPU."""
    config = toy("llama")
    expected = make(kernels, config, dtype)[1].run(IDS)
    for block_size, chunk in ((1, 8), (3, None), (64, 1)):
        assert torch.equal(
            make(kernels, config, dtype, block_size, seed=block_size)[1].run(IDS, chunk), expected
        )
    together = make(kernels, config, dtype, 4)[1].run_together([*OTHERS, IDS], 1)
    assert torch.equal(together[-1], expected)


EVERY_KIND: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0.8, "top_p": 0.9},
    {"temperature": 1.3, "top_k": 5, "presence_penalty": 0.5},
    {"repetition_penalty": 1.4, "frequency_penalty": 0.25},
    {"temperature": 0.7, "top_k": 20, "top_p": 0.6, "min_p": 0.02, "min_tokens": 4},
    {"temperature": 2.0, "min_p": 0.3},
)
"""Sampling parameters of six requests."""


def serve(backend: Backend, config: ModelConfig, engine: EngineConfig) -> tuple[Engine, dict[str, Result]]:
    """Six requests that generate and two that score, through scheduler, block pool and sampler."""
    running = Engine(
        backend, engine, vocab_size=config.vocab_size, max_position=config.max_position, eos_token_ids=(7,)
    )
    prompts = [IDS[:4], IDS[:9], IDS[3:6], IDS[::-1][:5], IDS[2:4], IDS[7:12]]
    for i, (ids, changes) in enumerate(zip(prompts, EVERY_KIND, strict=True)):
        params = SamplingParams(max_tokens=10, top_logprobs=i, seed=i, **changes)
        running.add(Request(id=str(i), prompt_ids=tuple(ids), params=params))
    for i, top in enumerate((0, 4)):
        params = SamplingParams(temperature=1.0, top_logprobs=top)
        running.add(Request(f"score {i}", tuple(IDS[:3]), params, score_ids=tuple(IDS[3 + i : 12])))
    results: dict[str, list[TokenLogprob]] = {}
    reasons: dict[str, FinishReason | None] = {}
    while running.has_work:
        for event in running.step():
            results.setdefault(event.request_id, []).extend(event.logprobs)
            reasons[event.request_id] = event.finish_reason
        running.check()
    return running, {name: (tokens, reasons[name]) for name, tokens in results.items()}


def test_the_whole_engine_gives_the_torch_backends_tokens_and_logprobs(kernels: Kernels) -> None:
    """The CUDA engine in small chunks with preemption, against the PyTorch one with room for all: greedy and
    sampled in every way, penalised, kept from stopping, scored."""
    config = toy("qwen3")
    weights = toy_weights(config, torch.float64)
    roomy = EngineConfig(block_size=16, num_blocks=64, numerics="reference")
    tight = EngineConfig(
        block_size=4,
        num_blocks=8,
        max_num_seqs=4,
        max_batched_tokens=7,
        numerics="reference",
        prefix_cache=False,
    )
    _, expected = serve(TorchBackend(config, weights, roomy), config, roomy)
    engine, results = serve(CudaBackend(config, weights, tight, kernels.launcher), config, tight)
    assert engine.counters.preemptions > 0
    assert results.keys() == expected.keys()
    for name, (tokens, reason) in expected.items():
        assert results[name][1] == reason
        assert_same(results[name][0], tokens)


def assert_same(tokens: Sequence[TokenLogprob | None], expected: Sequence[TokenLogprob | None]) -> None:
    """Ids equal, numbers within the 1e-9 nat that reference numerics promise between CPU and GPU."""
    assert len(tokens) == len(expected)
    for mine, other in zip(tokens, expected, strict=True):
        assert (mine is None) == (other is None)
        if mine is None or other is None:
            continue
        assert mine.token_id == other.token_id
        assert mine.logprob == pytest.approx(other.logprob, rel=0, abs=1e-9)
        assert mine.margin == pytest.approx(other.margin, rel=0, abs=1e-9)
        assert [token_id for token_id, _ in mine.top] == [token_id for token_id, _ in other.top]
        assert [x for _, x in mine.top] == pytest.approx([x for _, x in other.top], rel=0, abs=1e-9)


def test_padding_rows_change_nothing(kernels: Kernels) -> None:
    """What a CUDA graph of decode runs on: rows that see no token and write none."""
    config = toy("llama")
    backend, driver = make(kernels, config, torch.bfloat16)
    expected = driver.run(IDS, 1)
    backend, driver = make(kernels, config, torch.bfloat16)
    place = backend._place
    backend._place = lambda batch, plan, pad=0: place(batch, plan, pad=3)  # type: ignore[method-assign]
    run = backend._run
    backend._run = lambda step, batch: run(step, batch)[: len(batch.token_ids)]  # type: ignore[method-assign]
    assert torch.equal(driver.run(IDS, 1), expected)


class PlayedGraphs:
    """CUDA graphs in a few lines: what is captured runs, and a replay runs it again, on the same inputs."""

    def __init__(self, backend: CudaBackend, monkeypatch: pytest.MonkeyPatch) -> None:
        self.backend = backend
        self.pools: list[object] = []
        self.shapes: list[tuple[int, int]] = []
        stream = SimpleNamespace(wait_stream=lambda other: None)
        played = {
            "Stream": lambda: stream,
            "current_stream": lambda: stream,
            "stream": lambda stream: nullcontext(),
            "CUDAGraph": lambda: SimpleNamespace(),
            "graph": self._capture,
            "graph_pool_handle": object,
        }
        for name, value in played.items():
            monkeypatch.setattr(torch.cuda, name, value)
        self.run = backend._run
        monkeypatch.setattr(backend, "_run", self._run)
        backend.use_graphs = True

    def _run(self, step: Any, batch: Any) -> torch.Tensor:
        self.last = (step, batch, self.run(step, batch))
        return self.last[2]

    @contextmanager
    def _capture(self, graph: SimpleNamespace, pool: object) -> Iterator[None]:
        self.pools.append(pool)
        yield
        step, batch, logits = self.last
        self.shapes.append((len(step.positions), step.attention.splits))
        graph.replay = lambda: logits.copy_(self.run(step, batch))


def token_by_token(driver: Driver) -> torch.Tensor:
    """Logprobs of four sequences that end one after the other, each step one token of each."""
    sequences = [Paged(ids) for ids in (*OTHERS, IDS)]
    while running := [sequence for sequence in sequences if sequence.done < len(sequence.ids)]:
        driver.step([(sequence, 1) for sequence in running])
    return torch.cat([logprobs for sequence in sequences for logprobs in sequence.logprobs])


def test_a_replayed_graph_gives_the_bits_of_plain_launches(
    kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One graph for each power of two of rows, all in one pool of memory, padded rows included."""
    config = toy("llama")
    expected = token_by_token(make(kernels, config, torch.bfloat16, 4)[1])
    backend, driver = make(kernels, config, torch.bfloat16, 4)
    graphs = PlayedGraphs(backend, monkeypatch)
    assert torch.equal(token_by_token(driver), expected)
    assert graphs.shapes == [(4, 1), (2, 1)]
    assert len(set(graphs.pools)) == 1


def test_a_capture_that_memory_runs_out_in_is_one_clear_line(
    kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def capture(graph: object, pool: object) -> Iterator[None]:
        try:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")
        finally:
            raise RuntimeError("operation failed due to a previous error during capture\nmore")
        yield

    backend, driver = make(kernels, toy("llama"), torch.float64)
    PlayedGraphs(backend, monkeypatch)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    words = r"^engine: capturing a decode step of 1 rows failed: CUDA out of memory[^\n]+max_num_seqs$"
    with pytest.raises(ConfigError, match=words):
        driver.run(IDS[:1])


def test_only_the_wanted_rows_get_logits(kernels: Kernels) -> None:
    backend, driver = make(kernels, toy("llama"), torch.float64)
    forward = backend.forward
    every: list[torch.Tensor] = []
    backend.forward = lambda batch: every.append(forward(batch)) or every[-1]  # type: ignore[method-assign,func-returns-value]
    driver.run(IDS)
    backend, driver = make(kernels, toy("llama"), torch.float64)
    some: list[torch.Tensor] = []
    wanted = backend.forward
    backend.forward = lambda batch: (  # type: ignore[method-assign]
        some.append(wanted(replace(batch, logit_rows=(2, 20)))) or every[0]  # type: ignore[func-returns-value]
    )
    driver.run(IDS)
    assert torch.equal(some[0], every[0][[2, 20]])


def test_the_fingerprint_names_the_kernels(kernels: Kernels) -> None:
    facts = make(kernels, toy("llama"), torch.bfloat16)[0].describe()
    assert facts["backend"] == "cuda"
    assert facts["device"] == "host shim"
    assert facts["dtype"] == "bfloat16"
    assert len(facts["kernels"]) == 16


def test_a_head_size_without_kernels_is_one_clear_line(kernels: Kernels) -> None:
    with pytest.raises(ConfigError, match="head_dim is 16, the CUDA kernels take 64"):
        make(kernels, TOYS["llama"], torch.float64)


def test_a_vocabulary_that_sampling_does_not_take_is_one_clear_line() -> None:
    require_kernels(replace(toy("llama"), vocab_size=2**20), torch.bfloat16)
    with pytest.raises(ConfigError, match="vocab_size is 1048577, the CUDA kernels take at most 1048576"):
        require_kernels(replace(toy("llama"), vocab_size=2**20 + 1), torch.bfloat16)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), r"^engine: a step of 21 tokens does not fit [^\n]+$"),
        (DeviceError("k cannot be run"), r"^engine: device is 'cuda': k cannot be run$"),
    ],
    ids=["memory", "device"],
)
def test_a_step_that_the_device_refuses_is_one_clear_line(
    kernels: Kernels, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    def run(*arguments: object) -> torch.Tensor:
        raise error

    backend, driver = make(kernels, toy("llama"), torch.float64)
    monkeypatch.setattr(backend, "_run", run)
    with pytest.raises(ConfigError, match=words):
        driver.run(IDS)


def test_sampling_that_does_not_fit_is_one_clear_line(
    kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")

    backend, _ = make(kernels, toy("llama"), torch.float64)
    monkeypatch.setattr(kernels.launcher, "launch", refuse)
    rows = [SampleRow(SamplingParams(), (1,), ())]
    with pytest.raises(ConfigError, match=r"^engine: a sampling of 1 rows does not fit [^\n]+$"):
        backend.sample(torch.zeros(1, 96), rows)
