"""Base and head -> rows: what is held against what, and where that makes no sense.

Whether a row is bad is `judge`'s business; what the rows add up to is `verdict.decide`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from servegate.answers.settle import seen_once, settled
from servegate.baseline import Baseline
from servegate.comparability import no_timings_of_this_machine, obstacle, same_load, unless_contended
from servegate.errors import UsageError
from servegate.facts import Facts, Sample, WorkloadFacts
from servegate.files import digest
from servegate.judge import Judgement, in_words, judge
from servegate.metrics.drift import of_matched_prompts
from servegate.metrics.finding import Finding
from servegate.metrics.matching import Matching, match_prompts
from servegate.metrics.table import METRICS, Kind, MetricSpec
from servegate.pins import pin_rows
from servegate.provenance import environment, notes, parts
from servegate.rows import prompt_rows, workload_row
from servegate.suite.schema import MachinePrices, Policy, Rule, Suite
from servegate.timed import what_decides
from servegate.verdict import Comparison, Row, State

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
    base: Facts | Baseline,
    head: Facts,
    suite: Suite | None = None,
    *,
    allow_same: bool = False,
    in_turn: bool = False,
) -> Comparison:
    """Every row of every workload, judged by the suite's policy.

    With ``in_turn`` timed rows with a tolerance are left inconclusive: who measured base and head in turn has
    better evidence of them than the rounds of each.

    Raises UsageError where base and head are the very same measurement, which proves nothing, unless
    ``allow_same``.
    """
    if not allow_same and isinstance(base, Facts) and digest(base) == digest(head):
        raise UsageError("base and head are the same measurement: it equals itself and proves nothing")
    policy = suite.policy if suite is not None else DEFAULT_POLICY
    return _Comparing(base, head, policy, suite.pins if suite is not None else {}, in_turn).result()


class _Comparing:
    """One comparison under way: the two arms, and which rules of the policy have found a row."""

    def __init__(
        self, base: Facts | Baseline, head: Facts, policy: Policy, pins: dict[str, str], in_turn: bool
    ) -> None:
        self.base, self.head, self.policy, self.pins, self.in_turn = base, head, policy, pins, in_turn
        self.parts = parts(base)
        self.used_rules: set[str] = set()
        self.timed_rows = self._count_timed_rows()

    def result(self) -> Comparison:
        rows = pin_rows(self.pins, self.head.fingerprint)
        pairs = list(self._pairs())
        for base, old, new, workload in pairs:
            if workload is None:
                rows.append(workload_row(old, State.MISSING, "the head no longer has this workload"))
                continue
            if old != new:
                rows.append(workload_row(new, State.RENAMED, f"the base's workload {old!r}, by its load"))
            rows += self._workload_rows(new, base, base.workloads[old], workload)
        paired = {new for _, _, new, workload in pairs if workload is not None}
        for name, workload in self.head.workloads.items():
            if name not in paired:
                rows += self._rows_without_base(name, workload)
        rows += self._unused_rules()
        arms = [(new, base.workloads[old], head) for base, old, new, head in pairs if head is not None]
        rows = settled(rows, arms, self.policy, self.head.suite_digest)
        return Comparison(
            suite=self.head.suite,
            rows=tuple(rows),
            environment=tuple(environment(self.base, self.head)),
            notes=(*notes(self.base, self.head), *seen_once(rows, arms, self.head.fingerprint)),
            complete=self.head.complete and all(part.complete for part in self.parts),
        )

    def _pairs(self) -> Iterator[tuple[Facts, str, str, WorkloadFacts | None]]:
        """(base facts, its name, the head's name, the head's workload or None), for each base workload.

        By name; then what is left by numerics and offered load, where that is unambiguous.
        """
        heads = self.head.workloads
        old: dict[str, tuple[Facts, WorkloadFacts]] = {}
        for part in self.parts:
            for name, workload in part.workloads.items():
                # Behaviour and timings may both hold a name whose numerics were changed: the head's count.
                if name not in old or (name in heads and heads[name].numerics == workload.numerics):
                    old[name] = (part, workload)
        for name, (part, workload) in old.items():
            if name in heads:
                yield part, name, name, heads[name]
                continue
            alike = [n for n, w in heads.items() if n not in old and same_load(w, workload)]
            rivals = [n for n, (_, w) in old.items() if n not in heads and same_load(w, workload)]
            if len(alike) == len(rivals) == 1:
                yield part, name, alike[0], heads[alike[0]]
            else:
                yield part, name, name, None

    def _rule(self, workload: str, metric: str) -> Rule | None:
        """The workload's own rule wins over the metric's; an overruled rule counts as used."""
        names = self._rule_names(workload, metric)
        self.used_rules.update(names)
        return self.policy.rules[names[0]] if names else None

    def _rule_names(self, workload: str, metric: str) -> list[str]:
        return [name for name in (f"{workload}.{metric}", metric) if name in self.policy.rules]

    def _count_timed_rows(self) -> int:
        """Rows of head that come from a clock and have a tolerance."""
        return sum(
            self.policy.rules[names[0]].change is not None
            for workload, measured in self.head.workloads.items()
            for spec in map(self._spec, METRICS.values())
            if spec.kind == "timed"
            and spec.name in measured.metrics
            and (names := self._rule_names(workload, spec.name))
        )

    def _workload_rows(self, name: str, base: Facts, old: WorkloadFacts, new: WorkloadFacts) -> list[Row]:
        matching = match_prompts(old.prompts, new.prompts)
        rows = list(prompt_rows(name, new, matching))
        for spec in map(self._spec, METRICS.values()):
            if spec.between is not None:
                row = self._between_row(name, spec, old, new, matching)
            else:
                row = self._measured_row(name, spec, base, old, new, matching)
            if row is not None:
                rows.append(row)
        return rows

    def _spec(self, spec: MetricSpec) -> MetricSpec:
        """Costs are in the suite's currency; that of a machine-hour is a time, and judged as one."""
        prices = self.head.prices
        if spec.kind != "cost" or prices is None:
            return spec
        kind: Kind = "timed" if isinstance(prices, MachinePrices) else spec.kind
        return replace(spec, kind=kind, unit=f"{prices.currency} {spec.unit}")

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
        in_the_way = obstacle(spec, base, self.head, old, new, matching)
        if in_the_way is not None and after is not None and before is not None:
            common = of_matched_prompts(spec.name, old.prompts, [b for b, _ in matching.pairs])
            if common is not None:
                before = common
                after = of_matched_prompts(spec.name, new.prompts, [h for _, h in matching.pairs]) or after
                in_the_way = None
        if in_the_way is None or after is None:
            judgement = unless_contended(spec, self._judged(spec, rule, before, after), old, new)
            return _row(name, spec, rule, judgement, _as_finding(before, after))
        return _row(
            name, spec, rule, _not_comparable(spec, rule, after, in_the_way), _as_finding(before, after)
        )

    def _judged(
        self, spec: MetricSpec, rule: Rule | None, before: Sample | None, after: Sample | None
    ) -> Judgement:
        if not self.in_turn or spec.kind != "timed" or rule is None or rule.change is None:
            return judge(spec, rule, before, after, timed_rows=self.timed_rows)
        limits = judge(spec, rule.model_copy(update={"change": None, "floor": None}), before, after)
        state, reason = limits.state, limits.reason
        if state is State.PASS:
            state, reason = State.INCONCLUSIVE, "left to the blocks of base and head in turn"
        return replace(limits, tolerance=in_words(spec, rule), state=state, reason=reason)

    def _rows_without_base(self, name: str, workload: WorkloadFacts) -> Iterator[Row]:
        elsewhere = None
        if isinstance(self.base, Baseline) and workload.numerics == "native":
            elsewhere = no_timings_of_this_machine(self.base.elsewhere, self.head.fingerprint)
        if elsewhere is None:
            yield workload_row(name, State.NEW, "the base has no such workload")
        for spec in map(self._spec, METRICS.values()):
            sample = workload.metrics.get(spec.name)
            if sample is None:
                continue
            rule = self._rule(name, spec.name)
            judgement = (
                _not_comparable(spec, rule, sample, elsewhere)
                if elsewhere
                else judge(spec, rule, None, sample)
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


_NOTHING: Final = Sample(value=None, n=0)


def _as_finding(before: Sample | None, after: Sample | None) -> Finding:
    return Finding(before or _NOTHING, after or _NOTHING)


def _row(workload: str, spec: MetricSpec, rule: Rule | None, judgement: Judgement, seen: Finding) -> Row:
    notes = {note for note in (seen.base.note, seen.head.note) if note and note not in judgement.reason}
    base, head = judgement.judged or (seen.base_text or seen.base.value, seen.head_text or seen.head.value)
    evidence, advice = judgement.evidence, []
    if evidence is not None and judgement.state is State.INCONCLUSIVE:
        advice = [f"what would decide: {what_decides(evidence.blocks_needed)}"]
    return Row(
        workload=workload,
        metric=spec.name,
        kind=spec.kind,
        unit=spec.unit,
        better=spec.better,
        # An invalid number counts without a rule.
        gating=rule is not None or judgement.state is State.INVALID or spec.always_gates,
        base=base,
        head=head,
        change=judgement.change,
        tolerance=judgement.tolerance,
        state=judgement.state,
        reason=judgement.reason,
        n_base=seen.base.n,
        n_head=seen.head.n,
        detail=(*sorted(notes), *seen.detail, *judgement.detail, *advice),
        evidence=evidence,
    )


def _not_comparable(spec: MetricSpec, rule: Rule | None, head: Sample, why: str) -> Judgement:
    """What can still be said without the base: an invalid number, an absolute limit."""
    judgement = judge(spec, rule, None, head)
    if judgement.state is not State.NEW:
        return judgement
    return replace(judgement, state=State.NOT_COMPARABLE, reason=why)
