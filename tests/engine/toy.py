"""Toy models of every kind, and their files: weights from an integer generator, exact in every float type."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import save_file

from servegate_engine.config import ModelConfig, RopeScaling
from servegate_engine.models.decoder import weight_shapes

LLAMA3_SCALING = RopeScaling(8.0, 1.0, 4.0, 8192)
_HF_CLASS = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}


def toy_config(architecture: str = "llama", **changes: Any) -> ModelConfig:
    """A small model. Qwen3's head_dim differs from hidden_size / num_heads on purpose."""
    fields: dict[str, Any] = {
        "architecture": architecture,
        "vocab_size": 96,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_layers": 2,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 32 if architecture == "qwen3" else 16,
        "max_position": 4096,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "eos_token_ids": (0,),
        "qkv_bias": architecture == "qwen2",
        "qk_norm": architecture == "qwen3",
    }
    return ModelConfig(**(fields | changes))


TOYS = {
    "llama": toy_config("llama"),
    "llama-tied-mha": toy_config("llama", tie_word_embeddings=True, num_kv_heads=4),
    "llama3-rope": toy_config("llama", rope_scaling=LLAMA3_SCALING, rope_theta=500000.0),
    "qwen2": toy_config("qwen2"),
    "qwen3": toy_config("qwen3", num_heads=6, num_kv_heads=2, rope_theta=1e6),
}


