"""What it takes to run a kernel: one protocol, implemented by a GPU (loader.py) and by the host shim
(shim.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from servegate_kernels.sources import Element

Argument = torch.Tensor | int | float | None
"""A kernel takes 64-bit words only: a tensor is its address, None a null pointer, int ``long long``, float
``double``."""

ELEMENT_OF: dict[torch.dtype, Element] = {
    torch.float32: "float",
    torch.float64: "double",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
}

ACCUMULATOR_OF: dict[torch.dtype, torch.dtype] = {
    torch.float32: torch.float32,
    torch.float64: torch.float64,
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
}
"""What a kernel computes in, by what it stores (``Acc`` in numeric.cuh)."""


class Launcher(Protocol):
    """Runs instantiated kernels on the tensors of one device."""

    device: torch.device

    def launch(
        self, expression: str, grid: tuple[int, int, int], threads: int, arguments: Sequence[Argument]
    ) -> None:
        """Runs one kernel of the catalogue on torch's current stream.

        Tensors are passed by address: the caller has checked dtype, contiguity and device. No grid dimension
        is 0. Raises KeyError for an expression that is not in the catalogue.
        """
        ...

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A tensor for a kernel to fill. The shim's is poisoned, so that a place left unwritten shows."""
        ...

    def describe(self) -> dict[str, str]:
        """``device``, its name, and on a GPU ``architecture`` and the versions of ``cuda`` and ``cupy``."""
        ...
