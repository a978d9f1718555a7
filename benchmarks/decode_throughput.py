"""Decode throughput of the embedded engine, in native numerics, beside transformers' ``generate``.

    python benchmarks/decode_throughput.py [--model NAME] [--tokens 64] [--prompt-tokens 100] [--rounds 3]

Both run the same weights in the same type on the same threads in one process, in turns (ours, theirs, theirs,
ours, ...), greedy, end-of-text ignored. A round's rate is (tokens after the first) / (time from the
last first token to the end), so prefill is left out; of all rounds the best counts, because what else runs on
a machine only ever slows a round down. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

from servegate_engine import model_store
from servegate_engine.backends.torch_backend import TorchBackend, compute_dtype
from servegate_engine.config import EngineConfig, ModelConfig
from servegate_engine.engine import Engine
from servegate_engine.loading import load_weights
from servegate_engine.request import Request, SamplingParams

BATCHES = (1, 4, 16)
BLOCK_SIZE = 16


def prompts(config: ModelConfig, count: int, length: int) -> list[tuple[int, ...]]:
    """Different token ids for each request, so that no prefix is shared."""
    return [
        tuple(100 + (7919 * i + 31 * j * j) % (config.vocab_size - 200) for j in range(length))
        for i in range(count)
    ]


def engine_rate(
    backend: TorchBackend, engine_config: EngineConfig, config: ModelConfig, args: Any, n: int
) -> float:
    engine = Engine(backend, engine_config, vocab_size=config.vocab_size, max_position=config.max_position)
    params = SamplingParams(max_tokens=args.tokens, ignore_eos=True)
    requests = [Request(str(i), ids, params) for i, ids in enumerate(prompts(config, n, args.prompt_tokens))]
    for request in requests:
        engine.add(request)
    while any(not request.completion_ids for request in requests):
        engine.step()
    before = sum(len(request.completion_ids) for request in requests)
    start = time.perf_counter()
    while engine.has_work:
        engine.step()
    seconds = time.perf_counter() - start
    return (sum(len(request.completion_ids) for request in requests) - before) / seconds


def transformers_rate(model: Any, config: ModelConfig, args: Any, n: int) -> float:
    from transformers import LogitsProcessor, LogitsProcessorList

    class FirstToken(LogitsProcessor):  # type: ignore[misc]
        """Sees every step's logits: the second call comes once every request has its first token."""

        times: list[float]

        def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            self.times.append(time.perf_counter())
            return scores

    watch = FirstToken()
    watch.times = []
    ids = torch.tensor(prompts(config, n, args.prompt_tokens))
    model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        min_new_tokens=args.tokens,
        max_new_tokens=args.tokens,
        do_sample=False,
        pad_token_id=0,
        logits_processor=LogitsProcessorList([watch]),
    )
    return n * (args.tokens - 1) / (time.perf_counter() - watch.times[0])


def transformers_model(config: ModelConfig, weights: dict[str, torch.Tensor]) -> Any:
    """Transformers' own class holding the very weights the engine loaded."""
    from transformers import AutoConfig, AutoModelForCausalLM

    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": config.rope_theta}
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(
            config.architecture,
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            max_position_embeddings=config.max_position,
            rms_norm_eps=config.rms_norm_eps,
            rope_parameters=rope,
            tie_word_embeddings=config.tie_word_embeddings,
        ),
        dtype=weights["embed"].dtype,
    ).eval()
    q, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    state = {"model.embed_tokens.weight": weights["embed"], "model.norm.weight": weights["norm"]}
    for i in range(config.num_layers):
        ours, theirs = f"layers.{i}.", f"model.layers.{i}."
        for x, piece in zip("qkv", weights[ours + "qkv"].split((q, kv, kv)), strict=True):
            state[f"{theirs}self_attn.{x}_proj.weight"] = piece
        for x, piece in zip(("gate", "up"), weights[ours + "gate_up"].chunk(2), strict=True):
            state[f"{theirs}mlp.{x}_proj.weight"] = piece
        state[f"{theirs}self_attn.o_proj.weight"] = weights[ours + "o"]
        state[f"{theirs}mlp.down_proj.weight"] = weights[ours + "down"]
        state[f"{theirs}input_layernorm.weight"] = weights[ours + "attn_norm"]
        state[f"{theirs}post_attention_layernorm.weight"] = weights[ours + "mlp_norm"]
    model.load_state_dict(state, strict=not config.tie_word_embeddings)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m", help="a Llama model: known name, path or hub id")
    parser.add_argument("--tokens", type=int, default=64, help="new tokens per request")
    parser.add_argument("--prompt-tokens", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=None)
    args = parser.parse_args()
    if args.threads is not None:
        torch.set_num_threads(args.threads)

    config, weights = load_weights(model_store.resolve(args.model), compute_dtype("native"))
    tokens = max(BATCHES) * (args.prompt_tokens + args.tokens + BLOCK_SIZE)
    engine_config = EngineConfig(
        block_size=BLOCK_SIZE,
        num_blocks=tokens // BLOCK_SIZE,
        max_num_seqs=max(BATCHES),
        max_batched_tokens=512,
        prefix_cache=False,
    )
    backend = TorchBackend(config, weights, engine_config)
    model = transformers_model(config, weights)

    def ours(n: int) -> float:
        return engine_rate(backend, engine_config, config, args, n)

    def theirs(n: int) -> float:
        return transformers_rate(model, config, args, n)

    described = backend.describe()
    print(
        f"{args.model}, {described['dtype']}, {described['threads']} threads, torch {described['torch']}, ",
        end="",
    )
    print(f"{args.prompt_tokens}-token prompts, {args.tokens} new tokens, best of {args.rounds} rounds\n")
    print("| concurrent requests | servegate tokens/s | transformers tokens/s | ratio |")
    print("| ---: | ---: | ---: | ---: |")
    for n in BATCHES:
        rates: dict[Callable[[int], float], list[float]] = {ours: [], theirs: []}
        for i in range(args.rounds):
            for run in (ours, theirs) if i % 2 == 0 else (theirs, ours):
                rates[run].append(run(n))
        best, other = max(rates[ours]), max(rates[theirs])
        print(f"| {n} | {best:.1f} | {other:.1f} | {best / other:.2f} |", flush=True)


if __name__ == "__main__":
    main()
