"""Kernels on the host shim. ``SERVEGATE_SHIM_SANITIZE=1`` builds them with the address and undefined-
behaviour sanitizers, for a process started with their runtime preloaded (test_kernel_sanitizers.py starts
one)."""

from __future__ import annotations

import os

import pytest

from servegate_kernels.ops import Kernels
from servegate_kernels.shim import HostLauncher

SANITIZE = os.environ.get("SERVEGATE_SHIM_SANITIZE") == "1"


@pytest.fixture(scope="session")
def kernels() -> Kernels:
    return Kernels(HostLauncher(sanitize=SANITIZE))


@pytest.fixture(scope="session")
def backwards_kernels() -> Kernels:
    """Threads and blocks in reverse order: a result that differs is a race."""
    return Kernels(HostLauncher(sanitize=SANITIZE, backwards=True))
