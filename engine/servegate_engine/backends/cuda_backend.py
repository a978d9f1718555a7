"""The model on this project's own CUDA kernels: on a GPU, or on the host shim in tests.

Every kernel gives a row the same bits whatever shares its launch, so native numerics are batch-invariant
here; reference numerics are float64 throughout, as on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from servegate_engine.backends import cuda_sampling
from servegate_engine.batch import StepBatch
from servegate_engine.config import EngineConfig, ModelConfig, Numerics
from servegate_engine.errors import ConfigError
from servegate_engine.models.decoder import Decoder, Weights
from servegate_engine.models.rope import rope_tables
from servegate_engine.request import TokenLogprob
from servegate_engine.sampling import SampleRow
from servegate_kernels import doctor, resources
from servegate_kernels.doctor import Problem
from servegate_kernels.launcher import ACCUMULATOR_OF, ELEMENT_OF, Launcher
from servegate_kernels.loader import DeviceError, DeviceLauncher
from servegate_kernels.ops import LARGEST_VOCABULARY, AttentionPlan, Kernels
from servegate_kernels.plan import RowPlan, plan_rows
from servegate_kernels.sources import HEAD_SIZES

_WORD_BYTES = 16
"""What the kernels load at once: a row of activations is a whole number of these."""


def compute_dtype(numerics: Numerics) -> torch.dtype:
    """float64 for reference, bfloat16 for native."""
    return torch.float64 if numerics == "reference" else torch.bfloat16


def problems() -> list[Problem]:
    """What keeps this backend from running on this machine, each with its remedy."""
    return doctor.problems(doctor.gather())


def open_device() -> Launcher:
    """The first GPU. Raises ConfigError, in one line, with what is missing and what to do."""
    try:
        return DeviceLauncher()
    except DeviceError as error:
        raise ConfigError(f"engine: device is 'cuda': {error}") from error


def require_kernels(config: ModelConfig, dtype: torch.dtype) -> None:
    """Raises ConfigError for a model whose shapes the kernels do not take."""
    if config.head_dim not in HEAD_SIZES:
        sizes = ", ".join(map(str, HEAD_SIZES))
        raise ConfigError(f"model: head_dim is {config.head_dim}, the CUDA kernels take {sizes}")
    if config.vocab_size > LARGEST_VOCABULARY:
        raise ConfigError(
            f"model: vocab_size is {config.vocab_size}, the CUDA kernels take at most {LARGEST_VOCABULARY}"
        )
    for name in ("hidden_size", "intermediate_size"):
        if getattr(config, name) * dtype.itemsize % _WORD_BYTES:
            multiple = _WORD_BYTES // dtype.itemsize
            raise ConfigError(
                f"model: {name} is {getattr(config, name)}, the CUDA kernels take multiples of {multiple}"
            )


@dataclass(frozen=True, slots=True)
class _Step:
    """The integers of one step on the device, views of one buffer: one copy a step moves them all."""

    buffer: torch.Tensor
    token_ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    logit_rows: torch.Tensor | None
    """None: all rows."""
    attention: AttentionPlan

    @staticmethod
    def place(
        batch: StepBatch,
        plan: RowPlan,
        *,
        device: torch.device,
        block_size: int,
        table_width: int,
        pad: int = 0,
    ) -> _Step:
        """Adds ``pad`` rows at the end, each a sequence of its own that sees no token and writes none."""
        every = len(batch.logit_rows) == len(batch.token_ids)
        parts = _integers(batch, plan, table_width, pad)
        buffer = torch.tensor([x for part in parts for x in part], dtype=torch.int64).to(device)
        lengths = [len(part) for part in parts]
        ids, positions, slots, row_sequence, row_tokens, blocks, tables, logit_rows = torch.split(
            buffer, lengths
        )
        attention = AttentionPlan(
            tables=tables.view(-1, table_width),
            row_sequence=row_sequence,
            row_tokens=row_tokens,
            row_blocks=blocks.view(-1, 2),
            block_size=block_size,
            heads_per_block=plan.heads_per_block,
            vectors=plan.vectors,
            splits=plan.splits,
        )
        return _Step(buffer, ids, positions, slots, None if every else logit_rows, attention)


def _integers(batch: StepBatch, plan: RowPlan, table_width: int, pad: int) -> list[Sequence[int]]:
    """In the order of the buffer: ids, positions, slots, row sequences, row tokens, row blocks, tables, and
    logit rows (left out if all are wanted: a graph's buffer must not change with the batch)."""
    padding, rows, sequences = [0] * pad, len(batch.token_ids), len(batch.sequences)
    tables: list[int] = []
    for sequence in batch.sequences:
        tables += (sequence.block_table + (-1,) * table_width)[:table_width]
    return [
        [*batch.token_ids, *padding],
        [*batch.positions, *padding],
        [*batch.slots, *([-1] * pad)],
        [*plan.row_sequence, *range(sequences, sequences + pad)],
        [*plan.row_tokens, *padding],
        [x for block in plan.row_blocks for x in block]
        + [x for i in range(rows, rows + pad) for x in (i, 1)],
        tables + [-1] * (table_width * pad),
        batch.logit_rows if len(batch.logit_rows) < rows else (),
    ]


@contextmanager
def _errors_in_one_line(what: str) -> Iterator[None]:
    """What the device refuses, as a ConfigError that says what to do."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise ConfigError(
            f"engine: a {what} does not fit into the device's memory: lower num_blocks or max_batched_tokens"
        ) from error
    except DeviceError as error:
        raise ConfigError(f"engine: device is 'cuda': {error}") from error


class CudaBackend:
    """A decoder with its paged KV pool on one device; implements ``Backend`` and ``Ops``.

    On a GPU a step of pure decode is replayed from a CUDA graph, one for each (rows, splits) rounded up to
    powers of two; every other step is launched kernel by kernel. Both give the same bits.
    """

    def __init__(
        self, config: ModelConfig, weights: Weights, engine: EngineConfig, launcher: Launcher
    ) -> None:
        """``weights`` in the dtype to compute in.

        Raises ConfigError, in one line: shapes without kernels, not enough memory.
        """
        self._dtype = weights["embed"].dtype
        require_kernels(config, self._dtype)
        self._config, self._launcher, self._kernels = config, launcher, Kernels(launcher)
        self._device, self._block_size = launcher.device, engine.block_size
        slots = engine.num_blocks * engine.block_size
        positions = min(config.max_position, slots)
        self._table_width = -(-positions // engine.block_size)
        try:
            self._model = Decoder(config, {name: w.to(self._device) for name, w in weights.items()})
            shape = (config.num_layers, 2, slots, config.num_kv_heads, config.head_dim)
            self.kv = torch.zeros(shape, dtype=self._dtype, device=self._device)
            """The pool: [layers, K and V, slots, kv_heads, head_dim]."""
        except RuntimeError as error:  # what PyTorch raises when memory is short, here or on the device
            raise ConfigError(
                f"engine: the weights and {engine.num_blocks} blocks of {engine.block_size} tokens "
                f"do not fit into the device's memory: {str(error).splitlines()[0]}"
            ) from error
        tables = rope_tables(positions, config.head_dim, config.rope_theta, config.rope_scaling)
        self._cos, self._sin = (x.to(self._device, ACCUMULATOR_OF[self._dtype]) for x in tables)
        self._graphs: dict[tuple[int, int], _DecodeGraph] = {}
        self._graph_pool: Any = None
        """Memory that all graphs share: they are replayed one at a time, and their results copied out."""
        self._step: _Step
        self.use_graphs = self._device.type == "cuda"
        """Replay decode steps from CUDA graphs; off, each kernel is launched on its own: the same bits."""

    @torch.inference_mode()
    def forward(self, batch: StepBatch) -> torch.Tensor:
        """See ``Backend``: logits on the device, float64 or float32.

        Raises ConfigError where the activations do not fit beside weights and KV pool, or the device refuses
        a kernel.
        """
        with _errors_in_one_line(f"step of {len(batch.token_ids)} tokens"):
            return self._forward(batch)

    def _forward(self, batch: StepBatch) -> torch.Tensor:
        plan = plan_rows(
            [(sequence.length, sequence.context_length) for sequence in batch.sequences],
            group_size=self._config.num_heads // self._config.num_kv_heads,
            element=ELEMENT_OF[self._dtype],
            head_size=self._config.head_dim,
        )
        decode = len(batch.sequences) == len(batch.token_ids) == len(batch.logit_rows) > 0
        if decode and self.use_graphs:
            return self._replay(batch, plan)
        return self._run(self._place(batch, plan), batch)

    @torch.inference_mode()
    def sample(self, logits: torch.Tensor, rows: Sequence[SampleRow]) -> list[TokenLogprob | None]:
        """See ``Backend``. One copy to the host a step, of a few numbers a row."""
        with _errors_in_one_line(f"sampling of {len(rows)} rows"):
            return cuda_sampling.sample(self._kernels, logits, rows)

    def describe(self) -> dict[str, str]:
        """See ``Backend``."""
        return {
            "backend": "cuda",
            "dtype": str(self._dtype).removeprefix("torch."),
            "torch": str(torch.__version__),
            "kernels": resources.digest()[:16],
            **self._launcher.describe(),
        }

    def _place(self, batch: StepBatch, plan: RowPlan, pad: int = 0) -> _Step:
        return _Step.place(
            batch,
            plan,
            device=self._device,
            block_size=self._block_size,
            table_width=self._table_width,
            pad=pad,
        )

    def _run(self, step: _Step, batch: StepBatch) -> torch.Tensor:
        self._step = step
        return self._model.forward(self, batch)

    def _replay(self, batch: StepBatch, plan: RowPlan) -> torch.Tensor:
        """A decode step through its graph, captured when its key first occurs."""
        rows, splits = _power_of_two(len(batch.token_ids)), _power_of_two(plan.splits)
        step = self._place(batch, replace(plan, splits=splits), pad=rows - len(batch.token_ids))
        graph = self._graphs.get((rows, splits))
        if graph is None:
            self._graph_pool = self._graph_pool or torch.cuda.graph_pool_handle()
            graph = self._graphs[rows, splits] = _DecodeGraph(self, step, batch, self._graph_pool)
        return graph.replay(step)[: len(batch.token_ids)]

    # The operations the model is written in.

    def embed(self, batch: StepBatch, weight: torch.Tensor) -> torch.Tensor:
        return self._kernels.embedding(weight, self._step.token_ids)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return self._kernels.rms_norm(x.contiguous(), weight, eps)

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self._kernels.add_rms_norm(x, residual, weight, eps)

    def linear(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        # Logits keep the accumulator's precision: rounding them to bfloat16 would make ties of near-ties.
        out_dtype = ACCUMULATOR_OF[x.dtype] if weight is self._model.lm_head else None
        return self._kernels.matmul(x, weight, bias, out_dtype=out_dtype)

    def attention(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, batch: StepBatch
    ) -> torch.Tensor:
        step, (key_pool, value_pool) = self._step, self.kv[layer]
        q = self._kernels.rope(q, self._cos, self._sin, step.positions)
        k = self._kernels.rope(k, self._cos, self._sin, step.positions)
        self._kernels.write_kv(k, v, key_pool, value_pool, step.slots)
        out = self._kernels.attention(q, key_pool, value_pool, step.attention, self._config.head_dim**-0.5)
        return out.view(q.shape[0], -1)

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        return self._kernels.silu_mul(gate_up)

    def rows(self, x: torch.Tensor, batch: StepBatch) -> torch.Tensor:
        return x if self._step.logit_rows is None else self._kernels.embedding(x, self._step.logit_rows)


class _DecodeGraph:
    """One captured decode step: its inputs and its logits stay where they were when it was captured."""

    def __init__(self, backend: CudaBackend, step: _Step, batch: StepBatch, pool: Any) -> None:
        self._step = step
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            backend._run(step, batch)  # compiles what is missing: no compiling while capturing
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(self._graph, pool=pool):
                self._logits = backend._run(step, batch)
        except RuntimeError as error:  # a capture that memory ran out in ends in one about the capture
            reason = str(error.__context__ or error).strip().splitlines()[0]
            raise ConfigError(
                f"engine: capturing a decode step of {len(step.positions)} rows failed: {reason}: "
                "lower num_blocks or max_num_seqs"
            ) from error

    def replay(self, step: _Step) -> torch.Tensor:
        """Logits of the step, a copy: the next replay overwrites the graph's own."""
        self._step.buffer.copy_(step.buffer)
        self._graph.replay()
        return self._logits.clone()


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()
