"""Whether GPU, driver, CuPy, NVRTC and torch fit together, and the exact command when they do not."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from importlib import metadata

import torch

from servegate_kernels import nvrtc

OLDEST_CAPABILITY = (8, 0)
"""bfloat16 tensor cores and asynchronous copies."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is installed. Versions are (major, minor); None: not there."""

    driver: tuple[int, int] | None
    """The newest CUDA that the driver runs."""
    cupy: tuple[str, ...]
    """CuPy distributions, such as ``("cupy-cuda13x",)``."""
    nvrtc: tuple[int, int] | None
    torch_cuda: str | None
    """The CUDA that torch was built for."""
    capability: tuple[int, int] | None
    """Of the first device, as torch sees it."""


def gather() -> Facts:
    """Looks at this machine. Imports neither CuPy nor any CUDA context."""
    try:
        compiler = nvrtc.version()
    except nvrtc.NvrtcError:
        compiler = None
    names = sorted({d.name.lower() for d in metadata.distributions() if d.name is not None})
    return Facts(
        driver=_driver(),
        cupy=tuple(name for name in names if name == "cupy" or name.startswith("cupy-cuda")),
        nvrtc=compiler,
        torch_cuda=torch.version.cuda,
        capability=torch.cuda.get_device_capability() if torch.cuda.is_available() else None,
    )


def problems(facts: Facts) -> list[str]:
    """What keeps the CUDA backend from running, one line each with its remedy; empty if it runs."""
    if facts.driver is None:
        return ["no NVIDIA driver (libcuda.so.1) on this machine: the CUDA backend needs one"]
    if facts.driver < (12, 0):
        return [f"the driver runs CUDA up to {_text(facts.driver)}: install a driver for CUDA 12 or newer"]
    found = []
    major = min(facts.driver[0], 13)
    wanted = f"cupy-cuda{major}x"
    install = f"pip install 'servegate[cuda{major}]'"
    if not facts.cupy:
        found.append(f"CuPy is not installed: {install}")
    elif len(facts.cupy) > 1:
        remove = " ".join(facts.cupy)
        found.append(f"several CuPy packages hide each other: pip uninstall -y {remove} && {install}")
    elif facts.cupy[0].startswith("cupy-cuda") and int(facts.cupy[0][9:11]) > facts.driver[0]:
        found.append(
            f"{facts.cupy[0]} needs a newer driver than this one for CUDA {_text(facts.driver)}: "
            f"pip uninstall -y {facts.cupy[0]} && pip install {wanted}"
        )
    if facts.nvrtc is None:
        found.append(f"NVRTC is not installed: {install}")
    elif facts.nvrtc[0] > facts.driver[0]:
        found.append(
            f"NVRTC {_text(facts.nvrtc)} compiles for a newer driver than this one for CUDA "
            f"{_text(facts.driver)}: pip uninstall -y nvidia-cuda-nvrtc && {install}"
        )
    if facts.torch_cuda is None:
        found.append("this torch is built without CUDA: pip install --force-reinstall torch, in a CUDA build")
    elif facts.capability is None:
        found.append(f"torch (CUDA {facts.torch_cuda}) finds no device: see nvidia-smi")
    elif facts.capability < OLDEST_CAPABILITY:
        found.append(
            f"the device has compute capability {_text(facts.capability)}; the kernels need 8.0 or newer"
        )
    return found


def _driver() -> tuple[int, int] | None:
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    version = ctypes.c_int()
    if library.cuDriverGetVersion(ctypes.byref(version)) != 0:
        return None
    return version.value // 1000, version.value % 1000 // 10


def _text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
