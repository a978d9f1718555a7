"""Record -> verdict of an `ab` run. Pure: `servegate explain` computes it again from the saved files.

Exact rows are those of `compare`, with the base arm's facts as the baseline. Timed rows with a tolerance are
decided by the paired blocks instead, and say on what evidence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

from servegate.ab import answers, lengths
from servegate.ab.cost import cost_at_matched_length
from servegate.ab.evidence import all_rounds, described, in_detail, late_client
from servegate.ab.record import AbRecord, LaunchRecord
from servegate.ab.schedule import Role
from servegate.ab.series import Rounds, Series
from servegate.compare import compare
from servegate.extract import facts
from servegate.facts import Facts
from servegate.fingerprint import Fingerprint
from servegate.judge import judge
from servegate.metrics.context import stable
from servegate.metrics.table import METRICS, MetricSpec
from servegate.record import RunRecord, WorkloadRecord
from servegate.stats.aa import NoiseFloor, noise_floor, under_floor
from servegate.stats.launches import InvalidSamplesError
from servegate.stats.paired import Decision, decide
from servegate.stats.sequential import Plan
from servegate.suite.schema import MachinePrices, Rule, Suite
from servegate.timed import limit_of
from servegate.verdict import DECIDED, Comparison, Row, State, Verdict
from servegate.verdict import decide as verdict_of

_STATES: Final = {
    "regressed": State.REGRESSED,
    "pass": State.PASS,
    "improved": State.IMPROVED,
    "inconclusive": State.INCONCLUSIVE,
}
_COMPARED: Final = (*DECIDED, State.INCONCLUSIVE)


def judge_ab(record: AbRecord, suite: Suite) -> Verdict:
    """The verdict under the base's suite."""
    return verdict_of(compare_arms(record, suite), suite.policy)


def compare_arms(record: AbRecord, suite: Suite) -> Comparison:
    first = arms(record)
    runs = answers.with_all_runs(first, record)
    base, head = (
        answers.by_run(facts(run, suite), own, record) for run, own in zip(runs, first, strict=True)
    )
    compared = compare(base, head, suite, allow_same=True, in_turn=True)
    judging = _Judging(record.launches, record.planned_launches, suite, restarted=record.restarted)
    rows: list[Row] = []
    for row in compared.rows:
        rows.append(judging.row(row, base, head))
        rows += judging.at_matched_length(rows[-1])
        rows += cost_at_matched_length(row, judging.rule(row), *runs, suite.prices)
    return compared.model_copy(
        update={
            "rows": tuple(rows),
            "notes": (
                *compared.notes,
                *record.notes,
                *answers.notes(record, suite),
                *judging.notes(record),
            ),
            "complete": compared.complete and record.ended != "interrupted",
        }
    )


def is_decided(
    launches: Sequence[LaunchRecord],
    planned: int,
    suite: Suite,
    workloads: Sequence[str],
    *,
    restarted: bool = True,
) -> bool:
    """Is every timed row that gates decided, or past help by more launches?

    Servers that no launch restarts are looked at once, at the end: theirs is one launch, however long.
    """
    if not restarted:
        return False
    judging = _Judging(launches, planned, suite)
    return all(
        judging.is_settled(workload, spec, rule)
        for workload in workloads
        for spec, rule in gating(suite, workload)
    )


def gating(suite: Suite, workload: str) -> list[tuple[MetricSpec, Rule]]:
    """The workload's timed metrics that have a tolerance."""
    found = []
    for spec in METRICS.values():
        rule = suite.policy.rules.get(f"{workload}.{spec.name}") or suite.policy.rules.get(spec.name)
        by_clock = spec.kind == "timed" or (spec.kind == "cost" and isinstance(suite.prices, MachinePrices))
        if by_clock and rule is not None and rule.change is not None:
            found.append((spec, rule))
    return found


