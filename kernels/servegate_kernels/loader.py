"""Runs the kernels on an NVIDIA GPU: CuPy compiles each one when it is first used, for the device at hand.

CuPy keeps the compiled kernels in its own cache folder, keyed by source text, flags, architecture and NVRTC
version; the text has every project header in it, so the key covers them too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from servegate_kernels import sources
from servegate_kernels.launcher import Argument

_OLDEST_CAPABILITY = (8, 0)
"""bfloat16 tensor cores and asynchronous copies."""


class DeviceError(RuntimeError):
    """No usable GPU; the message is one line that says what is missing and what to do."""


class DeviceLauncher:
    """Runs kernels on torch's current stream of one CUDA device.

    Tensors are handed over by address, which is what DLPack would hand over, without its detour for bfloat16
    (a type that CuPy does not have). Launching on torch's own stream keeps torch's allocator right about when
    memory is free, and lets ``torch.cuda.graph`` capture the launches. Raises DeviceError if there is no
    usable device.
    """

    def __init__(self, index: int = 0) -> None:
        try:
            import cupy
        except ImportError as error:
            raise DeviceError(
                "CuPy is not installed: pip install 'servegate[cuda13]' (or [cuda12])"
            ) from error
        if not torch.cuda.is_available():
            raise DeviceError(
                "torch finds no CUDA device: install a CUDA build of torch and an NVIDIA driver"
            )
        capability = torch.cuda.get_device_capability(index)
        if capability < _OLDEST_CAPABILITY:
            name, found = torch.cuda.get_device_name(index), ".".join(map(str, capability))
            raise DeviceError(
                f"{name} has compute capability {found}; the kernels need 8.0 (Ampere) or newer"
            )
        try:
            cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise DeviceError(
                f"CuPy cannot use the driver ({error}): install the CuPy built for its CUDA"
            ) from error
        self.device = torch.device("cuda", index)
        self._cupy: Any = cupy
        self._functions: dict[str, Any] = {}

    def function(self, expression: str) -> Any:
        """The compiled kernel, a ``cupy.RawKernel``. Compiling must happen before a graph is captured."""
        found = self._functions.get(expression)
        if found is None:
            code = sources.assemble(sources.file_of(expression))
            module = self._cupy.RawModule(code=code, options=sources.FLAGS, name_expressions=[expression])
            with self._cupy.cuda.Device(self.device.index):
                found = self._functions[expression] = module.get_function(expression)
        return found

    def launch(
        self, expression: str, grid: tuple[int, int, int], threads: int, arguments: Sequence[Argument]
    ) -> None:
        """See :class:`servegate_kernels.launcher.Launcher`."""
        stream = torch.cuda.current_stream(self.device)
        with self._cupy.cuda.Device(self.device.index), self._cupy.cuda.ExternalStream(stream.cuda_stream):
            self.function(expression)(
                grid, (threads, 1, 1), tuple(_scalar(argument) for argument in arguments)
            )

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """See :class:`servegate_kernels.launcher.Launcher`."""
        return torch.empty(tuple(shape), dtype=dtype, device=self.device)


def _scalar(argument: Argument) -> np.uint64 | np.int64 | np.float64:
    """A kernel argument as the 64-bit word that CuPy copies into the launch."""
    if argument is None:
        return np.uint64(0)
    if isinstance(argument, torch.Tensor):
        return np.uint64(argument.data_ptr())
    return np.int64(argument) if isinstance(argument, int) else np.float64(argument)
