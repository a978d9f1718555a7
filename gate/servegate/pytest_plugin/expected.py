"""Which rows will gate, told from the suite alone: the items that pytest sees before anything is measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from servegate.metrics.table import METRICS, MetricSpec
from servegate.suite.schema import MachinePrices, Suite, Workload
from servegate.verdict import Row

_OF_EACH_PROMPT: Final = frozenset(
    {"token_ids", "completion_length_shift", "logprob_delta", "logprob_delta_mean"}
)
"""Compared prompt by prompt, which only reference numerics keep."""

OTHERS: Final = "other-rows"
"""Item for what gates and shows only once it was measured: a lost prompt, an invalid number, no baseline."""


def gating_rows(policy: Suite, workloads: Mapping[str, Workload]) -> Iterator[str]:
    """Names as a report has them, ``workload.metric`` or ``pin engine``.

    ``policy`` is the suite that judges; ``workloads`` are those that will be measured.
    """
    for name in sorted(policy.pins):
        yield f"pin {name}"
    rules = policy.policy.rules
    for workload, settings in workloads.items():
        for spec in METRICS.values():
            ruled = spec.name in rules or f"{workload}.{spec.name}" in rules
            if (ruled or spec.name == "quality_lost") and _applies(spec, settings, policy):
                yield f"{workload}.{spec.name}"


def item_name(row: Row) -> str:
    return f"{row.workload}.{row.metric}" if row.workload else row.metric


def _applies(spec: MetricSpec, workload: Workload, policy: Suite) -> bool:
    if spec.kind == "quality":
        return bool(policy.quality)
    if spec.kind == "cost" and policy.prices is None:
        return False
    if spec.name == "unstable_prompts":
        return workload.repeat > 1
    if workload.numerics == "native":
        return spec.name not in _OF_EACH_PROMPT
    by_clock = spec.kind == "timed" or (spec.kind == "cost" and isinstance(policy.prices, MachinePrices))
    return not by_clock
