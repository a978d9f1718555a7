"""The statistics are light to import: SciPy is loaded by the first computation that needs it."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module", ["aa", "changepoint", "diagnose", "distributions", "paired", "percentiles"]
)
def test_no_import_loads_scipy(module: str) -> None:
    code = f"import sys, servegate.stats.{module}; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
