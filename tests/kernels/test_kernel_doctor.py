"""Each way in which driver, CuPy, NVRTC and torch do not fit, and the command it is answered with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from servegate_kernels.doctor import Facts, gather, problems
from servegate_kernels.loader import DeviceError, DeviceLauncher

GOOD = Facts(driver=(13, 0), cupy=("cupy-cuda13x",), nvrtc=(13, 0), torch_cuda="13.0", capability=(9, 0))


def test_a_fitting_machine_has_no_problem() -> None:
    assert problems(GOOD) == []
    assert problems(replace(GOOD, driver=(14, 1), capability=(12, 0))) == []
    assert (
        problems(replace(GOOD, driver=(12, 4), cupy=("cupy-cuda12x",), nvrtc=(12, 9), torch_cuda="12.8"))
        == []
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"driver": None}, "no NVIDIA driver"),
        ({"driver": (11, 8)}, "install a driver for CUDA 12"),
        ({"cupy": ()}, "pip install 'servegate[cuda13]'"),
        ({"driver": (12, 4), "cupy": (), "nvrtc": (12, 9)}, "pip install 'servegate[cuda12]'"),
        ({"cupy": ("cupy-cuda12x", "cupy-cuda13x")}, "pip uninstall -y cupy-cuda12x cupy-cuda13x"),
        ({"driver": (12, 4), "nvrtc": (12, 9)}, "pip uninstall -y cupy-cuda13x && pip install cupy-cuda12x"),
        ({"nvrtc": None}, "NVRTC is not installed"),
        ({"driver": (12, 4), "cupy": ("cupy-cuda12x",)}, "NVRTC 13.0 compiles for a newer driver"),
        ({"torch_cuda": None, "capability": None}, "this torch is built without CUDA"),
        ({"capability": None}, "finds no device"),
        ({"capability": (7, 5)}, "compute capability 7.5"),
    ],
)
def test_one_line_and_a_remedy(change: dict[str, Any], words: str) -> None:
    (line,) = problems(replace(GOOD, **change))
    assert words in line
    assert "\n" not in line


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_this_machine_has_no_device_and_the_launcher_says_why() -> None:
    found = problems(gather())
    assert found
    with pytest.raises(DeviceError) as caught:
        DeviceLauncher()
    assert str(caught.value) == "; ".join(found)
