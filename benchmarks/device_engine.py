"""The whole engine on the CUDA backend: tokens per second with and without graphs, and that both agree.

Part of device_check.py. The model has the shape of SmolLM2-135M and random weights: speed does not depend on
them, and so nothing has to be there.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from servegate_engine.backends.cuda_backend import CudaBackend
from servegate_engine.config import EngineConfig, ModelConfig
from servegate_engine.engine import Engine
from servegate_engine.models.decoder import weight_shapes
from servegate_engine.request import Request, SamplingParams
from servegate_kernels.launcher import Launcher


@dataclass(frozen=True)
class Load:
    """What is served: requests at once, and the tokens of each."""

    sequences: int
    prompt: int
    new: int


def shape(dry: bool) -> ModelConfig:
    tiny, full = (96, 64, 96, 1, 2, 1), (49152, 576, 1536, 30, 9, 3)
    vocab, hidden, intermediate, layers, heads, kv_heads = tiny if dry else full
    return ModelConfig(
        architecture="llama",
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=64,
        max_position=2048,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        tie_word_embeddings=True,
        eos_token_ids=(0,),
    )


def random_weights(config: ModelConfig, device: torch.device) -> dict[str, torch.Tensor]:
    generator = torch.Generator(device).manual_seed(0)
    return {
        name: torch.ones(size, dtype=torch.bfloat16, device=device)
        if len(size) == 1
        else (0.02 * torch.randn(size, generator=generator, device=device)).to(torch.bfloat16)
        for name, size in weight_shapes(config)
    }


def serve(backend: CudaBackend, config: ModelConfig, load: Load) -> tuple[list[list[int]], float]:
    """Tokens of each request, every second one sampled, and decoded tokens a second of wall time."""
    settings = EngineConfig(
        num_blocks=1024, max_num_seqs=load.sequences, max_batched_tokens=1024, prefix_cache=False
    )
    engine = Engine(backend, settings, vocab_size=config.vocab_size, max_position=config.max_position)
    for i in range(load.sequences):
        prompt = tuple((31 * i + 7 * j) % config.vocab_size for j in range(load.prompt))
        params = SamplingParams(
            max_tokens=load.new, temperature=0.8 * (i % 2), top_k=50, top_p=0.95, seed=i, ignore_eos=True
        )
        engine.add(Request(str(i), prompt, params))
    tokens: list[list[int]] = [[] for _ in range(load.sequences)]
    while not all(tokens):
        collect(engine, tokens)
    before, start = engine.counters.decode_tokens, time.perf_counter()
    while engine.has_work:
        collect(engine, tokens)
    return tokens, (engine.counters.decode_tokens - before) / (time.perf_counter() - start)


def collect(engine: Engine, tokens: list[list[int]]) -> None:
    for event in engine.step():
        tokens[int(event.request_id)] += event.token_ids


def measure(launcher: Launcher, dry: bool) -> list[tuple[str, float | str, str, str]]:
    """What, value, unit, target: of one engine, first warm, then with graphs and without."""
    config, load = shape(dry), Load(2, 5, 3) if dry else Load(8, 128, 128)
    settings = EngineConfig(num_blocks=1024, numerics="native", device="cuda")
    backend = CudaBackend(config, random_weights(config, launcher.device), settings, launcher)
    rows: list[tuple[str, float | str, str, str]] = []
    answers = []
    for graphs in (True, False):
        backend.use_graphs = graphs and not dry
        serve(backend, config, load)  # compiles and captures
        tokens, rate = serve(backend, config, load)
        answers.append(tokens)
        name = "with" if graphs else "without"
        rows.append((f"engine decode, {load.sequences} requests, {name} graphs", rate, "tokens/s", ""))
    equal = "equal" if answers[0] == answers[1] else "FAILED"
    return [("engine: tokens with graphs = without", equal, "", "equal"), *rows]
