"""The verdict in one line: the outcome, one number, one cause."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from servegate.render.words import pair
from servegate.verdict import DECIDED, Comparison, Outcome, Row, State
from servegate.wording import count, percent

_TITLES: Final = {
    Outcome.PASS: "PASS",
    Outcome.REGRESSED: "FAIL",
    Outcome.INCONCLUSIVE: "INCONCLUSIVE",
    Outcome.NO_DATA: "NO COMPARABLE DATA",
    Outcome.FAILED: "MEASUREMENT FAILED",
}
_LENGTHS: Final = ("completion_tokens", "completion_tokens_mean")
_FOLLOWS_LENGTH: Final = (
    "cost_per_request",
    "throughput",
    "request_throughput",
    "e2e_p50",
    "e2e_p95",
    "steps",
)
"""What moves with the length of answers, whatever the engine does."""
_LENGTH_MATTERS: Final = 0.02
"""A smaller relative change of length explains nothing."""
_BY_KIND: Final = ("pin", "exact", "logprob", "quality", "cost", "timed", "prompt", "workload")
_PREFILL: Final = ("ttft", "prefill")
_DECODE: Final = ("itl", "decode", "stall")


def headline(comparison: Comparison, outcome: Outcome) -> str:
    """One line, without untrusted text of any length: prompt ids and errors stay in the rows."""
    say: dict[Outcome, Callable[[Comparison], str]] = {
        Outcome.PASS: _passed,
        Outcome.REGRESSED: _regressed,
        Outcome.INCONCLUSIVE: lambda c: _stuck(c, State.INCONCLUSIVE),
        Outcome.NO_DATA: _no_data,
        Outcome.FAILED: _failed,
    }
    line = f"{_TITLES[outcome]}: {say[outcome](comparison)}"
    return " ".join(line.split())


def _passed(comparison: Comparison) -> str:
    gating = [row for row in comparison.rows if row.gating]
    decided = [row for row in gating if row.state in DECIDED]
    parts = [f"{count(len(decided), 'gating row')} compared, none beyond its tolerance"]
    improved = sorted((r for r in decided if r.state is State.IMPROVED), key=_size, reverse=True)
    if improved:
        parts.append(f"{_name(improved[0])} improved {_numbers(improved[0])}")
    parts += _shorter(comparison.rows)
    for state in (State.NOT_COMPARABLE, State.INCONCLUSIVE, State.MISSING):
        undecided = sum(row.state is state for row in gating)
        if undecided:
            parts.append(f"{count(undecided, 'gating row')} {state.value}")
    return "; ".join(parts)


def _regressed(comparison: Comparison) -> str:
    rows = comparison.rows
    failing = [row for row in rows if row.gating and row.state is State.REGRESSED]
    length = _length_that_explains(rows, failing)
    lead = length or min(failing, key=lambda row: (_BY_KIND.index(row.kind), -_size(row)))
    parts = [_in_words(lead)]
    if length is not None:
        followers = [r for r in failing if r.metric in _FOLLOWS_LENGTH]
        if followers:
            names = " and ".join(_name(row) for row in followers[:2])
            parts.append(f"{names} {'follows' if len(followers) == 1 else 'follow'}")
        failing = [r for r in failing if r not in followers]
    others = len([row for row in failing if row is not lead and row.metric not in _LENGTHS])
    if others:
        parts.append(f"{count(others, 'other row')} regressed")
    parts += [*_cause(comparison), *_shorter(rows), *_trade_off(rows)]
    return "; ".join(parts)


def _length_that_explains(rows: Sequence[Row], failing: Sequence[Row]) -> Row | None:
    """A length that failed; or one that nobody gates on, where what follows from lengths failed."""
    moved = [r for r in rows if r.metric in _LENGTHS and r.state is State.REGRESSED]
    gated = [row for row in moved if row.gating]
    if gated:
        return gated[0]
    large = [row for row in moved if _size(row) >= _LENGTH_MATTERS]
    return large[0] if large and any(row.metric in _FOLLOWS_LENGTH for row in failing) else None


def _cause(comparison: Comparison) -> list[str]:
    """What a pull request changed on purpose, as far as the fingerprints and prompts tell."""
    causes = [
        f"{change.name} {_short(change.base)} -> {_short(change.head)}"
        for change in comparison.environment
        if change.group != "machine"
    ]
    changed = max((r.n_head for r in comparison.rows if r.metric == "prompts changed"), default=0)
    if changed:
        causes.insert(0, f"the text of {count(changed, 'prompt')}")
    if not causes:
        return []
    more = f" and {len(causes) - 2} more" if len(causes) > 2 else ""
    return [f"changed: {', '.join(causes[:2])}{more}"]


def _shorter(rows: Sequence[Row]) -> list[str]:
    """Latency that improved because there was less to say is no improvement."""
    shrunk = next((r for r in rows if r.metric in _LENGTHS and (r.change or 0) <= -_LENGTH_MATTERS), None)
    faster = [r for r in rows if r.kind == "timed" and r.state is State.IMPROVED]
    if shrunk is None or not faster:
        return []
    return [f"{_name(faster[0])} is faster because shorter: {_words(shrunk.metric)} fell {_numbers(shrunk)}"]


def _trade_off(rows: Sequence[Row]) -> list[str]:
    """One of prefill and decode that improved while the other failed, in the same workload."""
    for worse in rows:
        if worse.state is not State.REGRESSED or worse.kind != "timed":
            continue
        opposite = _DECODE if worse.metric.startswith(_PREFILL) else _PREFILL
        if not worse.metric.startswith((*_PREFILL, *_DECODE)):
            continue
        for better in rows:
            if (
                better.workload == worse.workload
                and better.state is State.IMPROVED
                and better.metric.startswith(opposite)
            ):
                return [
                    f"a trade-off: {_name(better)} improved {_numbers(better)} as {_name(worse)} got worse"
                ]
    return []


def _no_data(comparison: Comparison) -> str:
    rows = comparison.rows
    if not rows:
        return "nothing was measured"
    gating = [row for row in rows if row.gating]
    if not gating:
        return "the policy has no rule that any row falls under, so nothing was judged"
    missing = [row for row in gating if row.state is State.MISSING]
    if missing:
        return f"{_name(missing[0])}: {missing[0].reason}{_and_more(missing)}"
    stuck = [row for row in gating if row.state is State.NOT_COMPARABLE]
    if stuck:
        return f"{_name(stuck[0])}: {stuck[0].reason}{_and_more(stuck)}"
    return "no gating row has a value on both sides; is there a baseline for this suite?"


def _failed(comparison: Comparison) -> str:
    if any(row.gating and row.state is State.INVALID for row in comparison.rows):
        return _stuck(comparison, State.INVALID)
    return "the run was interrupted: what was measured does not add up to a verdict"


def _stuck(comparison: Comparison, state: State) -> str:
    stuck = [row for row in comparison.rows if row.gating and row.state is state]
    return f"{_name(stuck[0])}: {stuck[0].reason}{_and_more(stuck)}"


def _and_more(rows: Sequence[Row]) -> str:
    return f" (and {count(len(rows) - 1, 'more row')})" if len(rows) > 1 else ""


def _in_words(row: Row) -> str:
    """``completion tokens doubled (812 -> 1,657 tokens, +104 %)``."""
    if row.kind == "pin" or not isinstance(row.base, float) or not isinstance(row.head, float):
        return f"{_name(row)}: {row.reason}"
    words = _words(row.metric)
    if row.change is None or row.base == 0:
        return f"{_name(row)}: {row.reason}"
    ratio = row.head / row.base
    verb = "rose" if ratio > 1 else "fell"
    if 1.9 <= ratio <= 2.15:
        verb = "doubled"
    elif 2.15 < ratio < 4:
        verb = "more than doubled"
    elif 0.46 <= ratio <= 0.53:
        verb = "halved"
    where = f" in {row.workload}" if row.workload else ""
    return f"{words} {verb}{where} {_numbers(row)}"


def _numbers(row: Row) -> str:
    """As a table shows them: durations in the unit that reads best, with digits enough to differ."""
    if not isinstance(row.base, float) or not isinstance(row.head, float):
        return f"({row.base} -> {row.head})"
    by = f", {percent(row.change)}" if row.change is not None else ""
    base, head = pair(row.base, row.head, row.unit)
    return f"({base} -> {head}{by})"


def _words(metric: str) -> str:
    return metric.replace("_", " ")


def _name(row: Row) -> str:
    return f"{row.workload}.{row.metric}" if row.workload else row.metric


def _size(row: Row) -> float:
    return abs(row.change) if row.change is not None else 0.0


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
