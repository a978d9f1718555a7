"""The pytest plugin's front door. Every pytest run of every project imports it: nothing heavy in here.

PYTEST_DONT_REWRITE: it has no assertions, and pytest warns where something imported it earlier.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Generator
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from servegate.pytest_plugin.gate import Gate
    from servegate.pytest_plugin.suite_items import SuiteFile

MARKER = "servegate"

PROPERTY = "servegate"
"""Name of the user property that carries a judgement to the report: it crosses to xdist's controller."""

MARKER_HELP = (
    "servegate(change='10%', floor='1ms'): how much slower what the `servegate` or the `benchmark` fixture "
    "times may get; both must be exceeded"
)

GATE = pytest.StashKey["Gate"]()
"""On an item: what judged in it, until its call ends."""

NAMED_SUITES = ("servegate.yaml", "servegate.yml", "servegate-*.yaml", "servegate-*.yml")
"""Files that are suites where the command line names them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("servegate", "regression gate for LLM inference")
    # Two options, and not one with an optional value, which would swallow the path that follows it.
    for option, how in (
        ("--servegate-update", "write the baselines of the tests that run, instead of judging by them"),
        ("--servegate-update=force", "the same, in CI too"),
    ):
        value = option.rpartition("=")[2] if "=" in option else "local"
        group.addoption(option, action="store_const", const=value, dest="servegate_update", help=how)
    group.addoption(
        "--servegate-base",
        metavar="REF",
        help="judge by the baselines and policies of the commit where HEAD left this branch, tag or commit",
    )
    parser.addini(
        "servegate_suites",
        "suite files to collect, as patterns relative to the root directory, such as suites/*.yaml",
        type="args",
        default=[],
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER_HELP)
    if config.getoption("servegate_update") or config.getoption("servegate_base"):
        from servegate.pytest_plugin.session import check_options

        check_options(config)


def pytest_report_header(config: pytest.Config) -> str | None:
    if not config.getoption("servegate_base"):
        return None
    from servegate.pytest_plugin.session import session_of

    return session_of(config).header


@pytest.fixture
def servegate(request: pytest.FixtureRequest) -> Gate:
    """Judge a suite or a function by its baseline; the test fails where the verdict is not a pass.

    ``servegate.check("servegate.yaml")`` runs a suite.
    ``servegate(fn, *args, **kwargs)`` times a function and returns its value.
    ``servegate.pedantic(fn, args=(), kwargs=None, setup=None, rounds=20, ...)`` says how.
    """
    from servegate.pytest_plugin.gate import Gate

    gate = Gate(request.node)
    request.node.stash[GATE] = gate
    return gate


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> SuiteFile | None:
    """Suites, and only where they are asked for: a project's YAML files are its own."""
    if file_path.suffix not in (".yaml", ".yml") or not _is_asked_for(file_path, parent):
        return None
    from servegate.pytest_plugin.suite_items import SuiteFile

    return SuiteFile.from_parent(parent, path=file_path)


def _is_asked_for(path: Path, parent: pytest.Collector) -> bool:
    if parent.session.isinitpath(path) and any(fnmatch(path.name, name) for name in NAMED_SUITES):
        return True
    patterns: list[str] = parent.config.getini("servegate_suites")
    root = parent.config.rootpath
    return path.is_relative_to(root) and any(fnmatch(path.relative_to(root).as_posix(), p) for p in patterns)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker(MARKER)]
    if marked:
        from servegate.pytest_plugin.markers import validate_markers

        validate_markers(marked)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """The verdict falls when the test is done: it hides no exception of the test's own, and pytest counts it
    like one, in reports, `--lf`, xfail, reruns and xdist."""
    try:
        result = yield
        if item.get_closest_marker(MARKER):
            from servegate.pytest_plugin.benchmark import judge_fixture

            judge_fixture(item)
    finally:
        gate = item.stash.get(GATE, None)
        if gate is not None:
            gate.leave_notes()
            del item.stash[GATE]  # a rerun of the test starts afresh
    if gate is not None:
        gate.conclude()
    return result


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_json(config: pytest.Config, output_json: dict[str, Any]) -> None:
    """pytest-benchmark is about to write: put what was judged beside its numbers."""
    from servegate.pytest_plugin.benchmark import add_extra_info

    add_extra_info(config, output_json)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    notes = _notes(terminalreporter)
    if notes:
        from servegate.pytest_plugin.notes import summary
        from servegate.render.terminal import Style

        terminalreporter.section("servegate")
        width = shutil.get_terminal_size().columns if terminalreporter.isatty else 120
        terminalreporter.write(summary(notes, Style(width)))


def _notes(terminalreporter: pytest.TerminalReporter) -> list[dict[str, Any]]:
    """What tests judged. A rerun test reports its earlier attempts again: its longest report counts."""
    longest: dict[str, list[str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                notes = [str(value) for name, value in report.user_properties if name == PROPERTY]
                longest[report.nodeid] = max(longest.get(report.nodeid, []), notes, key=len)
    return [json.loads(note) for notes in longest.values() for note in notes]
