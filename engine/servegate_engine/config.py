"""The two configurations: what the model is, and how it is served."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from servegate_engine.errors import ConfigError

Numerics = Literal["reference", "native"]
"""``reference``: float64 end to end. ``native``: bfloat16, or float32 where bfloat16 is slow."""

Device = Literal["cpu", "cuda"]
"""``cpu``: on PyTorch. ``cuda``: the first NVIDIA GPU, on this project's own kernels."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Shape of a decoder-only transformer of the Llama / Qwen2 / Qwen3 kind, as its file states it."""

    architecture: Literal["llama", "qwen2", "qwen3"]
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position: int
    """Longest context the model was trained for, in tokens."""
    rms_norm_eps: float
    rope_theta: float
    tie_word_embeddings: bool
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None = None
    qkv_bias: bool = False
    qk_norm: bool = False
    rope_scaling: RopeScaling | None = None

    def __post_init__(self) -> None:
        for name in (
            "vocab_size", "hidden_size", "intermediate_size", "num_layers",
            "num_heads", "num_kv_heads", "head_dim", "max_position",
        ):  # fmt: skip
            if getattr(self, name) < 1:
                raise ConfigError(f"model: {name} is {getattr(self, name)}, it must be at least 1")
        if self.num_heads % self.num_kv_heads:
            raise ConfigError(
                f"model: num_heads {self.num_heads} is not a multiple of num_kv_heads {self.num_kv_heads}"
            )


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Llama 3's frequency-dependent rescaling of rotary angles (``rope_type: llama3``)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position: int


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How the engine serves. Every field changes what users see, so every field is in the fingerprint."""

    block_size: int = 16
    """Tokens in one KV block, 1 to 256."""
    num_blocks: int = 512
    """KV blocks in the pool; the pool holds ``num_blocks * block_size`` tokens."""
    max_num_seqs: int = 8
    """Most requests that run at once."""
    max_batched_tokens: int = 256
    """Token budget of one step, prefill and decode together."""
    max_prefill_tokens: int | None = None
    """Cap on prefill's share of one step's budget; ``None`` leaves all that decode does not use."""
    max_model_len: int | None = None
    """Cap on prompt plus completion of one request, in tokens; ``None`` means the model's own limit."""
    max_queue: int = 1024
    """Most requests that wait; one more is shed with :class:`QueueFullError`."""
    prefix_cache: bool = True
    numerics: Numerics = "native"
    device: Device = "cpu"
    threads: int | None = None
    """Threads of the tensor library; ``None`` leaves its own default."""

    def __post_init__(self) -> None:
        if not 1 <= self.block_size <= 256:
            raise ConfigError(f"engine: block_size is {self.block_size}, it must lie in 1..256")
        for name in ("num_blocks", "max_num_seqs", "max_batched_tokens", "max_queue"):
            if getattr(self, name) < 1:
                raise ConfigError(f"engine: {name} is {getattr(self, name)}, it must be at least 1")
        for name in ("max_prefill_tokens", "max_model_len", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"engine: {name} is {value}, it must be at least 1")
        if self.max_batched_tokens < self.max_num_seqs:
            raise ConfigError(
                f"engine: max_batched_tokens {self.max_batched_tokens} is below max_num_seqs "
                f"{self.max_num_seqs}: a full batch could not decode in one step"
            )
        if self.numerics not in ("reference", "native"):
            raise ConfigError(f"engine: numerics is {self.numerics!r}, it must be 'reference' or 'native'")
        if self.device not in ("cpu", "cuda"):
            raise ConfigError(f"engine: device is {self.device!r}, it must be 'cpu' or 'cuda'")
