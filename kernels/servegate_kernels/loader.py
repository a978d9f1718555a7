"""Runs the kernels on an NVIDIA GPU: CuPy compiles each one when it is first used, for the device at hand.

CuPy keeps the compiled kernels in its own cache folder, keyed by source text, flags, architecture and NVRTC
version; the text has every project header in it, so the key covers them too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from servegate_kernels import doctor, sources
from servegate_kernels.launcher import Argument


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
        found = doctor.problems(doctor.gather())
        if found:
            raise DeviceError("; ".join(map(str, found)))
        try:
            import cupy

            cupy.cuda.nvrtc.getVersion()  # CuPy looks for an NVRTC of its own CUDA, and only when it is used
        except (ImportError, RuntimeError) as error:
            reason = str(error).strip().splitlines()[0]
            raise DeviceError(f"CuPy cannot be used: {reason}") from error
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

    def describe(self) -> dict[str, str]:
        """See :class:`servegate_kernels.launcher.Launcher`."""
        major, minor = torch.cuda.get_device_capability(self.device)
        return {
            "device": torch.cuda.get_device_name(self.device),
            "architecture": f"sm_{major}{minor}",
            "cuda": str(torch.version.cuda),
            "cupy": str(self._cupy.__version__),
        }


def _scalar(argument: Argument) -> np.uint64 | np.int64 | np.float64:
    """A kernel argument as the 64-bit word that CuPy copies into the launch."""
    if argument is None:
        return np.uint64(0)
    if isinstance(argument, torch.Tensor):
        return np.uint64(argument.data_ptr())
    return np.int64(argument) if isinstance(argument, int) else np.float64(argument)
