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


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that keeps the CUDA backend from running."""

    what: str
    fix: str | None = None
    """The command that puts it right; None where no single command does."""

    def __str__(self) -> str:
        return f"{self.what}: {self.fix}" if self.fix else self.what


def gather() -> Facts:
    """Looks at this machine, without CuPy, which may be what is broken."""
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
        capability=torch.cuda.get_device_capability(0) if torch.cuda.is_available() else None,
    )


def problems(facts: Facts) -> list[Problem]:
    """What keeps the CUDA backend from running; empty if it runs."""
    if facts.driver is None:
        return [Problem("no NVIDIA driver (libcuda.so.1) on this machine")]
    if facts.driver < (12, 0):
        return [Problem(f"the driver runs CUDA up to {_text(facts.driver)}; CUDA 12 or newer is needed")]
    parts = (_cupy(facts.cupy, facts.driver), _nvrtc(facts.nvrtc, facts.driver), _torch(facts, facts.driver))
    return [problem for problem in parts if problem is not None]


def _cupy(names: tuple[str, ...], driver: tuple[int, int]) -> Problem | None:
    if not names:
        return Problem("CuPy is not installed", _install(driver))
    replace = f"pip uninstall -y {' '.join(names)} && {_install(driver)}"
    if len(names) > 1:
        return Problem("several CuPy packages hide each other", replace)
    if names[0].startswith("cupy-cuda") and int(names[0][9:11]) > driver[0]:
        return Problem(f"{names[0]} needs a newer driver than this one for CUDA {_text(driver)}", replace)
    return None


def _nvrtc(version: tuple[int, int] | None, driver: tuple[int, int]) -> Problem | None:
    if version is None:
        return Problem("NVRTC is not installed", _install(driver))
    if version[0] > driver[0]:
        return Problem(
            f"NVRTC {_text(version)} compiles for a newer driver than this one for CUDA {_text(driver)}",
            f"pip uninstall -y nvidia-cuda-nvrtc && {_install(driver)}",
        )
    return None


def _torch(facts: Facts, driver: tuple[int, int]) -> Problem | None:
    if facts.torch_cuda is None:
        return Problem("this torch is built without CUDA", "pip install --force-reinstall torch")
    if int(facts.torch_cuda.partition(".")[0]) > driver[0]:
        return Problem(
            f"torch is built for CUDA {facts.torch_cuda}, the driver runs CUDA up to {_text(driver)}: "
            f"install a torch built for CUDA {driver[0]}, or a newer driver"
        )
    if facts.capability is None:
        return Problem(
            f"torch (CUDA {facts.torch_cuda}) finds no device; see what the driver says", "nvidia-smi"
        )
    if facts.capability < OLDEST_CAPABILITY:
        found, oldest = _text(facts.capability), _text(OLDEST_CAPABILITY)
        return Problem(f"the GPU has compute capability {found}; the kernels need {oldest} or newer")
    return None


def _install(driver: tuple[int, int]) -> str:
    return f"pip install 'servegate[cuda{min(driver[0], 13)}]'"


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
