"""What the tests of answers saw, in sentences. Without prompt ids in a reason: it may become the headline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import isfinite
from statistics import fmean

import numpy as np

from servegate.answers.evidence import Answers, Seen
from servegate.verdict import State
from servegate.wording import amount, count, number, percent

EMPTY_MATTERS = 0.02
"""A share of empty answers that grew by less is not what happened."""


def reason(seen: Seen, unit: str, hidden: str | None) -> str:
    """Why the row is judged so; ``hidden`` is what a mean does not tell."""
    within = _within(seen, unit)
    if seen.state is State.REGRESSED:
        if seen.moved:
            return f"{_shift(seen, unit)}, beyond {within}" + (f"; {hidden}" if hidden else "")
        return hidden or (
            f"answers of base and head lie {_between(seen, unit)} further apart than answers of one arm, "
            f"beyond {within}"
        )
    if seen.state is State.INCONCLUSIVE:
        return f"the target does not repeat itself, and {_undecided(seen, unit)}"
    if seen.tolerance == 0:
        return "answers of head lie no further from base's than those from each other"
    return f"{_shift(seen, unit) or _between(seen, unit) + ' further apart'}, within {within}"


def details(seen: Seen, unit: str) -> Iterator[str]:
    what = "runs" if seen.by_run else "answers a prompt"
    yield (
        f"{count(seen.excess.prompts, 'prompt')}, {seen.units[0]} {what} of base and {seen.units[1]} of head"
    )
    yield (
        f"noise floor: two answers of base to one prompt lie {amount(seen.excess.floor, unit)} apart; "
        f"answers of head lie {_between(seen, unit)} further from base's than that"
    )
    if seen.shift is not None:
        yield _shift(seen, unit)
    if seen.excess.unmatched:
        yield f"not compared, since not answered often enough: {count(len(seen.excess.unmatched), 'prompt')}"


def empties(base: Answers, head: Answers) -> str | None:
    """``50 % of head's answers are empty (base 0 %)``, where that is news."""
    before, after = (_empty_share(arm) for arm in (base, head))
    if after - before < EMPTY_MATTERS:
        return None
    told = [number(round(share * 100, 1)) for share in (after, before)]
    return f"{told[0]} % of head's answers are empty (base {told[1]} %)"


def quantiles(base: Answers, head: Answers) -> str:
    """Lengths at 5, 50 and 95 %, over all answers of either arm."""
    told = [
        f"{name} {' / '.join(number(round(float(q))) for q in np.quantile(_flat(arm), (0.05, 0.5, 0.95)))}"
        for name, arm in (("base", base), ("head", head))
    ]
    return f"lengths at 5 / 50 / 95 % of answers: {', '.join(told)} tokens"


def shares(arm: Answers) -> str:
    """``length 12 %, stop 88 %``: the arms may have unequal numbers of answers."""
    counts = Counter(answer for given in arm.values() for answer in given if answer is not None)
    return ", ".join(f"{name} {amount(n / counts.total(), 'share')}" for name, n in sorted(counts.items()))


def _empty_share(arm: Answers) -> float:
    return fmean(length == 0 for length in _flat(arm))


def _flat(arm: Answers) -> Sequence[float]:
    return [answer for given in arm.values() for answer in given if answer is not None]


def _within(seen: Seen, unit: str) -> str:
    if seen.tolerance > 0:
        share = unit == "tokens" and seen.mean > 0
        told = amount(seen.tolerance / seen.mean, "share") if share else amount(seen.tolerance, unit)
        return f"the tolerance of {told}"
    return f"base's own variation of {amount(seen.excess.floor, unit)}"


def _shift(seen: Seen, unit: str) -> str:
    """``+4.2 % an answer (between -1.0 % and +9.5 %)``; in the unit where base has no mean to divide by."""
    if seen.shift is None:
        return ""
    divide = seen.mean if unit == "tokens" else 0.0
    ends = [_signed(value, divide, unit) for value in (seen.shift.estimate, seen.shift.low, seen.shift.high)]
    where = f" (between {ends[1]} and {ends[2]})" if isfinite(seen.shift.low) else ""
    return f"{ends[0]} an answer{where}"


def _signed(value: float, divide: float, unit: str) -> str:
    if divide > 0:
        return percent(value / divide)
    return f"{'+' if value >= 0 else '-'}{amount(abs(value), unit)}"


def _between(seen: Seen, unit: str) -> str:
    low, high = seen.excess.interval
    if not isfinite(low):
        return amount(max(seen.excess.excess, 0.0), unit)
    return f"{amount(max(low, 0.0), unit)} to {amount(max(high, 0.0), unit)}"


def _undecided(seen: Seen, unit: str) -> str:
    what = "runs of each arm" if seen.by_run else "answers a prompt of each arm"
    if seen.needed is not None and seen.by_run and seen.shift is not None and not isfinite(seen.shift.low):
        return f"{min(seen.units)} {what} are too few: {seen.needed} are needed, a larger --budget"
    seen_so_far = _shift(seen, unit) if seen.shift is not None else f"{_between(seen, unit)} further apart"
    told = f"{seen_so_far} does not decide about {_within(seen, unit)}"
    if seen.needed is None:
        return told
    return f"{told}: about {seen.needed:,} {what} would, a higher `repeat`"
