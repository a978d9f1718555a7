"""A small project with suites that a fake engine answers: the texts of its files."""

from __future__ import annotations

from pathlib import Path

FAKE = Path(__file__).parents[1] / "cli"

CONFTEST = f"""
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, {str(FAKE)!r})


def opened(plan):
    from fake_target import FakeTarget

    with Path("measured.log").open("a") as log:
        log.write("once\\n")
    return FakeTarget(plan, tokens=int(os.environ["FAKE_TOKENS"]), gap_ms=int(os.environ["FAKE_GAP_MS"]))


def pytest_configure(config):
    from servegate import pipeline

    patch = pytest.MonkeyPatch()
    patch.setattr(pipeline, "open_target", opened)
    config.add_cleanup(patch.undo)
"""
"""Of a project with suites: it notes each time that a target is opened."""

SUITE = """
version: 1
name: small
target: {kind: embedded, model: none}
prompts: {set: prompts.yaml}
workloads:
  behaviour: {kind: closed, concurrency: 2, numerics: reference}
policy:
  completion_tokens: {change: 5%}
  token_ids: {max: 0}
  error_rate: {max: 0}
"""

TIMED_SUITE = SUITE.replace(
    "policy:", "  latency: {kind: closed, concurrency: 2, numerics: native, repeat: 10}\npolicy:"
).replace("  error_rate", "  ttft_p95: {change: 10%, floor: 1ms}\n  error_rate")

PROMPTS = """
version: 1
name: small
prompts:
  - {id: a, text: one}
  - {id: b, text: two}
"""
