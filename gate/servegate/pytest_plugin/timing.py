"""One function, timed and held against what was stored for it: no suite, no target."""

from __future__ import annotations

import hashlib
import platform
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeVar

from pydantic import ValidationError

import servegate
from servegate.basecommit import BaseCommit
from servegate.errors import UsageError
from servegate.facts import Facts, Sample, WorkloadFacts
from servegate.files import read_facts, write_model
from servegate.fingerprint import Fingerprint
from servegate.judge import Judgement, judge
from servegate.machine import machine_facts
from servegate.metrics.table import MetricSpec
from servegate.render import words
from servegate.stats.unpaired import in_blocks
from servegate.suite.schema import Policy, Rule
from servegate.temporary import owned_folder
from servegate.verdict import Comparison, Row, State, Verdict, decide

T = TypeVar("T")

ROUNDS: Final = 20
MIN_ROUNDS: Final = 5
MOST_STORED: Final = 40
"""Of more rounds, successive ones are put together: a baseline is read by people."""
CHANGE, FLOOR = "10%", "1ms"
"""Unless the test says otherwise. A test process shares its machine; tighter than this cries wolf."""

SPEC: Final = MetricSpec("time_p50", "timed", "ms", "lower", "median time of one call", min_n=MIN_ROUNDS)
NS_PER_MS: Final = 1e6


Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Rounds:
    """How a function is timed. ``setup`` and ``teardown`` run around each round and are not timed."""

    rounds: int = ROUNDS
    warmup_rounds: int = 1
    iterations: int = 1
    setup: Callable[[], Arguments | None] | None = None
    teardown: Callable[..., object] | None = None

    def require_sense(self) -> None:
        if self.rounds < MIN_ROUNDS:
            raise UsageError(f"rounds={self.rounds}: a median needs at least {MIN_ROUNDS}")
        if self.warmup_rounds < 0 or self.iterations < 1:
            raise UsageError("warmup_rounds= is 0 or more, iterations= is 1 or more")
        if self.setup is not None and self.iterations > 1:
            raise UsageError("iterations= above 1 would call once set up and run often: leave out setup=")


def timed(fn: Callable[..., T], arguments: Arguments, how: Rounds) -> tuple[T, Sample]:
    """The value of the last call, and the median over rounds of the mean time of a round's calls."""
    for _ in range(how.warmup_rounds):
        _round(fn, arguments, how)
    times = []
    for _ in range(how.rounds):
        value, took_ns = _round(fn, arguments, how)
        times.append(took_ns / how.iterations / NS_PER_MS)
    return value, sample(times)


def sample(times_ms: Sequence[float]) -> Sample:
    each = (float(f"{time:.6g}") for time in in_blocks(times_ms, MOST_STORED))
    return Sample(value=float(f"{median(times_ms):.6g}"), n=len(times_ms), per_round=tuple(each))


def _round(fn: Callable[..., T], arguments: Arguments, how: Rounds) -> tuple[T, int]:
    args, kwargs = (how.setup() if how.setup is not None else None) or arguments
    begun = time.perf_counter_ns()
    for _ in range(how.iterations):
        value = fn(*args, **kwargs)
    took_ns = time.perf_counter_ns() - begun
    if how.teardown is not None:
        how.teardown(*args, **kwargs)
    return value, took_ns


def tolerance(change: str | float | None, floor: str | float | None) -> Rule:
    """UsageError where one is no quantity."""
    given = {"change": CHANGE if change is None else change, "floor": FLOOR if floor is None else floor}
    try:
        return Rule.model_validate(given)
    except ValidationError as error:
        fault = error.errors()[0]
        raise UsageError(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}") from None


def file_name(node: str) -> str:
    """Of a test's id: readable, safe on every file system, and never shared by two tests."""
    readable = re.sub(r"[^A-Za-z0-9._]+", "-", node).strip("-.")[:120]
    return f"{readable}-{hashlib.sha256(node.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Store:
    """``baselines/pytest/<node>.json``: one file a test, one workload in it for each name it times."""

    root: Path
    node: str
    base: BaseCommit | None = None
    """Where the baselines are read from; None for the tree."""

    @property
    def path(self) -> Path:
        return self.root / "baselines" / "pytest" / f"{file_name(self.node)}.json"

    def read(self) -> Facts | None:
        if self.base is None:
            return read_facts(self.path) if self.path.exists() else None
        stored = self.base.read(self.path)
        if stored is None:
            return None
        with owned_folder("base") as folder:
            copy = folder / self.path.name
            copy.write_bytes(stored)
            return read_facts(copy)

    def write(self, name: str, sample: Sample) -> None:
        """Keep what is stored under other names, unless it is of another machine."""
        new, old = self.facts({name: sample}), self.read()
        kept = old.workloads if old and old.fingerprint.machine == new.fingerprint.machine else {}
        write_model(self.path, new.model_copy(update={"workloads": {**kept, **new.workloads}}))

    def facts(self, samples: Mapping[str, Sample]) -> Facts:
        return facts_of(samples, self.node, machine_facts())


def facts_of(samples: Mapping[str, Sample], origin: str, machine: dict[str, str]) -> Facts:
    """Timed names as the workloads of a facts file."""
    return Facts(
        schema_version=1,
        suite="pytest",
        suite_digest=hashlib.sha256(origin.encode()).hexdigest(),
        prompt_set_digest="",
        created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        fingerprint=Fingerprint(
            machine=machine,
            software={"python": platform.python_version(), "servegate": servegate.__version__},
            served={},
        ),
        workloads={
            name: WorkloadFacts(
                numerics="native", offered={"rounds": str(sample.n)}, metrics={SPEC.name: sample}
            )
            for name, sample in samples.items()
        },
    )


def verdict(names: Iterable[str], rule: Rule, base: Facts | None, head: Facts) -> Verdict:
    """By the rules of any timed metric; what is judged at once shares the error."""
    names = tuple(names)
    rows = tuple(_row(name, rule, base, head, len(names)) for name in names)
    return decide(Comparison(suite="pytest", rows=rows), Policy())


def _row(name: str, rule: Rule, base: Facts | None, head: Facts, rows: int) -> Row:
    before, after = _sample(base, name), _sample(head, name)
    found = judge(SPEC, rule, before, after, timed_rows=rows)
    if base and before and after and base.fingerprint.machine != head.fingerprint.machine:
        keys = f"{base.fingerprint.hardware_key} -> {head.fingerprint.hardware_key}"
        found = Judgement(State.NOT_COMPARABLE, None, found.tolerance, f"measured on other machines: {keys}")
    values = before.value if before else None, after.value if after else None
    return Row(
        workload=name,
        metric=SPEC.name,
        kind="timed",
        unit=SPEC.unit,
        better=SPEC.better,
        gating=True,
        base=(found.judged or values)[0],
        head=(found.judged or values)[1],
        change=found.change,
        tolerance=found.tolerance,
        state=found.state,
        reason=found.reason,
        detail=found.detail,
        evidence=found.evidence,
        n_base=before.n if before else 0,
        n_head=after.n if after else 0,
    )


def _sample(facts: Facts | None, name: str) -> Sample | None:
    workload = facts.workloads.get(name) if facts is not None else None
    return workload.metrics.get(SPEC.name) if workload is not None else None


def old_to_new(verdict: Verdict) -> str:
    row = verdict.comparison.rows[0]
    return " -> ".join(words.pair(row.base, row.head, row.unit))
