"""Runs the kernels on an NVIDIA GPU: NVRTC compiles each when it is first used, CuPy loads and launches it.

Compiled kernels are kept in the cache folder, by source text, flags, target and NVRTC version; the text has
every project header in it, so an edited header can never meet a stale binary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from servegate_kernels import doctor, nvrtc, sources
from servegate_kernels.cache import made_once
from servegate_kernels.launcher import Argument


class DeviceError(RuntimeError):
    """No usable GPU; the message is one line that says what is missing and what to do."""


class DeviceLauncher:
    """Runs kernels on torch's current stream of the first CUDA device.

    Tensors reach CuPy by DLPack, without a copy. Launching on torch's own stream keeps torch's allocator
    right about when memory is free, and lets ``torch.cuda.graph`` capture the launches. Raises DeviceError if
    there is no usable device.
    """

    def __init__(self) -> None:
        found = doctor.problems(doctor.gather())
        if found:
            raise DeviceError("; ".join(map(str, found)))
        try:
            import cupy
        except ImportError as error:
            raise DeviceError(f"CuPy cannot be used: {str(error).strip().splitlines()[0]}") from error
        self.device = torch.device("cuda", 0)
        major, minor = torch.cuda.get_device_capability(self.device)
        try:
            self._target = nvrtc.target(10 * major + minor)
        except nvrtc.NvrtcError as error:
            raise DeviceError(str(error)) from error
        self._cupy: Any = cupy
        self._functions: dict[str, Any] = {}

    def function(self, expression: str) -> Any:
        """The compiled kernel, a ``cupy.RawKernel``. Compiling must happen before a graph is captured.

        Raises DeviceError if it does not compile or the driver does not take it.
        """
        found = self._functions.get(expression)
        if found is None:
            try:
                name, path = compiled_file(expression, self._target)
                with self._cupy.cuda.Device(0):
                    found = self._cupy.RawModule(path=str(path)).get_function(name)
            except RuntimeError as error:  # NVRTC's, or the driver's through CuPy
                reason = str(error).strip().splitlines()[0]
                raise DeviceError(f"{expression} cannot be run as {self._target}: {reason}") from error
            self._functions[expression] = found
        return found

    def launch(
        self, expression: str, grid: tuple[int, int, int], threads: int, arguments: Sequence[Argument]
    ) -> None:
        """See :class:`servegate_kernels.launcher.Launcher`."""
        kernel = self.function(expression)
        stream = torch.cuda.current_stream(self.device)
        with self._cupy.cuda.Device(0), self._cupy.cuda.ExternalStream(stream.cuda_stream):
            kernel(grid, (threads, 1, 1), tuple(self._argument(argument) for argument in arguments))

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """See :class:`servegate_kernels.launcher.Launcher`."""
        return torch.empty(tuple(shape), dtype=dtype, device=self.device)

    def describe(self) -> dict[str, str]:
        """See :class:`servegate_kernels.launcher.Launcher`."""
        return {
            "device": torch.cuda.get_device_name(self.device),
            "architecture": self._target,
            "cuda": str(torch.version.cuda),
            "cupy": str(self._cupy.__version__),
        }

    def _argument(self, argument: Argument) -> Any:
        """A CuPy array on the tensor's memory, or a number as the 64-bit word that a launch copies."""
        if isinstance(argument, torch.Tensor):
            return self._cupy.from_dlpack(OnOwnStream(argument))
        if argument is None:
            return np.uint64(0)
        return np.int64(argument) if isinstance(argument, int) else np.float64(argument)


@dataclass(frozen=True, slots=True)
class OnOwnStream:
    """A tensor as DLPack hands it to a consumer that works on the stream torch is on.

    The consumer names its stream, and ``Tensor.__dlpack__`` makes that wait for its own: here they are one,
    but torch cannot tell (CuPy's handle of it is an "external" stream) and would record an event for each
    argument. ``to_dlpack`` leaves streams alone, and takes a tenth of the time. bfloat16, which CuPy takes in
    its newest versions only, goes as the 16-bit integers that it lies in memory as.
    """

    tensor: torch.Tensor

    def __dlpack__(self, **_: object) -> object:
        plain = self.tensor.detach()
        if plain.dtype == torch.bfloat16:
            plain = plain.view(torch.int16)
        return torch.to_dlpack(plain)  # type: ignore[attr-defined]

    def __dlpack_device__(self) -> tuple[Any, int]:
        return self.tensor.__dlpack_device__()


def compiled_file(expression: str, target: str) -> tuple[str, Path]:
    """A kernel's mangled name and the file of its machine code or PTX, compiled unless it is in the cache.

    Raises KeyError: no such kernel; NvrtcError with the compiler's log.
    """
    source = sources.assemble(sources.file_of(expression))

    def make(folder: Path) -> None:
        compiled = nvrtc.compile_kernel(source, expression, target)
        (folder / "kernel").write_bytes(compiled.code)
        (folder / "name").write_text(compiled.name, encoding="utf-8")

    ingredients = (source, expression, sources.FLAGS, target, nvrtc.version())
    folder = made_once("kernels", ingredients, make)
    return (folder / "name").read_text(encoding="utf-8"), folder / "kernel"
