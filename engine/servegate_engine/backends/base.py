"""The protocols between the engine, the models and the hardware.

``Ops`` is the vocabulary that the models are written in, so that one model file serves every backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from servegate_engine.batch import StepBatch
from servegate_engine.config import ModelConfig
from servegate_engine.request import TokenLogprob
from servegate_engine.sampling import SampleRow


class Backend(Protocol):
    """A model on some hardware, with its KV pool."""

    def forward(self, batch: StepBatch) -> torch.Tensor:
        """Write K and V of the batch's tokens, and return logits [len(logit_rows), vocab_size].

        Called by the engine's one thread. Logits are float64 in reference numerics, float32 in native.
        """
        ...

    def sample(self, logits: torch.Tensor, rows: Sequence[SampleRow]) -> list[TokenLogprob | None]:
        """Draw, or score the given token of, each row of what ``forward`` gave: as ``sampling.sample``.

        Plain data in and out, so that a backend may keep the logits where they are. Token ids are those of
        ``sampling.sample``; logprobs and margins within 1e-9 nat.
        """
        ...

    def describe(self) -> dict[str, str]:
        """What the numbers depend on, for the fingerprint: device, dtype, threads, library versions."""
        ...


class Ops(Protocol):
    """What a decoder is made of. All activations are [T, ...], token rows contiguous.

    The row is the unit: no operation may let one token's result depend on which other rows share the call
    (exactly so in reference numerics up to 1e-11 nat in the logprobs, and as a goal elsewhere).
    """

    def embed(self, batch: StepBatch, weight: torch.Tensor) -> torch.Tensor:
        """[T] ids into ``weight`` [vocab, hidden] -> [T, hidden]."""
        ...

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """Over the last dimension: ``x / sqrt(mean(x^2) + eps) * weight``."""
        ...

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """``s = x + residual``; returns ``(rms_norm(s), s)``."""
        ...

    def linear(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """``x @ weight.T + bias`` with ``weight`` [out, in]."""
        ...

    def attention(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, batch: StepBatch
    ) -> torch.Tensor:
        """Rotate q and k, write k and v to the layer's pages, attend causally over each row's own history.

        q [T, num_heads, head_dim]; k, v [T, num_kv_heads, head_dim] -> [T, num_heads * head_dim].
        """
        ...

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """[T, 2 * intermediate] -> [T, intermediate]: ``silu(first half) * second half``."""
        ...

    def rows(self, x: torch.Tensor, batch: StepBatch) -> torch.Tensor:
        """[T, hidden] -> the batch's ``logit_rows`` of it."""
        ...


class Model(Protocol):
    """A decoder written on ``Ops``."""

    config: ModelConfig

    def forward(self, ops: Ops, batch: StepBatch) -> torch.Tensor: ...
