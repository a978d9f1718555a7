"""A test of pytest-benchmark, which the mark has judged."""

import json

import pytest

pytest.importorskip("pytest_benchmark")

REQUEST = {"messages": [{"role": "user", "content": "a question " * 50}] * 40}


@pytest.mark.servegate(change="50%", floor="1ms")
def test_encoding_a_request(benchmark):
    assert benchmark(json.dumps, REQUEST).startswith("{")
