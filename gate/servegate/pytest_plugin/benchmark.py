"""pytest-benchmark's results under servegate's verdict, and servegate's numbers in pytest-benchmark's JSON.

pytest-benchmark need not be installed: nothing here imports it.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from servegate.errors import UsageError
from servegate.facts import Facts, Sample
from servegate.files import file_digest
from servegate.pytest_plugin import GATE, PROPERTY, timing
from servegate.pytest_plugin.gate import Gate
from servegate.pytest_plugin.markers import Tolerance, tolerance
from servegate.pytest_plugin.measuring import refuse_company
from servegate.pytest_plugin.notes import readable
from servegate.pytest_plugin.session import session_of
from servegate.verdict import Verdict

NAME: Final = "benchmark"
MS_PER_S: Final = 1e3


def judge_files(
    base: str | Path, head: str | Path, change: Tolerance = None, floor: Tolerance = None
) -> Verdict:
    """Two files of `pytest --benchmark-json`, judged by the rounds of their benchmarks.

    Without the data of each round (`--benchmark-save` alone keeps none) a benchmark is inconclusive.
    What only the base has is missing, and fails. Files of two machines do not compare. UsageError where a
    file is none of pytest-benchmark's, or both are the same.
    """
    base, head = Path(base), Path(head)
    if file_digest(base) == file_digest(head):
        raise UsageError(f"{head}: the same file as {base}: it equals itself and proves nothing")
    before, after = _facts(base), _facts(head)
    names = dict.fromkeys((*before.workloads, *after.workloads))
    return timing.verdict(names, timing.tolerance(change, floor), before, after)


def judge_fixture(item: pytest.Item) -> None:
    """A marked test's `benchmark` fixture, by the baseline of the test. Nothing where it has none."""
    module = sys.modules.get("pytest_benchmark.fixture")
    fixture = getattr(item, "funcargs", {}).get("benchmark")
    if module is None or not isinstance(fixture, module.BenchmarkFixture):
        return
    gate = item.stash.setdefault(GATE, Gate(item))
    if fixture.stats is None:
        # pytest-benchmark turns itself off under xdist, and the test would be green for nothing.
        with readable():
            refuse_company(session_of(item.config), "the benchmark is timed")
        gate.skip(NAME, "pytest-benchmark measured nothing here")
        return
    times = [seconds * MS_PER_S for seconds in fixture.stats.stats.data]
    gate.judge_sample(NAME, tolerance(item), timing.sample(times))


def add_extra_info(config: pytest.Config, output_json: dict[str, Any]) -> None:
    """``extra_info.servegate`` of each benchmark in whose test something was judged.

    pytest-benchmark asks once for each file it writes: the same is said each time.
    """
    metrics = session_of(config).metrics
    for benchmark in output_json["benchmarks"]:
        if benchmark["fullname"] in metrics:
            benchmark["extra_info"] = {**benchmark["extra_info"], PROPERTY: metrics[benchmark["fullname"]]}


def _facts(path: Path) -> Facts:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        samples = {entry["fullname"]: _sample(entry["stats"]) for entry in content["benchmarks"]}
        return timing.facts_of(samples, "pytest-benchmark", _machine(content["machine_info"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{path}: not a file of `pytest --benchmark-json` ({type(error).__name__}: {error})"
        ) from None


def _sample(stats: Mapping[str, Any]) -> Sample:
    median = float(stats["median"])
    if not math.isfinite(median):
        return Sample(value=None, n=0, invalid=True, note=f"its median is {median}")
    if "data" in stats:
        return timing.sample([float(seconds) * MS_PER_S for seconds in stats["data"]])
    return Sample(value=float(f"{median * MS_PER_S:.6g}"), n=int(stats["rounds"]))


def _machine(info: Mapping[str, Any]) -> dict[str, str]:
    """What timings depend on; a runner's host name is another at each start."""
    cpu = info.get("cpu") or {}
    return {
        "cpu": str(cpu.get("brand_raw", "unknown")),
        "cores": str(cpu.get("count", "unknown")),
        "os": f"{info.get('system', 'unknown')} {info.get('machine', 'unknown')}",
    }
