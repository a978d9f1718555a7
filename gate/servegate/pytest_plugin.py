"""The pytest plugin's front door. Every pytest run of every project imports it: nothing heavy in here."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from servegate.pytest_support import Gate

MARKER = "servegate"

PROPERTY = "servegate"
"""Name of the user property that carries a judgement to the report: it crosses to xdist's controller."""

MARKER_HELP = (
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
    config.addinivalue_line("markers", MARKER_HELP)
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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker(MARKER)]
    if marked:
        from servegate.pytest_support import validate_markers

        validate_markers(marked)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    notes = _notes(terminalreporter)
    if notes:
        from servegate.pytest_support import summary
        from servegate.render.terminal import Style

        terminalreporter.section("servegate")
        width = shutil.get_terminal_size().columns if terminalreporter.isatty else 120
        terminalreporter.write(summary(notes, Style(width)))


def _notes(terminalreporter: pytest.TerminalReporter) -> list[dict[str, str]]:
    """What tests judged. A rerun test reports its earlier attempts again: its longest report counts."""
    longest: dict[str, list[str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                notes = [str(value) for name, value in report.user_properties if name == PROPERTY]
                longest[report.nodeid] = max(longest.get(report.nodeid, []), notes, key=len)
    return [json.loads(note) for notes in longest.values() for note in notes]
