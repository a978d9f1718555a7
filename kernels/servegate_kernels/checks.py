"""What a kernel may assume of its arguments, checked on the host before a launch."""

from __future__ import annotations

import torch

from servegate_kernels.launcher import ELEMENT_OF
from servegate_kernels.sources import Element


class Checks:
    """Checks for one device. Raises TypeError for a wrong dtype or device, ValueError for a wrong shape."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def element(self, x: torch.Tensor, name: str) -> Element:
        """The C++ name of a floating-point tensor's type."""
        if x.dtype not in ELEMENT_OF:
            raise TypeError(f"{name} has dtype {x.dtype}; the kernels take {', '.join(map(str, ELEMENT_OF))}")
        self.placed(x, name)
        return ELEMENT_OF[x.dtype]

    def placed(self, x: torch.Tensor, name: str) -> None:
        if x.device.type != self.device.type:
            raise TypeError(f"{name} is on {x.device}, the kernels run on {self.device}")

    def typed(self, x: torch.Tensor, name: str, dtype: torch.dtype) -> None:
        self.placed(x, name)
        if x.dtype != dtype:
            raise TypeError(f"{name} has dtype {x.dtype}, not {dtype}")
        if not x.is_contiguous():
            raise ValueError(f"{name} is not contiguous")

    def like(self, reference: torch.Tensor, **others: torch.Tensor) -> None:
        for name, x in others.items():
            self.placed(x, name)
            if x.dtype != reference.dtype:
                raise TypeError(f"{name} has dtype {x.dtype}, not {reference.dtype}")

    def integers(self, **tensors: torch.Tensor) -> None:
        for name, x in tensors.items():
            self.typed(x, name, torch.int64)

    def shape(
        self, x: torch.Tensor, name: str, dimensions: int, *, rows_apart: bool = False
    ) -> tuple[int, ...]:
        """The shape of a contiguous tensor; with ``rows_apart`` only each row must be."""
        if x.dim() != dimensions:
            raise ValueError(f"{name} has {x.dim()} dimensions, not {dimensions}")
        if not (x[0] if rows_apart and x.shape[0] else x).is_contiguous():
            raise ValueError(f"{name} is not contiguous")
        return tuple(x.shape)

    def expect(self, x: torch.Tensor, name: str, shape: tuple[int, ...]) -> None:
        if tuple(x.shape) != shape:
            raise ValueError(f"{name} has shape {list(x.shape)}, not {list(shape)}")

    def words(self, x: torch.Tensor, what: str, elements: int) -> int:
        """``elements`` of x counted in the 16-byte words that the kernels load."""
        if elements * x.element_size() % 16 or x.data_ptr() % 16:
            raise ValueError(
                f"{what} ({elements} of {x.dtype}) is no multiple of 16 bytes, or not aligned to them"
            )
        return elements * x.element_size() // 16
