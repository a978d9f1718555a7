"""The rows that are told from a suite are the rows that a comparison then has."""

import pytest
from suite_project import FAKE, PROMPTS, TIMED_SUITE

from servegate import pipeline
from servegate.metrics.table import METRICS
from servegate.pytest_plugin.expected import gating_rows, item_name
from servegate.suite.loading import load_suite

COUNTED_BY_ENGINES = {
    "steps",
    "prefill_tokens",
    "decode_tokens",
    "preemptions",
    "evictions",
    "peak_blocks",
    "peak_running",
    "kv_concurrency",
    "recomputed_tokens",
}
"""The fake engine counts none of these."""

PRICES = {
    "none": "",
    "tokens": "prices: {prompt: 1, cached: 1, completion: 1, currency: USD, source: x, date: 2026-01-01}\n",
    "machine": "prices: {machine_hour: 1, currency: USD, source: x, date: 2026-01-01}\n",
}


@pytest.mark.parametrize("prices", PRICES)
@pytest.mark.parametrize("quality", ["", "quality: [{prompt: '*', regex: w}]\n"])
def test_every_gating_row_has_an_item_and_every_item_a_row(
    tmp_path, monkeypatch, prices: str, quality: str
) -> None:
    monkeypatch.syspath_prepend(FAKE)
    from fake_target import FakeTarget

    rules = "".join(f"  {name}: {{change: 0%}}\n" for name in METRICS if name not in COUNTED_BY_ENGINES)
    head = TIMED_SUITE.partition("policy:")[0]
    (tmp_path / "suite.yaml").write_text(
        f"{head}{PRICES[prices]}{quality}policy:\n{rules}pins: {{engine: fake 1}}\n"
    )
    (tmp_path / "prompts.yaml").write_text(PROMPTS)
    monkeypatch.setattr(pipeline, "open_target", lambda plan: FakeTarget(plan))
    pipeline.update_baselines(tmp_path / "suite.yaml", None, in_ci=True, progress=lambda *_: None)
    suite = load_suite(tmp_path / "suite.yaml").suite
    result = pipeline.check(tmp_path / "suite.yaml", None, tmp_path / "out", lambda *_: None)
    found = {item_name(row) for row in result.verdict.comparison.rows if row.gating}
    unused = {name for name in found if "." not in name and not name.startswith("pin ")}
    assert set(gating_rows(suite, suite.workloads)) == found - unused
