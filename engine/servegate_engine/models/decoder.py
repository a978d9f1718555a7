"""Llama, Qwen2 and Qwen3: one decoder, told apart by what their configuration switches on.

A layer is: norm, one product for q, k and v (Qwen2 adds a bias, Qwen3 normalises each q and k head), rotary
attention over the paged KV, output product; norm, one product for gate and up, SiLU gate, down product.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

import torch

from servegate_engine.backends.base import Ops
from servegate_engine.batch import StepBatch
from servegate_engine.config import ModelConfig

Weights = Mapping[str, torch.Tensor]
"""Canonical names to tensors: see :func:`weight_shapes`."""


def weight_shapes(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every weight of a decoder: its canonical name and its shape. Products are [out, in].

    Lazy, so that a file that claims a billion layers fails at the first one that it does not hold.
    """
    hidden, heads, kv_heads, dim = config.hidden_size, config.num_heads, config.num_kv_heads, config.head_dim
    layer: dict[str, tuple[int, ...]] = {
        "attn_norm": (hidden,),
        "qkv": ((heads + 2 * kv_heads) * dim, hidden),
        "o": (hidden, heads * dim),
        "mlp_norm": (hidden,),
        "gate_up": (2 * config.intermediate_size, hidden),
        "down": (hidden, config.intermediate_size),
    }
    if config.qkv_bias:
        layer["qkv_bias"] = ((heads + 2 * kv_heads) * dim,)
    if config.qk_norm:
        layer["q_norm"] = layer["k_norm"] = (dim,)
    yield "embed", (config.vocab_size, hidden)
    for i in range(config.num_layers):
        yield from ((f"layers.{i}.{name}", shape) for name, shape in layer.items())
    yield "norm", (hidden,)
    if not config.tie_word_embeddings:
        yield "lm_head", (config.vocab_size, hidden)


@dataclass(frozen=True, slots=True)
class _Layer:
    attn_norm: torch.Tensor
    qkv: torch.Tensor
    o: torch.Tensor
    mlp_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    qkv_bias: torch.Tensor | None = None
    q_norm: torch.Tensor | None = None
    k_norm: torch.Tensor | None = None


class Decoder:
    """The model: weights, and the order in which a backend's operations use them.

    A backend may pass weights in a form of its own (packed, on a device): they go back to its operations as
    they are. With tied embeddings it may add ``lm_head``, its own form of the same values.
    """

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        self.config = config
        self.embed = weights["embed"]
        names = [field.name for field in fields(_Layer)]
        self.layers = [
            _Layer(
                **{name: weights[f"layers.{i}.{name}"] for name in names if f"layers.{i}.{name}" in weights}
            )
            for i in range(config.num_layers)
        ]
        self.norm = weights["norm"]
        self.lm_head = weights.get("lm_head", self.embed)  # tied where the file has none

    def forward(self, ops: Ops, batch: StepBatch) -> torch.Tensor:
        """Logits [len(logit_rows), vocab_size] of the batch, K and V written on the way."""
        eps = self.config.rms_norm_eps
        residual = ops.embed(batch, self.embed)
        x = ops.rms_norm(residual, self.layers[0].attn_norm, eps)
        for i, layer in enumerate(self.layers):
            if i:
                x, residual = ops.add_rms_norm(x, residual, layer.attn_norm, eps)
            x = ops.linear(self._attention(ops, i, layer, x, batch), layer.o)
            x, residual = ops.add_rms_norm(x, residual, layer.mlp_norm, eps)
            x = ops.linear(ops.silu_mul(ops.linear(x, layer.gate_up)), layer.down)
        # Only the rows that are sampled or scored go through the last norm and the vocabulary product.
        x, _ = ops.add_rms_norm(ops.rows(x, batch), ops.rows(residual, batch), self.norm, eps)
        return ops.linear(x, self.lm_head)

    def _attention(self, ops: Ops, i: int, layer: _Layer, x: torch.Tensor, batch: StepBatch) -> torch.Tensor:
        heads, kv_heads = self.config.num_heads, self.config.num_kv_heads
        qkv = ops.linear(x, layer.qkv, layer.qkv_bias).view(x.shape[0], -1, self.config.head_dim)
        q, k, v = torch.split(qkv, [heads, kv_heads, kv_heads], dim=1)
        if layer.q_norm is not None and layer.k_norm is not None:
            q = ops.rms_norm(q, layer.q_norm, self.config.rms_norm_eps)
            k = ops.rms_norm(k, layer.k_norm, self.config.rms_norm_eps)
        return ops.attention(i, q, k, v, batch)
