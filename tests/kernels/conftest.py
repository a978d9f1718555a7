"""Where the kernel tests run: on the host shim, unless the environment says otherwise.

``SERVEGATE_SHIM_SANITIZE=1``: the shim built with the address and undefined-behaviour sanitizers, for a
process started with their runtime preloaded (test_kernel_sanitizers.py starts one).
``SERVEGATE_KERNEL_TESTS=cuda``: the first GPU (benchmarks/device_check.py does that).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from servegate_kernels.loader import DeviceLauncher
from servegate_kernels.ops import Kernels
from servegate_kernels.shim import HostLauncher

SANITIZE = os.environ.get("SERVEGATE_SHIM_SANITIZE") == "1"
ON_DEVICE = os.environ.get("SERVEGATE_KERNEL_TESTS") == "cuda"


class PoisonedDevice(DeviceLauncher):
    """A GPU whose fresh tensors are poisoned, as the shim's are."""

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        fill = float("nan") if dtype.is_floating_point else -1
        return torch.full(tuple(shape), fill, dtype=dtype, device=self.device)


class FromHost:
    """Kernels on a GPU for tests whose tensors are on the host: arguments go there, results come back."""

    def __init__(self, kernels: Kernels) -> None:
        self.kernels = kernels
        self.launcher = kernels.launcher

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            there = [self._move(x, self.launcher.device) for x in arguments]
            result = getattr(self.kernels, name)(*there, **named)
            if result is None:  # works in place
                for mine, theirs in zip(arguments, there, strict=True):
                    mine.copy_(theirs)
            return self._move(result, torch.device("cpu"))

        return call

    def _move(self, x: Any, device: torch.device) -> Any:
        if isinstance(x, torch.Tensor):
            if x.device.type == "meta" or x.is_contiguous():  # a meta tensor is there to be refused
                return x if x.device.type == "meta" else x.to(device)
            # A view keeps its strides: the distance of its rows is part of the test.
            return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device).copy_(x)
        if isinstance(x, tuple):
            return tuple(self._move(part, device) for part in x)
        if dataclasses.is_dataclass(x) and not isinstance(x, type):
            fields = {f.name: getattr(x, f.name) for f in dataclasses.fields(x)}
            return dataclasses.replace(x, **{k: self._move(v, device) for k, v in fields.items()})
        return x


@pytest.fixture(scope="session")
def kernels() -> Kernels | FromHost:
    if ON_DEVICE:
        return FromHost(Kernels(PoisonedDevice()))
    return Kernels(HostLauncher(sanitize=SANITIZE))


@pytest.fixture(scope="session")
def backwards_kernels(kernels: Kernels | FromHost) -> Kernels | FromHost:
    """Threads and blocks in reverse order: a result that differs is a race."""
    return kernels if ON_DEVICE else Kernels(HostLauncher(sanitize=SANITIZE, backwards=True))