def arms(record: AbRecord) -> tuple[RunRecord, RunRecord]:
    """Base and head with their timed rounds, all launches together.

    Both ran on this machine, so what differs in their machine facts (threads, say) was set by the change that
    is judged: it is listed with what is served, and does not keep times from being compared.
    """
    base, head = record.base, record.head
    common = {
        name: value
        for name, value in base.fingerprint.machine.items()
        if head.fingerprint.machine.get(name) == value
    }
    return _arm(base, "base", record.launches, common), _arm(head, "head", record.launches, common)


def head_run(record: AbRecord) -> RunRecord:
    """The head's arm as if it had run alone, for a history."""
    run = _arm(record.head, "head", record.launches, record.head.fingerprint.machine)
    return run.model_copy(update={"complete": record.ended != "interrupted"})


class _Judging:
    """The evidence of one run, computed once for each workload and metric."""

    def __init__(
        self, launches: Sequence[LaunchRecord], planned: int, suite: Suite, *, restarted: bool = True
    ) -> None:
        self._launches, self._suite, self._restarted = launches, suite, restarted
        timed = sorted({block.workload for launch in launches for block in launch.blocks})
        self._rounds = {name: Rounds(launches, name, suite.prices) for name in timed}
        self._matched = {name: lengths.matched(launches, name) for name in timed}
        self._at_length = {
            name: Rounds(matched.launches, name, suite.prices)
            for name, matched in self._matched.items()
            if matched is not None and matched.prompts
        }
        rows = sum(
            1 + (self._matched[name] is not None and spec.name in lengths.FOLLOW_LENGTH)
            for name in timed
            for spec, _ in gating(suite, name)
        )
        self.plan = Plan(rows=max(rows, 1), launches=max(planned, len(launches), 1) if restarted else 1)

    def decision(
        self, workload: str, spec: MetricSpec, rule: Rule, *, rounds: Rounds | None = None
    ) -> tuple[Decision, NoiseFloor, Series]:
        """Head against base, under the noise floor. Raises InvalidSamplesError where there are no pairs."""
        if rounds is None:
            rounds = self._rounds.get(workload)
        if rounds is None:
            raise InvalidSamplesError("nothing was timed")
        series = rounds.series(spec) if self._restarted else rounds.series(spec).as_one_launch()
        limit = limit_of(spec, rule, median(v for launch in series.values["base"] for v in launch))
        floor = noise_floor(series.same, limit, self.plan)
        found = decide(series.pairs, limit, self.plan, series.same)
        return under_floor(found, floor), floor, series

    def is_settled(self, workload: str, spec: MetricSpec, rule: Rule) -> bool:
        """The metric's row, and its row at matched length where there is one."""
        judged_on = [self._rounds.get(workload)]
        if spec.name in lengths.FOLLOW_LENGTH and workload in self._at_length:
            judged_on.append(self._at_length[workload])
        return all(self._is_settled(workload, spec, rule, rounds) for rounds in judged_on)

    def _is_settled(self, workload: str, spec: MetricSpec, rule: Rule, rounds: Rounds | None) -> bool:
        try:
            return self.decision(workload, spec, rule, rounds=rounds)[0].state != "inconclusive"
        except InvalidSamplesError:
            return True  # a launch's rounds give no value: another launch like it gives none either

    def row(self, row: Row, base: Facts, head: Facts) -> Row:
        """The row as the paired blocks judge it; one that they say nothing about stays as it is."""
        if row.kind != "timed" or row.state not in _COMPARED:
            return row
        rule = self.rule(row)
        if rule is not None and rule.change is None:
            return row  # an absolute limit: held against all rounds together
        if rule is not None and self._beyond_limit(row, rule, base, head):
            return row
        return self._decided(row, METRICS[row.metric], rule, None)

    def at_matched_length(self, row: Row) -> list[Row]:
        """The same metric over the prompts whose completions kept their length, where others did not."""
        matched, rule = self._matched.get(row.workload), self.rule(row)
        if row.kind != "timed" or row.metric not in lengths.FOLLOW_LENGTH or row.state not in _COMPARED:
            return []
        if matched is None or rule is None or rule.change is None:
            return []
        again = lengths.at_matched_length(row, matched.text)
        if row.workload not in self._at_length:
            return [lengths.untold(again)]
        return [self._decided(again, METRICS[row.metric], rule, self._at_length[row.workload])]

    def notes(self, record: AbRecord) -> list[str]:
        blocks = sum(len(launch.blocks) for launch in record.launches)
        if not blocks:
            return []
        lines = [
            f"timed part: {blocks} rounds in {len(record.launches)} of {record.planned_launches} planned "
            f"launches; ended: {record.ended}"
        ]
        cold = sorted(
            {
                f"{w.role} in {w.workload}"
                for launch in record.launches
                for w in launch.warmups
                if not w.stable
            }
        )
        if cold:
            lines.append(f"still getting faster when warm-up ended: {', '.join(cold)}")
        return lines

    def _decided(self, row: Row, spec: MetricSpec, rule: Rule | None, rounds: Rounds | None) -> Row:
        try:
            found, floor, series = self.decision(row.workload, spec, rule or Rule(change=0.05), rounds=rounds)
        except InvalidSamplesError as error:
            if rule is None:
                return row
            return row.model_copy(update={"state": State.INCONCLUSIVE, "reason": str(error), "change": None})
        late = late_client(self._launches, row.workload)
        state, reason = _STATES[found.state], found.reason
        if rule is None:
            state, reason = State.PASS, "no rule in the policy; shown only"
        elif late is not None:
            state, reason = State.INCONCLUSIVE, late
        elif found.beyond_belief:
            reason = f"{reason}; beyond belief: did head do the same work?"
        base = median(value for launch in series.values["base"] for value in launch)
        return row.model_copy(
            update={
                "state": state,
                "reason": reason,
                # Head is base with the change that the pairs show. The arms' own values over all rounds may
                # differ the other way: a burst that hit one of them is in there, and not in the pairs.
                "base": stable(base),
                "head": stable(base * (1 + found.estimate)),
                "change": found.estimate,
                "evidence": described(found, floor),
                "detail": (*row.detail, *all_rounds(row), *in_detail(found, floor, series)),
            }
        )

    def rule(self, row: Row) -> Rule | None:
        rules = self._suite.policy.rules
        return rules.get(f"{row.workload}.{row.metric}") or rules.get(row.metric)

    def _beyond_limit(self, row: Row, rule: Rule, base: Facts, head: Facts) -> bool:
        """Is head beyond the rule's own max or min, whatever base is?"""
        if rule.max is None and rule.min is None:
            return False
        absolute = rule.model_copy(update={"change": None, "floor": None})
        old, new = (arm.workloads[row.workload].metrics.get(row.metric) for arm in (base, head))
        return judge(METRICS[row.metric], absolute, old, new).state is State.REGRESSED


def _arm(
    run: RunRecord, role: Role, launches: Sequence[LaunchRecord], machine: Mapping[str, str]
) -> RunRecord:
    own = {f"machine.{k}": v for k, v in run.fingerprint.machine.items() if k not in machine}
    fingerprint = Fingerprint(
        machine=dict(machine),
        software=run.fingerprint.software,
        served={**run.fingerprint.served, **own},
    )
    workloads = tuple(_with_rounds(workload, role, launches) for workload in run.workloads)
    return run.model_copy(update={"fingerprint": fingerprint, "workloads": workloads})


def _with_rounds(workload: WorkloadRecord, role: Role, launches: Sequence[LaunchRecord]) -> WorkloadRecord:
    if workload.numerics == "reference":
        return workload
    rounds = tuple(b.round for launch in launches for b in launch.rounds(role, workload.name))
    return workload.model_copy(update={"rounds": rounds})
