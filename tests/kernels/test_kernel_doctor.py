"""Each way in which driver, CuPy, NVRTC and torch do not fit, and the command it is answered with."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest
import torch

from servegate_kernels import doctor
from servegate_kernels.doctor import Facts, gather, problems
from servegate_kernels.loader import DeviceError, DeviceLauncher

GOOD = Facts(driver=(13, 0), cupy=("cupy-cuda13x",), nvrtc=(13, 0), torch_cuda="13.0", capability=(9, 0))

OLDER: dict[str, Any] = {
    "driver": (12, 4),
    "cupy": ("cupy-cuda12x",),
    "nvrtc": (12, 9),
    "torch_cuda": "12.8",
}


def test_a_fitting_machine_has_no_problem() -> None:
    assert problems(GOOD) == []
    assert problems(replace(GOOD, driver=(14, 1), capability=(12, 0))) == []
    assert problems(replace(GOOD, **OLDER)) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"driver": None}, "no NVIDIA driver"),
        ({"driver": (11, 8)}, "the driver runs CUDA up to 11.8; CUDA 12 or newer is needed"),
        ({"cupy": ()}, "pip install 'servegate[cuda13]'"),
        (OLDER | {"cupy": ()}, "pip install 'servegate[cuda12]'"),
        ({"cupy": ("cupy-cuda12x", "cupy-cuda13x")}, "pip uninstall -y cupy-cuda12x cupy-cuda13x"),
        (
            OLDER | {"cupy": ("cupy-cuda13x",)},
            "pip uninstall -y cupy-cuda13x && pip install 'servegate[cuda12]'",
        ),
        ({"nvrtc": None}, "NVRTC is not installed"),
        (OLDER | {"nvrtc": (13, 0)}, "NVRTC 13.0 compiles for a newer driver"),
        (OLDER | {"torch_cuda": "13.0", "capability": None}, "install a torch built for CUDA 12"),
        ({"torch_cuda": None, "capability": None}, "this torch is built without CUDA"),
        ({"capability": None}, "finds no device"),
        ({"capability": (7, 5)}, "compute capability 7.5"),
    ],
)
def test_one_line_and_a_remedy(change: dict[str, Any], words: str) -> None:
    (line,) = problems(replace(GOOD, **change))
    assert words in str(line)
    assert "\n" not in str(line)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_this_machine_has_no_device_and_the_launcher_says_why() -> None:
    found = problems(gather())
    assert found
    with pytest.raises(DeviceError) as caught:
        DeviceLauncher()
    assert str(caught.value) == "; ".join(map(str, found))


def test_a_cupy_that_cannot_start_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "gather", lambda: GOOD)
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(DeviceError, match=r"^CuPy cannot be used: import of cupy halted[^\n]*$"):
        DeviceLauncher()
