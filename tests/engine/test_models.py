"""Llama, Qwen2 and Qwen3 against transformers' own classes, with the same weights."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from paged import Driver
from toy import TOYS, hf_config, hf_weights, toy_weights

from servegate_engine.backends.torch_backend import TorchBackend
from servegate_engine.config import EngineConfig, ModelConfig, RopeScaling
from servegate_engine.models.decoder import weight_shapes
from servegate_engine.models.rope import inverse_frequencies, rope_tables

IDS = [(5 * i * i + i) % 96 for i in range(48)]


def their_logprobs(config: ModelConfig, dtype: torch.dtype) -> torch.Tensor:
    from transformers import AutoConfig, AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(**hf_config(config)), attn_implementation="eager", dtype=dtype
    ).eval()
    weights = {name: w.to(dtype) for name, w in hf_weights(config, toy_weights(config)).items()}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected
    assert set(missing) <= {"lm_head.weight"}, "only what is tied may be missing"
    with torch.inference_mode():
        logits = model(torch.tensor([IDS])).logits[0]
    return torch.log_softmax(logits.double(), -1)


def our_logprobs(config: ModelConfig, dtype: torch.dtype) -> torch.Tensor:
    numerics = "reference" if dtype == torch.float64 else "native"
    engine = EngineConfig(numerics=numerics, num_blocks=32)
    backend = TorchBackend(config, toy_weights(config, dtype), engine)
    return Driver(backend, engine.block_size, engine.num_blocks).run(IDS, 20).double()


@pytest.mark.parametrize("name", TOYS)
def test_float32_equals_transformers(name: str) -> None:
    ours, theirs = our_logprobs(TOYS[name], torch.float32), their_logprobs(TOYS[name], torch.float32)
    assert float((ours - theirs).abs().max()) < 1e-4
    assert torch.equal(ours.argmax(-1), theirs.argmax(-1))


@pytest.mark.parametrize("name", TOYS)
def test_float64_equals_transformers_to_its_float32_islands(name: str) -> None:
    """Their norms and rotary tables round to float32 even in a float64 model: 6e-8 relative each."""
    ours, theirs = our_logprobs(TOYS[name], torch.float64), their_logprobs(TOYS[name], torch.float64)
    assert float((ours - theirs).abs().max()) < 2e-5


@pytest.mark.parametrize(
    "scaling",
    [RopeScaling(8.0, 1.0, 4.0, 8192), RopeScaling(32.0, 1.0, 4.0, 8192), RopeScaling(4.0, 2.0, 6.0, 256)],
)
def test_llama3_frequencies_equal_transformers(scaling: RopeScaling) -> None:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = LlamaConfig(
        hidden_size=512,
        num_attention_heads=4,
        max_position_embeddings=131072,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": scaling.factor,
            "low_freq_factor": scaling.low_freq_factor,
            "high_freq_factor": scaling.high_freq_factor,
            "original_max_position_embeddings": scaling.original_max_position,
        },
    )
    theirs, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    ours = inverse_frequencies(128, 500000.0, scaling)
    torch.testing.assert_close(ours, theirs.double(), rtol=1e-6, atol=0)
    assert not torch.allclose(ours, inverse_frequencies(128, 500000.0, None))


def test_rope_tables_are_float64_at_every_position() -> None:
    """float32 angles are wrong by some 1e-3 radians there: an island that this engine does not have."""
    cos, sin = rope_tables(100_001, 8, 10000.0, None)
    assert cos.dtype == sin.dtype == torch.float64
    for i in range(4):
        angle = 100_000 * 10000.0 ** (-2 * i / 8)
        assert math.isclose(float(cos[-1, i]), math.cos(angle), abs_tol=1e-10)
        assert math.isclose(float(sin[-1, i]), math.sin(angle), abs_tol=1e-10)


def test_weight_shapes_follow_the_switches() -> None:
    shapes = {name: dict(weight_shapes(config)) for name, config in TOYS.items()}
    assert "lm_head" not in shapes["llama-tied-mha"]
    assert shapes["qwen2"]["layers.0.qkv_bias"] == (128,)
    assert shapes["qwen3"]["layers.1.q_norm"] == (32,)
    assert shapes["qwen3"]["layers.1.qkv"] == (320, 64)
    assert "layers.0.q_norm" not in shapes["llama"]
