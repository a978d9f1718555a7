from collections.abc import Callable
from typing import Any

import pytest

from servegate.verdict import Comparison, Outcome, Row, State, Verdict

MS = 1e6


@pytest.fixture
def row() -> Callable[..., Row]:
    """A row with everything set; say only what the test is about."""

    def make(**given: Any) -> Row:
        plain: dict[str, Any] = {
            "workload": "latency",
            "metric": "ttft_p95",
            "kind": "timed",
            "unit": "ns",
            "better": "lower",
            "gating": True,
            "base": 100 * MS,
            "head": 150 * MS,
            "change": 0.5,
            "tolerance": "+10 % and 20 ms",
            "state": State.REGRESSED,
            "reason": "50 % slower, 10 % is allowed",
        }
        return Row(**(plain | given))

    return make


@pytest.fixture
def verdict() -> Callable[..., Verdict]:
    def make(*rows: Row, **given: Any) -> Verdict:
        comparison: dict[str, Any] = {
            "suite": "quickstart",
            "rows": rows,
            "environment": given.pop("environment", ()),
            "notes": given.pop("notes", ()),
        }
        plain: dict[str, Any] = {
            "suite": "quickstart",
            "outcome": Outcome.REGRESSED,
            "exit_code": 1,
            "headline": "FAIL: ttft_p95 50 % slower",
            "comparison": Comparison(**comparison),
        }
        return Verdict(**(plain | given))

    return make
