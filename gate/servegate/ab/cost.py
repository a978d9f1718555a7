"""What tokens cost at matched length: counted, not timed, so held against the base as exact rows are."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from servegate.ab.lengths import at_matched_length, kept_lengths, only, untold
from servegate.facts import Sample
from servegate.fingerprint import Fingerprint
from servegate.judge import judge
from servegate.metrics.context import Context
from servegate.metrics.cost import cost_per_request
from servegate.metrics.table import METRICS
from servegate.record import RunRecord, WorkloadRecord
from servegate.suite.schema import MachinePrices, Rule, TokenPrices
from servegate.verdict import DECIDED, Row

_NOWHERE: Final = Fingerprint(machine={}, software={}, served={})
"""No cost reads the fingerprint."""


def cost_at_matched_length(
    row: Row, rule: Rule | None, base: RunRecord, head: RunRecord, prices: TokenPrices | MachinePrices | None
) -> list[Row]:
    """A second row for the cost of tokens where completions changed their length; empty for all other rows.

    It shows what is dearer (a longer prompt, a prefix that is cached no more) apart from what is longer.
    """
    if row.kind != "cost" or row.state not in DECIDED:
        return []
    arms = [w for run in (base, head) for w in run.workloads if w.name == row.workload]
    if rule is None or (rule.change is None and not rule.equal) or len(arms) != 2:
        return []
    kept = kept_lengths([round_ for arm in arms for round_ in arm.rounds])
    if kept is None:
        return []
    again = at_matched_length(row, kept.text)
    if not kept.ids:
        return [untold(again)]

    def cost(arm: WorkloadRecord) -> Sample | None:
        alone = arm.model_copy(update={"rounds": tuple(only(round_, kept.ids) for round_ in arm.rounds)})
        return cost_per_request(alone, Context.of(alone, _NOWHERE, prices))

    before, after = map(cost, arms)
    if before is None or after is None:
        return []
    # The limits of the rule are for all requests together.
    change = rule.model_copy(update={"max": None, "min": None})
    found = judge(replace(METRICS[row.metric], unit=row.unit), change, before, after)
    return [
        again.model_copy(
            update={
                "base": before.value,
                "head": after.value,
                "n_base": before.n,
                "n_head": after.n,
                "state": found.state,
                "change": found.change,
                "tolerance": found.tolerance,
                "reason": found.reason,
            }
        )
    ]
