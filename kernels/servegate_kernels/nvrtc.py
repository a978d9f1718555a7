"""NVRTC by ctypes: compiles kernels for any architecture, also on a machine with no GPU and no driver.

CuPy compiles through the same library, but only for the device at hand, with ``-ftz=true`` added to the flags
and for no GPU newer than its table. Compiled here, what runs is what was checked. The library comes from the
``nvidia-cuda-nvrtc`` or ``nvidia-cuda-nvrtc-cu12`` wheel, or from a toolkit on the loader's path.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from servegate_kernels.sources import FLAGS


class NvrtcError(RuntimeError):
    """NVRTC is missing, or a program did not compile; the message is the compiler's log."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What one compiled kernel takes on one architecture."""

    registers: int
    """A thread."""
    shared_bytes: int
    """Static, a block."""
    stack_bytes: int
    """A thread."""
    spill_bytes: int
    """Stores and loads of spilled registers, a thread."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """One kernel, ready for the driver."""

    name: str
    """Its mangled name."""
    code: bytes
    """Machine code, or PTX."""


@cache
def library() -> ctypes.CDLL:
    """The NVRTC library. Raises NvrtcError with the command that installs it."""
    candidates: list[str] = []
    spec = importlib.util.find_spec("nvidia")
    for root in spec.submodule_search_locations or () if spec else ():
        for path in sorted(Path(root).glob("*/lib/libnvrtc.so.1*"), reverse=True):
            # NVRTC opens its builtins by bare name: from a wheel they are found only if they are loaded
            # already.
            for builtins in path.parent.glob("libnvrtc-builtins.so.*"):
                ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
            candidates.append(str(path))
    for name in [*candidates, "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise NvrtcError("NVRTC not found: pip install 'nvidia-cuda-nvrtc>=13' (or nvidia-cuda-nvrtc-cu12)")


def version() -> tuple[int, int]:
    """Such as ``(13, 0)``."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return major.value, minor.value


def architectures() -> tuple[int, ...]:
    """Compute capabilities that this NVRTC compiles for, such as ``(75, 80, 86, 89, 90, 100)``."""
    count = ctypes.c_int()
    _check(library().nvrtcGetNumSupportedArchs(ctypes.byref(count)))
    values = (ctypes.c_int * count.value)()
    _check(library().nvrtcGetSupportedArchs(values))
    return tuple(values)


def target(architecture: int) -> str:
    """What to compile for to run on compute capability ``architecture`` (such as 90): its machine code,
    ``sm_90``, or where this NVRTC is older than the GPU the newest PTX that it has, such as ``compute_120``,
    which the driver translates.

    Raises NvrtcError for a GPU older than all that this NVRTC compiles for.
    """
    known = architectures()
    if architecture in known:
        return f"sm_{architecture}"
    older = [number for number in known if number < architecture]
    if not older:
        raise NvrtcError(
            f"NVRTC {'.'.join(map(str, version()))} compiles for compute capability {known[0]} and newer, "
            f"not for {architecture}"
        )
    return f"compute_{max(older)}"


def compile_kernel(source: str, expression: str, target: str) -> Compiled:
    """Compiles one kernel for a ``target``. Raises NvrtcError with the compiler's log."""
    what = "CUBIN" if target.startswith("sm_") else "PTX"
    with _program(source, [expression]) as program:
        _compile(program, target, ())
        code = _bytes(program, f"nvrtcGet{what}Size", f"nvrtcGet{what}")
        return Compiled(_lowered_name(program, expression), code)


def compile_resources(source: str, expressions: Sequence[str], architecture: int) -> dict[str, Resources]:
    """Compiles ``source`` to machine code for ``sm_<architecture>`` and reads what each kernel takes.

    expressions: name expressions of the kernels to instantiate. Raises NvrtcError with the compiler's log.
    """
    with _program(source, expressions) as program:
        figures = _parse(_compile(program, f"sm_{architecture}", ("--ptxas-options=-v",)))
        return {expression: figures[_lowered_name(program, expression)] for expression in expressions}


@contextmanager
def _program(source: str, expressions: Sequence[str]) -> Iterator[ctypes.c_void_p]:
    nvrtc, program = library(), ctypes.c_void_p()
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None))
    try:
        for expression in expressions:
            _check(nvrtc.nvrtcAddNameExpression(program, expression.encode()))
        yield program
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _compile(program: ctypes.c_void_p, target: str, more: Sequence[str]) -> str:
    """The compiler's log. Raises NvrtcError with it."""
    options = [*FLAGS, f"-arch={target}", *more]
    arguments = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    status = library().nvrtcCompileProgram(program, len(options), arguments)
    log = (
        _bytes(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog").rstrip(b"\0").decode(errors="replace")
    )
    if status != 0:
        raise NvrtcError(log)
    return log


def _lowered_name(program: ctypes.c_void_p, expression: str) -> str:
    lowered = ctypes.c_char_p()
    _check(library().nvrtcGetLoweredName(program, expression.encode(), ctypes.byref(lowered)))
    return (lowered.value or b"").decode()


_ENTRY = re.compile(
    r"Compiling entry function '(?P<name>\w+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, "
    r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)


def _parse(log: str) -> dict[str, Resources]:
    """Figures by mangled name, from the log of ``ptxas -v``."""
    figures = {}
    for match in _ENTRY.finditer(log):
        shared = re.search(r"(\d+) bytes smem", match["rest"])
        figures[match["name"]] = Resources(
            registers=int(match["registers"]),
            shared_bytes=int(shared[1]) if shared else 0,
            stack_bytes=int(match["stack"]),
            spill_bytes=int(match["stores"]) + int(match["loads"]),
        )
    return figures


def _bytes(program: ctypes.c_void_p, size_call: str, bytes_call: str) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(library(), size_call)(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(getattr(library(), bytes_call)(program, buffer))
    return buffer.raw


def _check(status: int) -> None:
    if status != 0:
        text = library().nvrtcGetErrorString
        text.restype = ctypes.c_char_p
        raise NvrtcError(text(status).decode())
