"""What is installed here, what is missing, and the exact command for it."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Literal

import servegate
from servegate.machine import NONE, machine_facts
from servegate.model import Model
from servegate.targets.embedded import cuda_problems, known_models

_ENGINE = "pip install 'servegate[engine]'"
_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "bf16", "svebf16")
_FAST_BF16 = {"avx512_bf16", "amx_bf16", "bf16", "svebf16"}


Status = Literal["ok", "missing", "not needed"]


class Finding(Model):
    name: str
    status: Status
    found: str
    fix: str | None = None
    """The command that puts it right."""


def diagnose() -> tuple[Finding, ...]:
    machine = machine_facts()
    return (
        Finding(name="python", status="ok", found=f"{platform.python_version()} on {machine['os']}"),
        Finding(name="servegate", status="ok", found=servegate.__version__),
        _cpu(f"{machine['cpu']}, {machine['cores']} cores, {machine['memory']}", _cpuinfo()),
        *(_package(name, _ENGINE) for name in ("torch", "tokenizers", "safetensors", "gguf")),
        _optional("huggingface_hub", "pip install 'servegate[hub]'", "fetches models by Hugging Face id"),
        _optional("aiohttp", "pip install 'servegate[wire]'", "talks to servers"),
        _package("pytest", "pip install pytest"),
        _optional("pytest-benchmark", "pip install 'servegate[benchmark]'", "times functions in tests"),
        _gpu(machine["gpu"], machine["driver"]),
        *_cuda(machine["driver"], cuda_problems()),
        *_models(known_models()),
    )


def _cpuinfo() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _version(*names: str) -> str | None:
    """Of the first of these distributions that is installed."""
    for name in names:
        try:
            return f"{name} {metadata.version(name)}" if len(names) > 1 else metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def _package(name: str, fix: str) -> Finding:
    version = _version(name)
    if version:
        return Finding(name=name, status="ok", found=version)
    return Finding(name=name, status="missing", found="not installed", fix=fix)


def _optional(name: str, command: str, use: str) -> Finding:
    version = _version(name)
    if version:
        return Finding(name=name, status="ok", found=version)
    return Finding(name=name, status="not needed", found=f"not installed; {use}: {command}")


def _cpu(model: str, cpuinfo: str) -> Finding:
    flags = _flags(cpuinfo)
    have = " ".join(flag for flag in _FLAGS if flag in flags) or "no vector flags known"
    native = "bfloat16" if _FAST_BF16 & flags else "float32, as this CPU has no fast bfloat16"
    return Finding(name="cpu", status="ok", found=f"{model}; {have}; numerics: native is {native}")


def _flags(cpuinfo: str) -> set[str]:
    """``flags`` of the first x86 core, ``Features`` of the first Arm core."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip().lower() in ("flags", "features"):
            return set(value.split())
    return set()


def _gpu(gpu: str, driver: str) -> Finding:
    if driver == NONE:
        found = "no NVIDIA driver here; the engine runs on the CPU"
        return Finding(name="gpu", status="not needed", found=found)
    return Finding(name="gpu", status="ok", found=f"{gpu}, driver {driver}")


def _cuda(driver: str, problems: Sequence[tuple[str, str | None]] | None) -> tuple[Finding, ...]:
    """Whether the engine could run on the GPU: what it finds itself, if it is installed."""
    status: Status = "not needed" if driver == NONE else "missing"
    if problems is None:
        fix = None if driver == NONE else f"pip install 'servegate[{_extra(driver)}]'"
        return (Finding(name="cuda", status=status, found="no engine that could use a GPU", fix=fix),)
    if not problems:
        cupy = _version("cupy-cuda13x", "cupy-cuda12x") or "CuPy"
        return (Finding(name="cuda", status="ok", found=f"driver, {cupy}, NVRTC and torch fit together"),)
    return tuple(Finding(name="cuda", status=status, found=what, fix=fix) for what, fix in problems)


def _extra(driver: str) -> str:
    """CUDA 13 needs driver 580 or newer."""
    major = driver.partition(".")[0]
    return "cuda13" if major.isdigit() and int(major) >= 580 else "cuda12"


def _models(models: dict[str, Path | None]) -> tuple[Finding, ...]:
    return tuple(
        Finding(name=f"model {name}", status="ok", found=str(path))
        if path
        else Finding(
            name=f"model {name}", status="missing", found="not fetched", fix=f"servegate model fetch {name}"
        )
        for name, path in models.items()
    )
