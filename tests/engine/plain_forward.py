"""A decoder written a second time, with nothing shared and nothing clever: what right answers are."""

from __future__ import annotations

import math

import torch

from servegate_engine.config import ModelConfig


def plain_logprobs(config: ModelConfig, weights: dict[str, torch.Tensor], ids: list[int]) -> torch.Tensor:
    """[T, vocab] logprobs after each prefix of ``ids``, in float64: one head and one row at a time."""
    heads, kv_heads, dim = config.num_heads, config.num_kv_heads, config.head_dim
    x = weights["embed"][ids].double()
    for i in range(config.num_layers):
        w = {name.split(".")[2]: t.double() for name, t in weights.items() if name.startswith(f"layers.{i}.")}
        h = _norm(x, w["attn_norm"], config.rms_norm_eps)
        qkv = h @ w["qkv"].T
        if "qkv_bias" in w:
            qkv = qkv + w["qkv_bias"]
        columns = [qkv[:, j * dim : (j + 1) * dim] for j in range(heads + 2 * kv_heads)]
        outputs = []
        for head in range(heads):
            kv_head = head // (heads // kv_heads)
            q, k, v = columns[head], columns[heads + kv_head], columns[heads + kv_heads + kv_head]
            if "q_norm" in w:
                q = _norm(q, w["q_norm"], config.rms_norm_eps)
                k = _norm(k, w["k_norm"], config.rms_norm_eps)
            q, k = _rotate(q, config), _rotate(k, config)
            rows = []
            for t in range(len(ids)):
                scores = (k[: t + 1] @ q[t]) / math.sqrt(dim)
                exps = torch.exp(scores - scores.max())
                rows.append((exps[:, None] * v[: t + 1]).sum(0) / exps.sum())
            outputs.append(torch.stack(rows))
        x = x + torch.cat(outputs, dim=1) @ w["o"].T
        h = _norm(x, w["mlp_norm"], config.rms_norm_eps)
        gate, up = (h @ w["gate_up"].T).chunk(2, dim=1)
        x = x + (gate / (1 + torch.exp(-gate)) * up) @ w["down"].T
    x = _norm(x, weights["norm"].double(), config.rms_norm_eps)
    logits = x @ weights.get("lm_head", weights["embed"]).double().T
    return logits - logits.max(1, keepdim=True).values - torch.log(
        torch.exp(logits - logits.max(1, keepdim=True).values).sum(1, keepdim=True)
    )  # fmt: skip


def _norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x / torch.sqrt((x * x).mean(1, keepdim=True) + eps) * weight


def _rotate(x: torch.Tensor, config: ModelConfig) -> torch.Tensor:
    """Each pair (i, i + D/2) as a complex number, turned by position times frequency."""
    half = config.head_dim // 2
    frequencies = torch.tensor([_frequency(i, config) for i in range(half)], dtype=torch.float64)
    angles = torch.arange(len(x), dtype=torch.float64)[:, None] * frequencies
    turned = torch.complex(x[:, :half], x[:, half:]) * torch.complex(angles.cos(), angles.sin())
    return torch.cat((turned.real, turned.imag), dim=1)


def _frequency(i: int, config: ModelConfig) -> float:
    frequency = config.rope_theta ** (-2 * i / config.head_dim)
    scaling = config.rope_scaling
    if scaling is None:
        return frequency
    wavelength = 2 * math.pi / frequency
    if wavelength < scaling.original_max_position / scaling.high_freq_factor:
        return frequency
    if wavelength > scaling.original_max_position / scaling.low_freq_factor:
        return frequency / scaling.factor
    turns = scaling.original_max_position / wavelength
    blend = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    return (1 - blend) * frequency / scaling.factor + blend * frequency
