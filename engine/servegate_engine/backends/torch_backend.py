"""The model on PyTorch: the reference backend, and the fast one on a CPU."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch.nn import functional

from servegate_engine import sampling
from servegate_engine.backends import onednn
from servegate_engine.backends.torch_attention import (
    AttentionLayout,
    AttentionPlan,
    attend_native,
    attend_reference,
)
from servegate_engine.batch import StepBatch
from servegate_engine.config import EngineConfig, ModelConfig, Numerics
from servegate_engine.errors import ConfigError
from servegate_engine.models.decoder import Decoder, Weights
from servegate_engine.models.rope import rope_tables
from servegate_engine.request import TokenLogprob
from servegate_engine.sampling import SampleRow


def compute_dtype(numerics: Numerics) -> torch.dtype:
    """float64 for reference; for native bfloat16, or float32 where the CPU has no instructions for it."""
    if numerics == "reference":
        return torch.float64
    return torch.bfloat16 if onednn.fast_bfloat16() else torch.float32


class TorchBackend:
    """A decoder with its paged KV pool in the memory of the CPU.

    Implements ``Backend`` for the engine and ``Ops`` for the model. In reference numerics everything is
    float64, from the embedding to the logits: rotary tables, norms, softmax and KV included. Every integer
    tensor of a step is made once, in :meth:`forward`, and shared by all layers.
    """

    def __init__(self, config: ModelConfig, weights: Weights, engine: EngineConfig) -> None:
        """``weights`` in ``compute_dtype(engine.numerics)``, as ``loading.load_weights`` gives them."""
        self._reference = engine.numerics == "reference"
        self._dtype = weights["embed"].dtype
        self._layout = AttentionLayout(
            block_size=engine.block_size,
            dtype=self._dtype,
            batch_decodes=not self._reference,
        )
        if engine.threads is not None:
            torch.set_num_threads(engine.threads)
        slots = engine.num_blocks * engine.block_size
        shape = (config.num_layers, slots, 2, config.num_kv_heads, config.head_dim)
        self.kv: torch.Tensor
        """The pool: [layers, slots, K and V, kv_heads, head_dim]."""
        try:
            self.kv = torch.zeros(shape, dtype=self._dtype)
        except RuntimeError as error:  # what PyTorch raises when memory is short
            gib = math.prod(shape) * self._dtype.itemsize / 2**30
            raise ConfigError(
                f"engine: {engine.num_blocks} blocks of {engine.block_size} tokens need {gib:.1f} GiB, "
                "more than this machine gives"
            ) from error
        with torch.inference_mode():
            self._model = Decoder(config, onednn.pack_products(weights))
            positions = min(config.max_position, slots)
            cos, sin = rope_tables(positions, config.head_dim, config.rope_theta, config.rope_scaling)
            # Signed so that rotating is one roll by half a head, one product and one multiply-add.
            self._cos = torch.cat((cos, cos), dim=-1).to(self._dtype)
            self._sin = torch.cat((-sin, sin), dim=-1).to(self._dtype)
        self._plan: AttentionPlan

    @torch.inference_mode()
    def forward(self, batch: StepBatch) -> torch.Tensor:
        positions = torch.tensor(batch.positions, dtype=torch.int64)
        self._token_ids = torch.tensor(batch.token_ids, dtype=torch.int64)
        self._slots = torch.tensor(batch.slots, dtype=torch.int64)
        self._step_cos = self._cos[positions].unsqueeze(1)
        self._step_sin = self._sin[positions].unsqueeze(1)
        self._plan = AttentionPlan.of(batch, self._layout)
        every = len(batch.logit_rows) == len(batch.token_ids)
        self._logit_rows = None if every else torch.tensor(batch.logit_rows, dtype=torch.int64)
        logits = self._model.forward(self, batch)
        return logits if self._reference else logits.float()

    def sample(self, logits: torch.Tensor, rows: Sequence[SampleRow]) -> list[TokenLogprob | None]:
        return sampling.sample(logits, rows)

    def describe(self) -> dict[str, str]:
        return {
            "backend": "torch",
            "device": "cpu",
            "dtype": str(self._dtype).removeprefix("torch."),
            "threads": str(torch.get_num_threads()),
            "torch": str(torch.__version__),
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "products": onednn.describe(self._model.lm_head),
        }

    # The operations the model is written in.

    def embed(self, batch: StepBatch, weight: torch.Tensor) -> torch.Tensor:
        return functional.embedding(self._token_ids, weight)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return functional.rms_norm(x, (x.shape[-1],), weight, eps)

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        total = x + residual
        return functional.rms_norm(total, (total.shape[-1],), weight, eps), total

    def linear(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        return onednn.linear(x, weight, bias)

    def attention(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, batch: StepBatch
    ) -> torch.Tensor:
        q, k = self._rotate(q), self._rotate(k)
        pages = self.kv[layer]
        pages.index_copy_(0, self._slots, torch.stack((k, v), dim=1))
        attend = attend_reference if self._reference else attend_native
        return self._plan.run(q, pages, attend)

    def _rotate(self, x: torch.Tensor) -> torch.Tensor:
        """``x * cos + rotate_half(x) * sin``, in three operations."""
        swapped = x.roll(x.shape[-1] // 2, dims=-1)
        return torch.addcmul(x * self._step_cos, swapped, self._step_sin)

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return functional.silu(gate).mul_(up)

    def rows(self, x: torch.Tensor, batch: StepBatch) -> torch.Tensor:
        return x if self._logit_rows is None else x[self._logit_rows]
