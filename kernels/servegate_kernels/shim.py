"""Builds the kernels for the CPU with g++ and runs them: the same .cu files, no GPU.

For tests and for reading with a debugger; about ten thousand times slower than a GPU. See shim/fibers.h for
what it checks on the way and what it cannot.
"""

from __future__ import annotations

import ctypes
import platform
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch

from servegate_kernels import sources
from servegate_kernels.cache import made_once
from servegate_kernels.launcher import Argument

_FLAGS = (
    "-std=c++17",
    "-O1",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-Wno-unknown-pragmas",
    "-fPIC",
    "-shared",
)
_SANITIZERS = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
_HEADERS = ("fibers.h", "device.h", "launch.h")
_MESSAGE_BYTES = 1024


class ShimError(RuntimeError):
    """g++ is missing or failed, or a launch broke a rule such as a barrier that not every thread reached."""


class HostLauncher:
    """Runs kernels on CPU tensors, one block after the other.

    backwards: threads and blocks in reverse order. A result that depends on it is a race.
    sanitize: build with the address and undefined-behaviour sanitizers; the process must have their runtime
    loaded (``LD_PRELOAD``, see :func:`sanitizer_runtime`).
    """

    device = torch.device("cpu")

    def __init__(self, *, backwards: bool = False, sanitize: bool = False) -> None:
        self.backwards = backwards
        self.sanitize = sanitize

    def launch(
        self, expression: str, grid: tuple[int, int, int], threads: int, arguments: Sequence[Argument]
    ) -> None:
        """See :class:`servegate_kernels.launcher.Launcher`. Raises ShimError on a divergent barrier."""
        file = sources.file_of(expression)
        library = build_file(file, sanitize=self.sanitize)
        symbol = f"kernel_{sources.CATALOGUE[file].index(expression)}"
        run(library, symbol, grid, threads, arguments, backwards=self.backwards)

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """See :class:`servegate_kernels.launcher.Launcher`: NaN, or -1 for integers."""
        return torch.full(tuple(shape), float("nan") if dtype.is_floating_point else -1, dtype=dtype)

    def describe(self) -> dict[str, str]:
        """See :class:`servegate_kernels.launcher.Launcher`."""
        return {"device": "host shim"}


def run(
    library: Path,
    symbol: str,
    grid: tuple[int, int, int],
    threads: int,
    arguments: Sequence[Argument],
    *,
    backwards: bool = False,
) -> None:
    """Runs one entry of a built library. Raises ShimError with the shim's message."""
    values: list[ctypes.c_void_p | ctypes.c_int64 | ctypes.c_double] = []
    for argument in arguments:
        if argument is None or isinstance(argument, torch.Tensor):
            values.append(ctypes.c_void_p(None if argument is None else argument.data_ptr()))
        elif isinstance(argument, int):
            values.append(ctypes.c_int64(argument))
        else:
            values.append(ctypes.c_double(argument))
    addresses = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    message = ctypes.create_string_buffer(_MESSAGE_BYTES)
    entry = getattr(_load(library), symbol)
    if entry(addresses, (ctypes.c_uint * 3)(*grid), threads, int(backwards), message, _MESSAGE_BYTES) != 0:
        raise ShimError(f"{symbol}: {message.value.decode()}")


@cache
def _load(library: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(library))


@cache
def build_file(file: str, *, sanitize: bool = False) -> Path:
    """Builds every catalogued kernel of one kernel file; entries are ``kernel_0``, ``kernel_1``, ... in its
    order."""
    return build(
        sources.assemble(file, omit=frozenset({"device.cuh"})), sources.CATALOGUE[file], sanitize=sanitize
    )


def build(text: str, expressions: Sequence[str], *, sanitize: bool = False) -> Path:
    """Builds kernels from assembled source text into the cache folder and returns the library.

    Built once for everything that goes in: text, shim headers, flags, compiler. Raises ShimError with g++'s
    output.
    """
    entries = "".join(f"SHIM_ENTRY(kernel_{i}, {expression})\n" for i, expression in enumerate(expressions))
    unit = f'#include "launch.h"\n#line 1 "kernels.cu"\n{text}\n{entries}'
    flags = (*_FLAGS, *(_SANITIZERS if sanitize else ()))
    headers = {name: sources.read(f"shim/{name}") for name in _HEADERS}

    def make(folder: Path) -> None:
        for name, header in headers.items():
            (folder / name).write_text(header, encoding="utf-8")
        (folder / "unit.cpp").write_text(unit, encoding="utf-8")
        command = ["g++", *flags, "unit.cpp", "-o", "unit.so"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ShimError(f"g++ failed:\n{done.stderr[-4000:]}")

    ingredients = (unit, headers, flags, _compiler(), platform.machine())
    return made_once("shim", ingredients, make) / "unit.so"


@cache
def _compiler() -> str:
    try:
        return subprocess.run(
            ["g++", "--version"], capture_output=True, text=True, check=True
        ).stdout.splitlines()[0]
    except FileNotFoundError as error:
        raise ShimError("g++ not found: the host shim needs it (apt-get install g++)") from error


def sanitizer_runtime() -> str:
    """The library to preload into a process that runs kernels with ``sanitize=True``."""
    command = ["g++", "-print-file-name=libasan.so"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
