"""The example that docs/pytest.md walks through, on an engine that answers by arithmetic."""

import shutil
from pathlib import Path

from suite_project import CONFTEST

pytest_plugins = ["pytester"]

EXAMPLE = Path(__file__).parents[3] / "examples" / "pytest"
IGNORED = shutil.ignore_patterns("pytest", "servegate-out", ".pytest_cache", "__pycache__")
"""What running the example leaves in its folder."""


def test_it_runs_as_the_page_says(project, suite) -> None:
    shutil.copytree(EXAMPLE, project.path, dirs_exist_ok=True, ignore=IGNORED)
    project.makeconftest(CONFTEST)
    first = project.runpytest_inprocess("-p", "pytest_benchmark.plugin", "--servegate-update")
    first.assert_outcomes(passed=7)
    again = project.runpytest_inprocess("-p", "pytest_benchmark.plugin", "--collect-only", "-q")
    again.stdout.fnmatch_lines(["servegate.yaml::behaviour.completion_tokens", "servegate.yaml::other-rows"])
    project.runpytest_inprocess("servegate.yaml").assert_outcomes(passed=5)
