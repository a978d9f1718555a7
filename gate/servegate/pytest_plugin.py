"""The pytest plugin's front door. Every pytest run of every project imports it: nothing heavy in here."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from servegate.pytest_support import Gate

PROPERTY = "servegate"
"""Name of the user property that carries a judged row to the report: it crosses to xdist's controller."""

MARKER = (
    "servegate(change='10%', floor='1ms'): how much slower a function that the `servegate` fixture times "
    "may get; both must be exceeded"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("servegate", "regression gate for LLM inference").addoption(
        "--servegate-update",
        action="store_true",
        help="write the baselines of the tests that run, instead of judging by them",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    if config.getoption("servegate_update") and os.environ.get("CI"):
        raise pytest.UsageError(
            "--servegate-update: refused in CI, where nobody looks; run it locally and commit the baselines"
        )


@pytest.fixture
def servegate(request: pytest.FixtureRequest) -> Gate:
    """Judge a suite or a function by its baseline; the test fails where the verdict is not a pass.

    ``servegate.check("servegate.yaml")`` runs a suite.
    ``servegate(fn, *args, **kwargs)`` times a function and returns its value.
    """
    from servegate.pytest_support import Gate

    return Gate(request)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    judged = [
        json.loads(str(value))
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, value in report.user_properties
        if name == PROPERTY
    ]
    if judged:
        from servegate.pytest_support import summary

        terminalreporter.section("servegate")
        terminalreporter.write(summary(judged))
