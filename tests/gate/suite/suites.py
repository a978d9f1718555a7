"""Suites that are right, for tests that make one thing wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from servegate.errors import ExitCode, UsageError
from servegate.suite.loading import LoadedSuite, load_suite

METRICS = {"ttft_p95": "ms", "completion_tokens": "tokens", "logprob_delta": "nat", "error_rate": "share"}

SUITE = """\
version: 1
name: support
target: {kind: embedded, model: smollm2-135m}
prompts:
  set: prompts.yaml
workloads:
  latency: {kind: closed, numerics: native}
policy:
  ttft_p95: {change: 10%, floor: 20ms}
"""

FULL = """\
version: 1
name: support-chat
target:
  kind: embedded
  model: smollm2-135m
  engine: {block_size: 16, num_blocks: 512}
sampling: {temperature: 0, max_tokens: 96, seed: 1, stop: ["\\n\\n"]}
prompts: {set: prompts.yaml, system: Be brief.}
workloads:
  behaviour: {kind: closed, concurrency: 4, numerics: reference}
  latency: {kind: closed, concurrency: 4, numerics: native, repeat: 3}
prices:
  {per: 1000000, prompt: 0.15, cached: 0.075, completion: 0.6, currency: USD, source: s, date: 2026-10-01}
quality:
  - {prompt: refund, contains: "30 days"}
  - {prompt: "*", json_schema: {type: object}}
policy:
  completion_tokens: {change: 5%}
  logprob_delta: {max: 1e-6}
  latency.ttft_p95: {change: 10%, floor: 20ms}
  inconclusive: fail
pins: {engine: "servegate 0.1"}
"""

PROMPTS = """\
version: 1
name: support
prompts:
  - {id: refund, text: "Can I return shoes?"}
  - {id: hours, text: "When are you open?"}
"""

Write = Callable[..., Path]


def load(path: Path) -> LoadedSuite:
    return load_suite(path, METRICS)


def faults(path: Path) -> list[str]:
    with pytest.raises(UsageError) as caught:
        load(path)
    assert caught.value.exit_code is ExitCode.USAGE
    return str(caught.value).split("\n")


def changed(old: str, new: str, text: str = SUITE) -> str:
    assert old in text
    return text.replace(old, new)
