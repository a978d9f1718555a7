"""All kernels once more, built with the address and undefined-behaviour sanitizers.

The sanitizers' runtime must be in a process from its start, so each test runs in one of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from servegate_kernels.shim import sanitizer_runtime

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parent

COMPILERS = ("test_kernel_resources", "test_kernel_loader")
"""About what NVRTC makes: nothing that these sanitizers could see."""

STATISTICS = ("kept_set_by_many_draws", "frequencies_follow_the_softmax")
"""Hundreds of rows through code that other tests run: minutes under a sanitizer, and nothing new to see."""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "LD_PRELOAD": sanitizer_runtime(),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python and torch leave theirs
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "SERVEGATE_SHIM_SANITIZE": "1",
    }
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, cwd=FOLDER, capture_output=True, text=True, check=False)


def test_kernels_touch_only_what_is_theirs() -> None:
    tests = [str(path) for path in sorted(FOLDER.glob("test_kernel_*.py")) if path.stem not in COMPILERS]
    without = ["-k", " and ".join(f"not {name}" for name in STATISTICS)]
    done = run("-m", "pytest", "-q", "-x", "-m", "not slow", *without, "-p", "no:cacheprovider", *tests)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


BROKEN = """
import torch
from servegate_kernels import shim
text = '#include "device.h"\\nstruct S {{ float at[4], more[64]; }};\\n'
text += "void k(float* x, long long i) {{ {body} }}"
shim.run(shim.build(text, ["k"], sanitize=True), "kernel_0", (1, 1, 1), 32, [torch.zeros(64), 4])
"""


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("BLOCK_SHARED(S, s); (&s.at[0])[17 * i] = 1;", "heap-buffer-overflow"),
        ("x[0] = (1 << 30) * (int)i;", "signed integer overflow"),
        ("BLOCK_SHARED(S, s); x[0] = s.at[i];", "out of bounds"),
    ],
)
def test_the_sanitizers_see_what_they_should(body: str, complaint: str) -> None:
    done = run("-c", BROKEN.format(body=body))
    assert done.returncode != 0
    assert complaint in done.stderr
