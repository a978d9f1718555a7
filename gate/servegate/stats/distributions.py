"""Whole-distribution comparison, for engines that do not repeat themselves.

An engine whose answers vary is judged against its own variation. Each prompt is answered at least twice by
either arm (base's A/A repeats count), and answers are compared with answers to the same prompt only. A mean
hides "half of the answers are empty, the others twice as long"; the distance between answers does not.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod
from typing import Literal, TypeVar

import numpy as np

from servegate.stats.launches import InvalidSamplesError
from servegate.stats.signedrank import FloatArray, Shift, shift_interval

Answer = TypeVar("Answer")

DRAWS = 9_999


@dataclass(frozen=True)
class Comparison:
    """How much further answers of different arms are than answers of one arm, in the unit of the distance.

    | field | meaning |
    | --- | --- |
    | `state` | `changed`, `same`, or `inconclusive` |
    | `excess`, `interval` | that difference, averaged over prompts, and its interval |
    | `floor` | mean distance of base from itself: the noise of the engine |
    | `p_value` | chance of so large an excess if both arms answered alike |
    | `prompts` | prompts compared |
    | `unmatched` | prompts that an arm answered less than twice: not compared |
    """

    state: Literal["changed", "same", "inconclusive"]
    excess: float
    interval: tuple[float, float]
    floor: float
    p_value: float
    prompts: int
    unmatched: tuple[str, ...]
    reason: str


def absolute(left: float, right: float) -> float:
    """|left - right|: for completion lengths, in tokens, or one logprob a prompt, in nats."""
    return abs(left - right)


def unequal(left: str, right: str) -> float:
    """1 if they differ, else 0: for finish reasons, or whole answers; its mean is a share of answers."""
    return float(left != right)


def mean_gap(left: Sequence[float], right: Sequence[float]) -> float:
    """Mean |left_i - right_i| over positions: for teacher-forced logprobs, in nats.

    Raises InvalidSamplesError on unequal or zero lengths: without teacher forcing, positions do not
    correspond.
    """
    if len(left) != len(right) or not left:
        raise InvalidSamplesError(f"{len(left)} and {len(right)} positions cannot be compared one by one")
    return float(np.mean(np.abs(np.subtract(left, right))))


def compare(
    base: Mapping[str, Sequence[Answer]],
    head: Mapping[str, Sequence[Answer]],
    distance: Callable[[Answer, Answer], float],
    *,
    tolerance: float,
    alpha: float,
    seed: int,
) -> Comparison:
    """Compare the answers of head with those of base, prompt by prompt.

    For a prompt with base answers x_1..x_b and head answers y_1..y_h, both at least two, the excess is mean
    d(x_i, y_j) - (mean over i < k of d(x_i, x_k) + mean over j < l of d(y_j, y_l)) / 2: half the energy
    distance, 0 on average if and only if both arms answer alike (Szekely and Rizzo, Journal of Statistical
    Planning and Inference 143, 2013). If they do, answers are exchangeable inside a prompt, so the mean
    excess over prompts is held against all relabellings of answers inside prompts: every one of them where
    there are at most 9,999, otherwise 9,999 seeded draws. The interval is a seeded percentile bootstrap over
    prompts (Efron), `alpha` on each side.

    `changed`: p <= alpha and the interval lies beyond `tolerance`; `same`: it lies within, and p could have
    reached alpha; otherwise `inconclusive`.

    Raises InvalidSamplesError where no prompt can be compared or a distance is not a finite number of at
    least 0.
    """
    matched = sorted(
        prompt for prompt in base.keys() & head.keys() if min(len(base[prompt]), len(head[prompt])) >= 2
    )
    unmatched = tuple(sorted((base.keys() | head.keys()) - set(matched)))
    if not matched:
        raise InvalidSamplesError("no prompt was answered at least twice by both arms")
    rng = np.random.default_rng(seed)
    tables = [_relabelled([*base[prompt], *head[prompt]], len(base[prompt]), distance) for prompt in matched]
    observed = np.array([table.excess[0] for table in tables])
    p_value, smallest = _permutation([table.excess for table in tables], rng)
    low, high = _bootstrap(observed, alpha, rng)
    if p_value <= alpha and low > tolerance:
        state: Literal["changed", "same", "inconclusive"] = "changed"
        reason = f"answers of the two arms differ by more than answers of one arm, by over {tolerance:g}"
    elif high < tolerance and smallest <= alpha:
        state, reason = (
            "same",
            f"answers of the two arms differ no more than answers of one arm, within {tolerance:g}",
        )
    elif smallest > alpha:
        state, reason = (
            "inconclusive",
            f"{len(matched)} prompts are too few: no outcome is rarer than {smallest:.2g}",
        )
    else:
        state, reason = (
            "inconclusive",
            f"the excess lies on both sides of {tolerance:g}, or is no rarer than chance",
        )
    return Comparison(
        state=state,
        excess=float(observed.mean()),
        interval=(low, high),
        floor=float(np.mean([table.floor for table in tables])),
        p_value=p_value,
        prompts=len(matched),
        unmatched=unmatched,
        reason=reason,
    )


def location(base: Mapping[str, Sequence[float]], head: Mapping[str, Sequence[float]], level: float) -> Shift:
    """The shift of a number per answer, by `shift_interval` of mean(head) - mean(base) of each prompt.

    The companion of `compare`: a small shift of everything moves the distance only by its square.

    Raises InvalidSamplesError where no prompt is shared or a number is not finite.
    """
    shared = sorted(prompt for prompt in base.keys() & head.keys() if base[prompt] and head[prompt])
    differences = np.array([np.mean(head[prompt]) - np.mean(base[prompt]) for prompt in shared])
    if not shared or not np.isfinite(differences).all():
        raise InvalidSamplesError("a shift needs shared prompts with finite numbers")
    return shift_interval(differences, level)


@dataclass(frozen=True)
class _Table:
    """The excess of one prompt under every choice of its head answers, the true choice first."""

    excess: FloatArray
    floor: float


def _relabelled(answers: list[Answer], n_base: int, distance: Callable[[Answer, Answer], float]) -> _Table:
    size = len(answers)
    gaps = np.zeros((size, size))
    for left, right in combinations(range(size), 2):
        gaps[left, right] = gaps[right, left] = distance(answers[left], answers[right])
    if not np.isfinite(gaps).all() or (gaps < 0).any():
        raise InvalidSamplesError("a distance between two answers is negative, NaN or infinite")
    choices = sorted(combinations(range(size), n_base), key=lambda kept: kept != tuple(range(n_base)))
    excess = np.empty(len(choices))
    floor = 0.0
    for number, kept in enumerate(choices):
        chosen = np.zeros(size, dtype=bool)
        chosen[list(kept)] = True
        inside = [gaps[np.ix_(arm, arm)].sum() / (arm.sum() * (arm.sum() - 1)) for arm in (chosen, ~chosen)]
        excess[number] = gaps[np.ix_(chosen, ~chosen)].mean() - sum(inside) / 2
        if number == 0:
            floor = float(inside[0])
    return _Table(excess, floor)


def _permutation(tables: list[FloatArray], rng: np.random.Generator) -> tuple[float, float]:
    """The p value of the observed sum (first entries), and the smallest that any outcome could have had."""
    observed = sum(float(table[0]) for table in tables)
    outcomes = prod(table.size for table in tables)
    near = observed - 1e-9 * max(1.0, abs(observed))  # equal sums must count as equal
    if outcomes <= DRAWS:
        sums = np.zeros(1)
        for table in tables:
            sums = (sums[:, None] + table).ravel()
        return float((sums >= near).mean()), 1 / outcomes
    sums = np.zeros(DRAWS)
    for table in tables:
        sums += table[rng.integers(0, table.size, DRAWS)]
    return float(1 + (sums >= near).sum()) / (DRAWS + 1), 1 / (DRAWS + 1)


def _bootstrap(values: FloatArray, alpha: float, rng: np.random.Generator) -> tuple[float, float]:
    means = values[rng.integers(0, values.size, (DRAWS, values.size))].mean(axis=1)
    low, high = np.quantile(means, (alpha, 1 - alpha))
    return float(low), float(high)
