"""Base and head -> rows: what is held against what, and where that makes no sense.

Whether a row is bad is `judge`'s business; what the rows add up to is `verdict.decide`'s.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from servegate.baseline import Baseline
from servegate.errors import UsageError
from servegate.facts import Facts, Sample, WorkloadFacts
from servegate.files import digest
from servegate.fingerprint import Fingerprint
from servegate.judge import Judgement, in_words, judge
from servegate.metrics.drift import of_matched_prompts
from servegate.metrics.finding import Finding, shortened
from servegate.metrics.matching import Matching, match_prompts
from servegate.metrics.table import METRICS, MetricSpec
from servegate.pins import pin_rows
from servegate.suite.schema import MachinePrices, Policy, Rule, Suite
from servegate.verdict import Comparison, EnvironmentChange, Row, State
from servegate.wording import count

OLD_BASELINE_DAYS: Final = 30

DEFAULT_POLICY: Final = Policy.model_validate(
    {
        "completion_tokens": {"equal": True},
        "finish_reasons": {"equal": True},
        "token_ids": {"equal": True},
        "logprob_delta": {"max": "1e-6"},
        "error_rate": {"change": "0%"},
    }
)
"""For records that are compared without a suite: what a target with reference numerics must repeat."""


def compare(
    base: Facts | Baseline, head: Facts, suite: Suite | None = None, *, allow_same: bool = False
) -> Comparison:
    """Every row of every workload, judged by the suite's policy.

    Raises UsageError where base and head are the very same measurement, which proves nothing, unless
    ``allow_same``.
    """
    if not allow_same and isinstance(base, Facts) and digest(base) == digest(head):
        raise UsageError("base and head are the same measurement: it equals itself and proves nothing")
    policy = suite.policy if suite is not None else DEFAULT_POLICY
    return _Comparing(base, head, policy, suite.pins if suite is not None else {}).result()


class _Comparing:
    """One comparison under way: the two arms, and which rules of the policy have found a row."""

    def __init__(self, base: Facts | Baseline, head: Facts, policy: Policy, pins: dict[str, str]) -> None:
        self.base, self.head, self.policy, self.pins = base, head, policy, pins
        self.parts: Sequence[Facts] = base.parts if isinstance(base, Baseline) else (base,)
        self.used_rules: set[str] = set()

    def result(self) -> Comparison:
        rows = pin_rows(self.pins, self.head.fingerprint)
        pairs = list(self._pairs())
        for base, old, new, workload in pairs:
            if workload is None:
                rows.append(_workload_row(old, State.MISSING, "the head no longer has this workload"))
                continue
            if old != new:
                rows.append(_workload_row(new, State.RENAMED, f"the base's workload {old!r}, by its load"))
            rows += self._workload_rows(new, base, base.workloads[old], workload)
        paired = {new for _, _, new, workload in pairs if workload is not None}
        for name, workload in self.head.workloads.items():
            if name not in paired:
                rows += self._rows_without_base(name, workload)
        rows += self._unused_rules()
        return Comparison(
            suite=self.head.suite,
            rows=tuple(rows),
            environment=tuple(self._environment()),
            notes=tuple(self._notes()),
            complete=self.head.complete and all(part.complete for part in self.parts),
        )

    def _pairs(self) -> Iterator[tuple[Facts, str, str, WorkloadFacts | None]]:
        """(base facts, its name, the head's name, the head's workload or None), for each base workload.

        By name; then what is left by numerics and offered load, where that is unambiguous.
        """
        heads = self.head.workloads
        old = {name: (part, workload) for part in self.parts for name, workload in part.workloads.items()}
        for name, (part, workload) in old.items():
            if name in heads:
                yield part, name, name, heads[name]
                continue
            alike = [n for n, w in heads.items() if n not in old and _same_load(w, workload)]
            rivals = [n for n, (_, w) in old.items() if n not in heads and _same_load(w, workload)]
            if len(alike) == len(rivals) == 1:
                yield part, name, alike[0], heads[alike[0]]
            else:
                yield part, name, name, None

    def _rule(self, workload: str, metric: str) -> Rule | None:
        for name in (f"{workload}.{metric}", metric):
            if name in self.policy.rules:
                self.used_rules.add(name)
                return self.policy.rules[name]
        return None

    def _workload_rows(self, name: str, base: Facts, old: WorkloadFacts, new: WorkloadFacts) -> list[Row]:
        matching = match_prompts(old.prompts, new.prompts)
        rows = list(_prompt_rows(name, new, matching))
        for spec in map(self._spec, METRICS.values()):
            if spec.between is not None:
                row = self._between_row(name, spec, old, new, matching)
            else:
                row = self._measured_row(name, spec, base, old, new, matching)
            if row is not None:
                rows.append(row)
        return rows

    def _spec(self, spec: MetricSpec) -> MetricSpec:
        """The cost of a machine-hour is a time in disguise, and is judged as one."""
        by_clock = spec.kind == "cost" and isinstance(self.head.prices, MachinePrices)
        return replace(spec, kind="timed") if by_clock else spec

    def _between_row(
        self, name: str, spec: MetricSpec, old: WorkloadFacts, new: WorkloadFacts, matching: Matching
    ) -> Row | None:
        if spec.between is None:
            return None
        finding = spec.between(old, new, matching)
        if finding is not None:
            rule = self._rule(name, spec.name)
            return _row(name, spec, rule, judge(spec, rule, finding.base, finding.head), finding)
        alone = spec.between(old, old, match_prompts(old.prompts, old.prompts))
        if alone is None:
            return None
        rule = self._rule(name, spec.name)
        return _row(name, spec, rule, judge(spec, rule, alone.base, None), Finding(alone.base, _NOTHING))

    def _measured_row(
        self,
        name: str,
        spec: MetricSpec,
        base: Facts,
        old: WorkloadFacts,
        new: WorkloadFacts,
        matching: Matching,
    ) -> Row | None:
        before, after = old.metrics.get(spec.name), new.metrics.get(spec.name)
        if before is None and after is None:
            return None
        rule = self._rule(name, spec.name)
        obstacle = _obstacle(spec, base, self.head, old, new, matching)
        if obstacle is not None and after is not None and before is not None:
            common = of_matched_prompts(spec.name, old.prompts, [b for b, _ in matching.pairs])
            if common is not None:
                before = common
                after = of_matched_prompts(spec.name, new.prompts, [h for _, h in matching.pairs]) or after
                obstacle = None
        if obstacle is None or after is None:
            return _row(name, spec, rule, judge(spec, rule, before, after), _as_finding(before, after))
        return _row(
            name, spec, rule, _not_comparable(spec, rule, after, obstacle), _as_finding(before, after)
        )

    def _rows_without_base(self, name: str, workload: WorkloadFacts) -> Iterator[Row]:
        obstacle = None
        if isinstance(self.base, Baseline) and workload.numerics == "native" and self.base.other_hardware:
            obstacle = (
                f"no timing baseline for {self.base.hardware_key}; "
                f"there are some for {', '.join(self.base.other_hardware)}"
            )
        if obstacle is None:
            yield _workload_row(name, State.NEW, "the base has no such workload")
        for spec in map(self._spec, METRICS.values()):
            sample = workload.metrics.get(spec.name)
            if sample is None:
                continue
            rule = self._rule(name, spec.name)
            judgement = (
                _not_comparable(spec, rule, sample, obstacle) if obstacle else judge(spec, rule, None, sample)
            )
            yield _row(name, spec, rule, judgement, _as_finding(None, sample))

    def _unused_rules(self) -> Iterator[Row]:
        """A rule that found nothing to judge is a gate that does not work."""
        if not self.parts:
            return
        for name, rule in sorted(self.policy.rules.items()):
            workload, _, metric = name.rpartition(".")
            if name in self.used_rules or metric not in METRICS:
                continue
            spec = METRICS[metric]
            judgement = Judgement(
                State.MISSING,
                None,
                in_words(spec, rule),
                "the policy has a rule for it, and nothing measures it",
            )
            yield _row(workload, spec, rule, judgement, Finding(_NOTHING, _NOTHING))

    def _environment(self) -> Iterator[EnvironmentChange]:
        """Each difference once. A baseline that holds on every machine is not of any."""
        seen = set()
        for part in self.parts:
            machine = not isinstance(self.base, Baseline) or part is self.base.timing
            for change in _changes(part.fingerprint, self.head.fingerprint):
                key = (change.group, change.name, change.base)
                if key not in seen and (machine or change.group != "machine"):
                    seen.add(key)
                    yield change

    def _notes(self) -> Iterator[str]:
        if not self.parts:
            yield "there is no baseline yet; `servegate baseline update` stores this run as one"
        for part in self.parts:
            yield _provenance(part, self.head, self.base)
            if part.suite != self.head.suite:
                yield f"the base is of suite {part.suite!r}, the head of {self.head.suite!r}"
            if not part.complete:
                yield "the base's run was interrupted"
        if any(part.suite_digest != self.head.suite_digest for part in self.parts):
            yield "the suite itself was edited since the base was recorded"
        if any(part.prompt_set_digest != self.head.prompt_set_digest for part in self.parts):
            yield "the prompt set was edited since the base was recorded"
        if not self.head.complete:
            yield "the head's run was interrupted: what was measured is compared, and it is not a pass"


_NOTHING: Final = Sample(value=None, n=0)


def _as_finding(before: Sample | None, after: Sample | None) -> Finding:
    return Finding(before or _NOTHING, after or _NOTHING)


def _row(workload: str, spec: MetricSpec, rule: Rule | None, judgement: Judgement, seen: Finding) -> Row:
    notes = {note for note in (seen.base.note, seen.head.note) if note and note not in judgement.reason}
    return Row(
        workload=workload,
        metric=spec.name,
        kind=spec.kind,
        unit=spec.unit,
        better=spec.better,
        gating=rule is not None or spec.name == "quality_lost",
        base=seen.base_text or seen.base.value,
        head=seen.head_text or seen.head.value,
        change=judgement.change,
        tolerance=judgement.tolerance,
        state=judgement.state,
        reason=judgement.reason,
        n_base=seen.base.n,
        n_head=seen.head.n,
        detail=(*sorted(notes), *seen.detail),
    )


def _not_comparable(spec: MetricSpec, rule: Rule | None, head: Sample, obstacle: str) -> Judgement:
    """What can still be said without the base: an invalid number, an absolute limit."""
    judgement = judge(spec, rule, None, head)
    if judgement.state is not State.NEW:
        return judgement
    return replace(judgement, state=State.NOT_COMPARABLE, reason=obstacle)


def _obstacle(
    spec: MetricSpec, base: Facts, head: Facts, old: WorkloadFacts, new: WorkloadFacts, matching: Matching
) -> str | None:
    """Why base and head say nothing about each other, or None. A share of requests is never in the way."""
    if spec.kind == "timed":
        machines = _machines(base.fingerprint, head.fingerprint)
        if machines:
            return machines
    if spec.name == "cost_per_request" and _price(base) != _price(head):
        return f"other prices: {_price(base)} -> {_price(head)}"
    if spec.unit == "share":
        return None
    if old.numerics != new.numerics:
        return f"other numerics: {old.numerics} -> {new.numerics}"
    loads = _differences(old.offered, new.offered)
    if loads:
        return f"another load was offered: {loads}"
    if not matching.covers_both:
        return (
            f"other prompts: {count(len(matching.missing), 'prompt')} missing, "
            f"{count(len(matching.new), 'prompt')} new"
        )
    return None


def _same_load(one: WorkloadFacts, other: WorkloadFacts) -> bool:
    return one.numerics == other.numerics and one.offered == other.offered


def _machines(base: Fingerprint, head: Fingerprint) -> str | None:
    if base.machine == head.machine:
        return None
    return (
        f"measured on other machines: {base.hardware_key} -> {head.hardware_key} "
        f"({_differences(base.machine, head.machine)})"
    )


def _differences(base: dict[str, str], head: dict[str, str]) -> str:
    return ", ".join(
        f"{name} {base.get(name, 'absent')} -> {head.get(name, 'absent')}"
        for name in sorted({*base, *head})
        if base.get(name) != head.get(name)
    )


def _price(facts: Facts) -> str:
    """The numbers alone: a new source or date of the same prices changes nothing."""
    prices = facts.prices
    if prices is None:
        return "none"
    numbers = prices.model_dump(mode="json", exclude={"source", "date"})
    return ", ".join(f"{name} {value}" for name, value in sorted(numbers.items()))


def _changes(base: Fingerprint, head: Fingerprint) -> Iterator[EnvironmentChange]:
    for group in ("machine", "software", "served"):
        before, after = getattr(base, group), getattr(head, group)
        for name in sorted({*before, *after}):
            if before.get(name) != after.get(name):
                yield EnvironmentChange(
                    group=group,
                    name=name,
                    base=before.get(name, "absent"),
                    head=after.get(name, "absent"),
                )


def _prompt_rows(workload: str, new: WorkloadFacts, matching: Matching) -> Iterator[Row]:
    failed = [i for i in matching.missing if i in new.failed]
    gone = [i for i in matching.missing if i not in new.failed]
    renames = [f"{base_id} -> {head_id}" for base_id, head_id in matching.renamed]
    for what, ids, state, reason in (
        ("failed", [f"{i}: {new.failed[i]}" for i in failed], State.MISSING, "gave no answer on the head"),
        ("missing", gone, State.MISSING, "of the base are not in the head"),
        ("new", matching.new, State.NEW, "are not in the base"),
        ("renamed", renames, State.RENAMED, "have another id and the same content: compared under both"),
        (
            "changed",
            matching.changed,
            State.PASS,
            "changed their text or template: their answers are compared",
        ),
    ):
        if ids:
            yield Row(
                workload=workload,
                metric=f"prompts {what}",
                kind="prompt",
                unit="prompts",
                better="equal",
                gating=state is State.MISSING,
                base=None,
                head=float(len(ids)),
                tolerance="none may be missing" if state is State.MISSING else "shown only",
                state=state,
                reason=f"{count(len(ids), 'prompt')} {reason}",
                n_head=len(ids),
                detail=shortened(ids),
            )


def _workload_row(name: str, state: State, reason: str) -> Row:
    return Row(
        workload=name,
        metric="workload",
        kind="workload",
        unit="",
        better="equal",
        gating=state is State.MISSING,
        base=None,
        head=None,
        tolerance="may not be missing" if state is State.MISSING else "shown only",
        state=state,
        reason=reason,
    )


def _provenance(part: Facts, head: Facts, base: Facts | Baseline) -> str:
    what = "base"
    if isinstance(base, Baseline):
        what = "behaviour baseline" if part is base.behaviour else f"timing baseline ({base.hardware_key})"
    commit = (
        f" at commit {part.commit.sha[:12]}{' (dirty)' if part.commit.dirty else ''}" if part.commit else ""
    )
    days = _days_between(part.created, head.created)
    age = f", {count(days, 'day')} before the head" if days else ""
    warning = "; it is old, and may hide or invent a change" if days > OLD_BASELINE_DAYS else ""
    return f"{what} recorded {part.created}{commit}{age}{warning}"


def _days_between(earlier: str, later: str) -> int:
    """Whole days; 0 where a date is not one."""
    try:
        return max((dt.datetime.fromisoformat(later) - dt.datetime.fromisoformat(earlier)).days, 0)
    except (ValueError, TypeError):
        return 0
