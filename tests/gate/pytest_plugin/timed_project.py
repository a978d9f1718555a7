"""A test that times something, and baselines for it that no machine's speed can turn."""

from __future__ import annotations

from pathlib import Path

from servegate.facts import Sample
from servegate.pytest_plugin.timing import Store

TIMED = """
import pytest

@pytest.mark.servegate(change="10%", floor="0ms")
def test_sum(servegate):
    assert servegate(sum, range(1000)) == 499500
"""

SLOWER_BEFORE, FASTER_BEFORE = 1e9, 1e-9
"""Stored medians in ms that no machine reaches: no test here depends on real time."""


def baselines(project) -> list[Path]:
    return sorted((project.path / "baselines").rglob("*.json"))


def store(project, median_ms: float, node: str = "test_it.py::test_sum", name: str = "call") -> None:
    Store(project.path, node).write(name, Sample(value=median_ms, n=20, per_round=(median_ms,) * 20))
