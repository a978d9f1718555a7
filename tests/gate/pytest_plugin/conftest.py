"""Projects of their own for the plugin to run in, outside CI and without an engine."""

from __future__ import annotations

import pytest
from suite_project import CONFTEST, PROMPTS, SUITE
from timed_project import TIMED

from servegate.pytest_plugin import benchmark, notes, suite_items
from servegate.render.terminal import Style

# pytester unloads what a run was the first to import; loaded before, it stays, and in one version.
notes.summary([], Style())
LOADED_EARLY = (benchmark, suite_items)


@pytest.fixture
def project(pytester, monkeypatch):
    """An empty project. Runs in this process: a new one costs seconds."""
    monkeypatch.delenv("CI", raising=False)
    # Without the other plugins that happen to be installed, a run takes a tenth of the time.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p servegate.pytest_plugin -p no:randomly")
    return pytester


@pytest.fixture
def suite(project, monkeypatch):
    """A project with a suite in ``servegate.yaml``; called, it says what the fake engine answers."""

    def answers(tokens: int = 12, gap_ms: int = 10) -> None:
        monkeypatch.setenv("FAKE_TOKENS", str(tokens))
        monkeypatch.setenv("FAKE_GAP_MS", str(gap_ms))

    answers()
    project.makeconftest(CONFTEST)
    (project.path / "servegate.yaml").write_text(SUITE)
    (project.path / "prompts.yaml").write_text(PROMPTS)
    return answers


@pytest.fixture
def measured(project):
    """How often a target was opened since the last call."""
    log = project.path / "measured.log"

    def since() -> int:
        times = log.read_text().count("once") if log.exists() else 0
        log.unlink(missing_ok=True)
        return times

    return since


@pytest.fixture
def timed(project):
    """A project with one timed test."""
    project.makepyfile(test_it=TIMED)
    return project
