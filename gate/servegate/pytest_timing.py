"""One function, timed and held against what was stored for it: no suite, no target."""

from __future__ import annotations

import hashlib
import platform
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final, TypeVar

from pydantic import ValidationError

import servegate
from servegate.errors import UsageError
from servegate.facts import Facts, Sample, WorkloadFacts
from servegate.files import read_facts, write_model
from servegate.fingerprint import Fingerprint
from servegate.judge import in_words, judge
from servegate.machine import machine_facts
from servegate.metrics.table import MetricSpec
from servegate.render import words
from servegate.suite.schema import Policy, Rule
from servegate.verdict import Comparison, Row, State, Verdict, decide

T = TypeVar("T")

ROUNDS: Final = 20
MIN_ROUNDS: Final = 5
CHANGE, FLOOR = "10%", "1ms"
"""Unless the test says otherwise. A test process shares its machine; tighter than this cries wolf."""

SPEC: Final = MetricSpec("time_p50", "timed", "ms", "lower", "median time of one call", min_n=MIN_ROUNDS)
NS_PER_MS: Final = 1e6


def timed(fn: Callable[[], T], rounds: int) -> tuple[T, Sample]:
    """The value of the last call and the median time of ``rounds`` calls; one before is thrown away."""
    value = fn()
    times = []
    for _ in range(rounds):
        begun = time.perf_counter_ns()
        value = fn()
        times.append((time.perf_counter_ns() - begun) / NS_PER_MS)
    return value, Sample(value=float(f"{median(times):.6g}"), n=rounds)


def require_rounds(rounds: int) -> None:
    if rounds < MIN_ROUNDS:
        raise UsageError(f"rounds={rounds}: a median needs at least {MIN_ROUNDS}")


def tolerance(change: str | float | None, floor: str | float | None) -> Rule:
    """UsageError where one is no quantity."""
    given = {"change": CHANGE if change is None else change, "floor": FLOOR if floor is None else floor}
    try:
        return Rule.model_validate(given)
    except ValidationError as error:
        fault = error.errors()[0]
        raise UsageError(f"servegate: {'.'.join(map(str, fault['loc']))}: {fault['msg']}") from None


def file_name(node: str) -> str:
    """Of a test's id: readable, safe on every file system, and never shared by two tests."""
    readable = re.sub(r"[^A-Za-z0-9._]+", "-", node).strip("-.")[:120]
    return f"{readable}-{hashlib.sha256(node.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Store:
    """``baselines/pytest/<node>.json``: one file a test, one workload in it for each name it times."""

    root: Path
    node: str

    @property
    def path(self) -> Path:
        return self.root / "baselines" / "pytest" / f"{file_name(self.node)}.json"

    def read(self) -> Facts | None:
        return read_facts(self.path) if self.path.exists() else None

    def write(self, name: str, sample: Sample) -> None:
        """Keep what is stored under other names, unless it is of another machine."""
        new, old = self.facts(name, sample), self.read()
        kept = old.workloads if old and old.fingerprint.machine == new.fingerprint.machine else {}
        write_model(self.path, new.model_copy(update={"workloads": {**kept, **new.workloads}}))

    def facts(self, name: str, sample: Sample) -> Facts:
        offered = {"rounds": str(sample.n)}
        return Facts(
            schema_version=1,
            suite="pytest",
            suite_digest=hashlib.sha256(self.node.encode()).hexdigest(),
            prompt_set_digest="",
            created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            fingerprint=Fingerprint(
                machine=machine_facts(),
                software={"python": platform.python_version(), "servegate": servegate.__version__},
                served={},
            ),
            workloads={name: WorkloadFacts(numerics="native", offered=offered, metrics={SPEC.name: sample})},
        )


def verdict(name: str, rule: Rule, base: Facts | None, head: Facts) -> Verdict:
    """By the rules of any timed metric."""
    after = head.workloads[name].metrics[SPEC.name]
    stored = base.workloads.get(name) if base else None
    before = stored.metrics.get(SPEC.name) if stored else None
    judgement = judge(SPEC, rule, before, after)
    state, reason, change = judgement.state, judgement.reason, judgement.change
    if base and before and base.fingerprint.machine != head.fingerprint.machine:
        keys = f"{base.fingerprint.hardware_key} -> {head.fingerprint.hardware_key}"
        state, reason, change = State.NOT_COMPARABLE, f"measured on other machines: {keys}", None
    row = Row(
        workload=name,
        metric=SPEC.name,
        kind="timed",
        unit=SPEC.unit,
        better=SPEC.better,
        gating=True,
        base=before.value if before else None,
        head=after.value,
        change=change,
        tolerance=in_words(SPEC, rule),
        state=state,
        reason=reason,
        n_base=before.n if before else 0,
        n_head=after.n,
    )
    return decide(Comparison(suite="pytest", rows=(row,)), Policy())


def old_to_new(verdict: Verdict) -> str:
    row = verdict.comparison.rows[0]
    return " -> ".join(words.pair(row.base, row.head, row.unit))
