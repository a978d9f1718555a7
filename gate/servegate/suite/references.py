"""What one part of a suite says about another: policies about metrics, checks about prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from servegate.suggest import did_you_mean
from servegate.suite.document import Document, Fault, show
from servegate.suite.prompt_set import PromptSet
from servegate.suite.schema import Policy, Rule, Suite
from servegate.units import Quantity, format_amount


def unknown_metrics(document: Document, metrics: Mapping[str, str]) -> list[Fault]:
    """Keys of ``policy`` that are neither settings nor metrics.

    Read from the raw data, before types are checked: a mistyped setting, `inconclusve: fail`, would otherwise
    be called a bad rule.
    """
    data = document.data if isinstance(document.data, dict) else {}
    policy, workloads = (
        value if isinstance(value, dict) else {} for value in (data.get("policy"), data.get("workloads"))
    )
    faults = []
    for name in policy:
        workload, dot, metric = name.rpartition(".")
        if name in Policy.model_fields:
            continue
        if dot and workload not in workloads:
            faults.append(
                Fault(("policy", name), f"no workload {show(workload)}{did_you_mean(workload, workloads)}")
            )
        elif metric not in metrics:
            what, known = (
                ("metric", {*metrics}) if dot else ("metric or setting", {*metrics, *Policy.model_fields})
            )
            faults.append(Fault(("policy", name), f"no {what} {show(metric)}{did_you_mean(metric, known)}"))
    return faults


def unfit_units(suite: Suite, metrics: Mapping[str, str]) -> Iterator[Fault]:
    """Amounts in a rule that its metric is not measured in."""
    for name, rule in suite.policy.rules.items():
        unit = metrics[name.rpartition(".")[2]]
        for field, amount in _amounts(rule):
            wanted = _wanted(amount, unit)
            if wanted:
                yield Fault(("policy", name, field), f"{format_amount(amount)} does not fit, {wanted}")


def _amounts(rule: Rule) -> Iterator[tuple[str, Quantity]]:
    for field in ("floor", "max", "min"):
        amount = getattr(rule, field)
        if amount is not None:
            yield field, amount


def _wanted(amount: Quantity, unit: str) -> str | None:
    """What to write instead, or None where the amount fits a metric measured in ``unit``."""
    if unit == "ms":
        return None if amount.unit == "ms" else "the metric is a duration: write it like 20ms or 1.5s"
    if unit == "share":
        return None if amount.unit != "ms" else "the metric is a share: write it like 5% or 0.05"
    return None if amount.unit == "" else f"the metric's unit is {show(unit)}: write the number alone"


def unknown_prompts(suite: Suite, prompt_set: PromptSet) -> Iterator[Fault]:
    """Quality checks on prompts that the set does not hold."""
    ids = {prompt.id for prompt in prompt_set.prompts}
    for index, check in enumerate(suite.quality):
        if check.prompt != "*" and check.prompt not in ids:
            message = (
                f"no prompt {show(check.prompt)} in {suite.prompts.set}{did_you_mean(check.prompt, ids)}"
            )
            yield Fault(("quality", index, "prompt"), message)