def toy_weights(
    config: ModelConfig, dtype: torch.dtype = torch.float32, seed: int = 1
) -> dict[str, torch.Tensor]:
    """Integers in -128..127 times a power of two: eight bits, which float64 and bfloat16 hold alike."""
    generator = np.random.Philox(key=seed)
    weights = {}
    for name, shape in weight_shapes(config):
        raw = generator.random_raw(int(np.prod(shape))) >> np.uint64(56)
        numbers = torch.from_numpy(raw.astype(np.int64) - 128).reshape(shape)
        if name.endswith("norm"):
            weights[name] = ((numbers // 4 + 128) * 2.0**-7).to(dtype)  # around 1
        else:
            weights[name] = (numbers * 2.0**-9).to(dtype)  # deviation 0.14
    return weights


def hf_weights(config: ModelConfig, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same weights under Hugging Face's names, fused ones split."""
    q, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    out = {"model.embed_tokens.weight": weights["embed"], "model.norm.weight": weights["norm"]}
    if "lm_head" in weights:
        out["lm_head.weight"] = weights["lm_head"]
    names = {
        "attn_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm", "o": "self_attn.o_proj",
        "down": "mlp.down_proj", "q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm",
    }  # fmt: skip
    for name, weight in weights.items():
        if not name.startswith("layers."):
            continue
        _, layer, part = name.split(".")
        prefix = f"model.layers.{layer}."
        if part in ("qkv", "qkv_bias"):
            kind = "weight" if part == "qkv" else "bias"
            for x, piece in zip("qkv", weight.split((q, kv, kv)), strict=True):
                out[f"{prefix}self_attn.{x}_proj.{kind}"] = piece.clone()
        elif part == "gate_up":
            out[f"{prefix}mlp.gate_proj.weight"], out[f"{prefix}mlp.up_proj.weight"] = (
                piece.clone() for piece in weight.chunk(2)
            )
        else:
            out[f"{prefix}{names[part]}.weight"] = weight
    return out


def hf_config(config: ModelConfig) -> dict[str, Any]:
    """``config.json`` as transformers 5 writes it."""
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": config.rope_theta}
    if config.rope_scaling is not None:
        rope = {
            "rope_type": "llama3",
            "rope_theta": config.rope_theta,
            "factor": config.rope_scaling.factor,
            "low_freq_factor": config.rope_scaling.low_freq_factor,
            "high_freq_factor": config.rope_scaling.high_freq_factor,
            "original_max_position_embeddings": config.rope_scaling.original_max_position,
        }
    return {
        "architectures": [_HF_CLASS[config.architecture]],
        "model_type": config.architecture,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_position,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_parameters": rope,
        "tie_word_embeddings": config.tie_word_embeddings,
        "eos_token_id": list(config.eos_token_ids),
        "bos_token_id": config.bos_token_id,
        "hidden_act": "silu",
    }


def write_directory(directory: Path, config: ModelConfig, weights: dict[str, torch.Tensor]) -> Path:
    """A model directory without a tokenizer."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(hf_config(config)))
    save_file(hf_weights(config, weights), directory / "model.safetensors", metadata={"format": "pt"})
    return directory


_GGUF_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


def gguf_name(name: str) -> str:
    stem, kind = name.rsplit(".", 1)
    if stem.startswith("model.layers."):
        _, _, layer, rest = stem.split(".", 3)
        return f"blk.{layer}.{_GGUF_NAMES[rest]}.{kind}"
    return f"{_GGUF_NAMES[stem]}.{kind}"


def interleave(rows: np.ndarray, heads: int) -> np.ndarray:
    """The row order of a Llama GGUF's q and k: of each head 0, D/2, 1, D/2 + 1, ..."""
    dim = rows.shape[0] // heads
    order = [half * dim // 2 + i for i in range(dim // 2) for half in range(2)]
    return np.concatenate([rows[head * dim : (head + 1) * dim][order] for head in range(heads)])


def write_gguf(
    path: Path,
    config: ModelConfig,
    weights: dict[str, torch.Tensor],
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    metadata: dict[str, Any] | None = None,
) -> Path:
    """A GGUF file, by the library's own writer; matrices in ``kind``, everything else in float32."""
    arch = config.architecture
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(config.num_layers)
    writer.add_context_length(config.max_position)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_eos_token_id(config.eos_token_ids[0])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    tokens = toy_tokens(config.vocab_size)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token.startswith("<|") else 1 for token in tokens])
    writer.add_token_merges(["h e", "l l"])
    for key, value in (metadata or {}).items():
        getattr(writer, {str: "add_string", int: "add_uint32", float: "add_float32"}[type(value)])(key, value)
    for name, weight in hf_weights(config, weights).items():
        data = weight.float().numpy()
        if arch == "llama" and ("q_proj" in name or "k_proj" in name):
            data = interleave(data, config.num_heads if "q_proj" in name else config.num_kv_heads)
        if data.ndim == 2 and kind != gguf.GGMLQuantizationType.F32:
            writer.add_tensor(gguf_name(name), gguf.quants.quantize(data, kind), raw_dtype=kind)
        else:
            writer.add_tensor(gguf_name(name), np.ascontiguousarray(data))
    if config.rope_scaling is not None:
        writer.add_tensor("rope_freqs.weight", _rope_factors(config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def toy_tokens(size: int) -> list[str]:
    """A byte-level vocabulary: one control token, some letters, two merges, then fillers."""
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)] + ["Ġ", "Ċ", "0", "1", "2"]
    tokens = ["<|end|>", *letters, "he", "ll"]
    return (tokens + [f"filler{i}" for i in range(size)])[:size]


def _rope_factors(config: ModelConfig) -> np.ndarray:
    """Llama 3's divisors as its converter computes them, frequency by frequency."""
    scaling = config.rope_scaling
    assert scaling is not None
    factors = []
    for i in range(0, config.head_dim, 2):
        wavelength = 2 * np.pi * config.rope_theta ** (i / config.head_dim)
        if wavelength < scaling.original_max_position / scaling.high_freq_factor:
            factors.append(1.0)
        elif wavelength > scaling.original_max_position / scaling.low_freq_factor:
            factors.append(scaling.factor)
        else:
            turns = scaling.original_max_position / wavelength
            smooth = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
            factors.append(1 / ((1 - smooth) / scaling.factor + smooth))
    return np.array(factors, dtype=np.float32)
