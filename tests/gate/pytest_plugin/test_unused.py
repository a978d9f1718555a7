"""A project that uses nothing of it notices nothing of it."""

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

HEAVY = (
    "torch", "numpy", "scipy", "jinja2", "pydantic", "rich", "yaml", "click", "github", "jsonschema",
    "matplotlib",
)  # fmt: skip


@pytest.mark.parametrize("argument", ["--collect-only", "-rA"])
def test_unused_plugin_says_and_imports_nothing(project, argument: str) -> None:
    """jaxtyping#220: an installed plugin that nobody asked for cost every run 2.7 s."""
    project.makepyfile(test_it="def test_it(): pass\n")
    (project.path / "servegate.yaml").write_text("no: suite\n")
    program = (
        f"import sys, pytest; code = pytest.main([{argument!r}, '-p', 'no:cacheprovider', '-W', 'error'])\n"
        "ours = {m for m in sys.modules if m.startswith('servegate')}\n"
        f"print('imported:', sorted(ours), [name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=project.path)
    lines = done.stdout.splitlines()
    assert lines[-1] == "imported: ['servegate', 'servegate.pytest_plugin'] []"
    assert not [
        line for line in lines[:-1] if "servegate" in line and not line.startswith(("plugins:", "rootdir:"))
    ]
    assert sorted(path.name for path in project.path.iterdir() if path.name != "__pycache__") == [
        "servegate.yaml",
        "test_it.py",
    ]


def test_importing_it_takes_a_few_milliseconds(project) -> None:
    """Measured as a share of what pytest itself takes, since machines differ."""
    program = (
        "import time; t = time.perf_counter; begun = t(); import pytest; middle = t()\n"
        "import servegate.pytest_plugin; print((t() - middle) / (middle - begun))\n"
    )
    shares = [
        float(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout)
        for _ in range(3)
    ]
    assert min(shares) < 0.1


def test_items_of_other_plugins_are_let_alone(project) -> None:
    """pytest-benchmark#243: items that are no functions broke it."""
    project.makepyfile(test_it='"""\n>>> 1 + 1\n2\n"""\n')
    project.runpytest_inprocess("--doctest-modules", "-W", "error").assert_outcomes(passed=1)


def test_options_do_not_clash_with_pytest_benchmarks(project) -> None:
    """codeflash#684: an option registered twice ended the run."""
    result = project.runpytest_inprocess("-p", "pytest_benchmark.plugin", "--help")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*--servegate-update=force*", "*--servegate-base=REF*"])


def test_strict_markers_know_the_marker(timed) -> None:
    result = timed.runpytest_inprocess("--strict-markers", "--strict-config", "--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.servegate(change='10%', floor='1ms'): *"])
