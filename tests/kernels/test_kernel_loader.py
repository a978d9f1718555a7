"""The launcher for a GPU as far as a machine with none can take it: real compiling, CuPy and driver played.

The stand-in for CuPy takes arrays by DLPack as CuPy does and runs what it is asked to load on the host shim,
so everything between ``Kernels`` and the driver is real. Not run anywhere here: CuPy itself, the driver.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from kernel_cases import numbers

from servegate_kernels import doctor, loader, nvrtc, sources
from servegate_kernels.loader import DeviceError, DeviceLauncher, OnOwnStream
from servegate_kernels.ops import Kernels
from servegate_kernels.shim import HostLauncher

STREAM = 4711


class PlayedCupy:
    """As much of CuPy as the launcher uses."""

    def __init__(self) -> None:
        self.cuda = SimpleNamespace(Device=self._device, ExternalStream=self._stream)
        self.current: list[object] = []
        self.loaded: list[Path] = []
        self.streams: set[tuple[object, ...]] = set()

    @contextmanager
    def _device(self, index: int) -> Iterator[None]:
        self.current.append(index)
        yield
        self.current.pop()

    @contextmanager
    def _stream(self, handle: int) -> Iterator[None]:
        self.current.append(handle)
        yield
        self.current.pop()

    def from_dlpack(self, x: Any) -> torch.Tensor:
        array = torch.from_dlpack(x.__dlpack__(stream=STREAM, max_version=(1, 0), copy=None))
        if array.dtype == torch.bfloat16:
            raise NotImplementedError("CuPy does not support bfloat16 yet")
        return array

    def RawModule(self, *, path: str) -> SimpleNamespace:  # noqa: N802
        self.loaded.append(Path(path))
        return SimpleNamespace(get_function=self._function)

    def _function(self, name: str) -> Any:
        (expression,) = [x for x in NAMES if NAMES[x] == name]

        def launch(grid: tuple[int, int, int], block: tuple[int, int, int], args: Sequence[Any]) -> None:
            self.streams.add(tuple(self.current))
            HostLauncher().launch(expression, grid, block[0], [plain(x) for x in args])

        return launch


NAMES: dict[str, str] = {}
"""Expression -> mangled name, as the launcher compiled them."""


def plain(x: Any) -> torch.Tensor | int | float | None:
    """An argument of CuPy's as the host shim takes it."""
    if isinstance(x, torch.Tensor):
        return x
    if isinstance(x, np.uint64):
        assert x == 0
        return None
    return float(x) if isinstance(x, np.float64) else int(x)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> PlayedCupy:
    played = PlayedCupy()
    monkeypatch.setitem(sys.modules, "cupy", played)
    monkeypatch.setattr(doctor, "problems", lambda facts: [])
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=STREAM))
    compiled_file = loader.compiled_file

    def noted(expression: str, target: str) -> tuple[str, Path]:
        NAMES[expression], path = compiled_file(expression, target)
        return NAMES[expression], path

    monkeypatch.setattr(loader, "compiled_file", noted)
    return played


@pytest.fixture
def on_device(cupy: PlayedCupy) -> Kernels:
    launcher = DeviceLauncher()
    launcher.device = torch.device("cpu")  # where the played GPU has its memory
    return Kernels(launcher)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str)
def test_arguments_arrive_by_dlpack_and_results_in_torch_s_memory(
    on_device: Kernels, dtype: torch.dtype
) -> None:
    x, residual, weight = (numbers(i, 3, 64).to(dtype) for i in range(3))
    expected = Kernels(HostLauncher())
    for mine, theirs in zip(
        on_device.add_rms_norm(x, residual, weight[0], 1e-5),
        expected.add_rms_norm(x, residual, weight[0], 1e-5),
        strict=True,
    ):
        assert torch.equal(mine, theirs)
    assert torch.equal(on_device.rms_norm(x, weight[0], 1e-5), expected.rms_norm(x, weight[0], 1e-5))


def test_rows_that_lie_apart_are_passed_where_they_lie(on_device: Kernels) -> None:
    fused = numbers(0, 4, 3 * 64).to(torch.bfloat16).view(4, 3, 64)
    pools = [torch.zeros(4, 1, 64, dtype=torch.bfloat16) for _ in range(2)]
    on_device.write_kv(fused[:, 1:2], fused[:, 2:3], pools[0], pools[1], torch.tensor([3, 1, -1, 0]))
    assert torch.equal(pools[0][[3, 1, 0], 0], fused[[0, 1, 3], 1])
    assert torch.equal(pools[1][[3, 1, 0], 0], fused[[0, 1, 3], 2])


def test_launches_are_on_torch_s_current_stream(on_device: Kernels, cupy: PlayedCupy) -> None:
    with torch.inference_mode():
        on_device.embedding(torch.ones(2, 8), torch.tensor([1]))
    assert cupy.streams == {(0, STREAM)}  # of device 0


def test_what_is_loaded_is_what_was_compiled_once(on_device: Kernels, cupy: PlayedCupy) -> None:
    for _ in range(2):
        on_device.embedding(torch.ones(2, 8), torch.tensor([1]))
    (path,) = cupy.loaded
    code = path.read_bytes()
    assert code.startswith(b"\x7fELF")
    assert NAMES["embedding"].encode() in code
    assert loader.compiled_file("embedding", "sm_90") == (NAMES["embedding"], path)


def test_a_tensor_is_handed_over_where_it_lies_and_nobody_waits() -> None:
    """``Tensor.__dlpack__`` is what makes streams wait for each other."""

    class Watched(torch.Tensor):
        def __dlpack__(self, **options: Any) -> Any:
            raise AssertionError("streams would wait")

    tensor = torch.ones(3).as_subclass(Watched)
    assert np.from_dlpack(OnOwnStream(tensor)).ctypes.data == tensor.data_ptr()


def test_a_parameter_with_gradients_is_no_obstacle() -> None:
    weight = torch.ones(3, requires_grad=True)
    assert np.from_dlpack(OnOwnStream(weight)).ctypes.data == weight.data_ptr()


def test_a_gpu_newer_than_nvrtc_gets_ptx() -> None:
    newest = max(nvrtc.architectures())
    assert nvrtc.target(90) == "sm_90"
    assert nvrtc.target(newest + 7) == f"compute_{newest}"
    assert nvrtc.target(85) == "compute_80"
    with pytest.raises(nvrtc.NvrtcError, match=r"compiles for compute capability \d+ and newer, not for 35"):
        nvrtc.target(35)
    name, path = loader.compiled_file("kv_write", nvrtc.target(newest + 7))
    ptx = path.read_text()
    assert f".target sm_{newest}" in ptx
    assert f".entry {name}" in ptx


def test_a_driver_that_refuses_is_one_clear_line(cupy: PlayedCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise RuntimeError("CUDA_ERROR_UNSUPPORTED_PTX_VERSION: the provided PTX is too new\nmore")

    launcher = DeviceLauncher()
    monkeypatch.setattr(cupy, "RawModule", refuse)
    with pytest.raises(DeviceError, match=r"^embedding cannot be run as sm_90: CUDA_ERROR[^\n]+too new$"):
        launcher.function("embedding")


def test_the_flags_are_those_of_the_checks() -> None:
    """CuPy's own compiling adds -ftz=true: floats near zero would differ from the host shim's."""
    assert nvrtc.FLAGS is sources.FLAGS
    ptx = nvrtc.compile_kernel(sources.assemble("rows.cu"), "rms_norm<float>", "compute_80").code
    assert b".ftz" not in ptx
