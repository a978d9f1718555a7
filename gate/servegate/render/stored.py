"""A stored baseline as lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from servegate.facts import Facts
from servegate.metrics.table import METRICS
from servegate.render import words
from servegate.wording import count


def lines(title: str, facts: Facts) -> Iterator[str]:
    """Where it comes from, then every value of every workload."""
    commit = (
        f" at commit {facts.commit.sha[:12]}{' (dirty)' if facts.commit.dirty else ''}"
        if facts.commit
        else ""
    )
    yield f"{title}: recorded {facts.created}{commit} on {facts.fingerprint.hardware_key}"
    if facts.reason:
        yield f"  accepted because: {facts.reason}"
    for name, workload in facts.workloads.items():
        yield f"  {name}: {workload.numerics}, {count(len(workload.prompts), 'prompt')} kept word for word"
        for metric, sample in workload.metrics.items():
            unit = METRICS[metric].unit if metric in METRICS else ""
            yield f"    {metric} {words.value(sample.value, unit)} (n {sample.n:,})"
