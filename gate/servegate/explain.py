"""Why a verdict is what it is, row by row, computed again from the files it was saved with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.padding import Padding
from rich.text import Text

from servegate.ab.lengths import AT_MATCHED_LENGTH
from servegate.bundle import SUITE, Recomputed, recompute
from servegate.errors import ExitCode
from servegate.files import read_model
from servegate.metrics.table import METRICS
from servegate.render import words
from servegate.render.escape import clean
from servegate.render.terminal import Style, console_for, finished, state_text
from servegate.render.view import name
from servegate.suite.schema import Policy, Rule, Suite
from servegate.timed import what_decides
from servegate.verdict import Row, State


@dataclass(frozen=True)
class Explanation:
    recomputed: Recomputed
    policy: Policy

    @property
    def exit_code(self) -> int:
        """4 where the files do not bear the verdict out; else 0, as explaining judges nothing."""
        return int(ExitCode.PASS if self.recomputed.holds else ExitCode.MEASUREMENT_FAILED)


def explain(verdict_path: Path) -> Explanation:
    recomputed = recompute(verdict_path)
    suite = read_model(verdict_path.parent / SUITE, Suite, versioned=False)
    return Explanation(recomputed, suite.policy)


def render(explanation: Explanation, style: Style) -> str:
    """The recomputed verdict, whether it is the stored one, then every row: gating ones first."""
    again = explanation.recomputed.again
    console = console_for(style)
    console.print(Text(clean(again.headline), "bold"))
    for line in _trust(explanation.recomputed):
        console.print(Text(line, "green" if explanation.recomputed.holds else "bold red"))
    for row in sorted(again.comparison.rows, key=lambda row: not row.gating):
        console.print()
        title = Text.assemble((clean(name(row)), "bold"), "  ", state_text(row))
        console.print(title)
        for line in row_lines(row, explanation.policy):
            console.print(Padding(Text(clean(line, 600)), (0, 0, 0, 2)))
    return finished(console)


def row_lines(row: Row, policy: Policy) -> list[str]:
    base, head = words.pair(row.base, row.head, row.unit)
    lines = [
        f"base {base} (n {row.n_base:,}), head {head} (n {row.n_head:,}): {words.change(row)}",
        f"rule: {row.tolerance}{'' if row.gating else ' (fails nothing)'}",
        f"why: {row.reason}",
        *(f"  {detail}" for detail in row.detail),
    ]
    remedy = what_would_change_it(row, rule_of(row, policy))
    return [*lines, f"what would change it: {remedy}"] if remedy else lines


def what_would_change_it(row: Row, rule: Rule | None) -> str:
    """The value at which the row's state turns, or what has to be there before it can be judged."""
    if row.kind == "pin":
        return "the pinned version installed, or another pin in the suite"
    if row.kind in ("prompt", "workload"):
        return (
            ""
            if row.state is State.PASS
            else "the base's list, or `servegate baseline update` to accept this one"
        )
    by_state = {
        State.NEW: "a baseline: `servegate baseline update`",
        State.MISSING: "a measurement that gives it, or `servegate baseline update` to accept its loss",
        State.INVALID: "a sound measurement: the number is not possible",
        State.INCONCLUSIVE: _more_observations(row),
        State.NOT_COMPARABLE: "a base measured under the same conditions: `servegate baseline update` there",
    }
    if row.state in by_state:
        return by_state[row.state]
    if rule is None:
        example = "change: 5%" if row.kind in ("timed", "cost") else "equal: true"
        moved = row.base != row.head and not row.gating
        return f"a rule under `policy:`, such as {row.metric}: {{{example}}}" if moved else ""
    return _turning_points(row, rule)


def _more_observations(row: Row) -> str:
    if row.evidence is not None:
        needed = row.evidence.blocks_needed
        if row.evidence.unit == "rounds":
            return what_decides(needed)
        if row.evidence.unit != "block pairs":
            return f"about {needed} {row.evidence.unit} of each arm" if needed else "a wider tolerance"
        return (
            f"about {needed:,} block pairs in all: a larger `--budget`"
            if needed is not None
            else "a quieter machine, or a tolerance that the change does not lie at"
        )
    needed = METRICS[row.metric].min_n if row.metric in METRICS else 1
    return f"at least {needed} values on each side: more prompts, or a higher `repeat`"


def _turning_points(row: Row, rule: Rule) -> str:
    """The rule solved for the head's value: where a pass turns into a regression, and back."""
    if row.evidence is not None:
        beyond = row.state is State.REGRESSED
        return f"an interval that {'reaches into' if beyond else 'lies wholly beyond'} the tolerance"
    if not isinstance(row.head, float):
        return ""
    lower, upper = passing(row, rule)
    if row.state is State.REGRESSED:
        return f"a head {_between(row, lower, upper)}"
    turns = [f"above {words.value(upper, row.unit)}"] if upper is not None else []
    turns += [f"below {words.value(lower, row.unit)}"] if lower is not None and lower > 0 else []
    return f"a head {' or '.join(turns)}" if turns else ""


def passing(row: Row, rule: Rule) -> tuple[float | None, float | None]:
    """Lowest and highest head that pass; None where there is no such bound."""
    lowest = [float(rule.min)] if rule.min is not None else []
    highest = [float(rule.max)] if rule.max is not None else []
    if isinstance(row.base, float) and (rule.equal or rule.change is not None):
        room = max((rule.change or 0.0) * row.base, float(rule.floor or 0.0))
        if rule.equal or row.better != "higher":
            highest.append(row.base + room)
        if rule.equal or row.better != "lower":
            lowest.append(row.base - room)
    return max(lowest, default=None), min(highest, default=None)


def _between(row: Row, lower: float | None, upper: float | None) -> str:
    if lower is None or upper is None:
        edge, bound = ("of at most", upper) if lower is None else ("of at least", lower)
        return f"{edge} {words.value(bound, row.unit)}"
    if lower == upper:
        return f"of exactly {words.value(lower, row.unit)}"
    return "from {} to {}".format(*words.pair(lower, upper, row.unit))


def rule_of(row: Row, policy: Policy) -> Rule | None:
    """The rule that the row falls under; a row at matched length falls under that of its metric."""
    suffix = f" {AT_MATCHED_LENGTH}"
    return policy.rules.get(name(row).removesuffix(suffix)) or policy.rules.get(
        row.metric.removesuffix(suffix)
    )


def _trust(recomputed: Recomputed) -> list[str]:
    """Is what was saved what the files give? The first thing to know about a verdict from elsewhere."""
    if recomputed.holds:
        return ["recomputed from the saved files: the same verdict"]
    lines = [
        f"NOT TO BE TRUSTED: {clean(file)} is not what the verdict was computed from (another sha256)"
        for file in recomputed.tampered
    ]
    if recomputed.stored.comparison != recomputed.again.comparison:
        stored = clean(recomputed.stored.headline)
        lines.append(
            f"NOT TO BE TRUSTED: the saved files do not give the stored verdict, which says: {stored}"
        )
    return lines or ["NOT TO BE TRUSTED: the saved files do not give the stored verdict"]
