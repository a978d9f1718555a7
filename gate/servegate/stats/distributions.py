"""Whole-distribution comparison, for engines that do not repeat themselves.

An engine whose answers vary is judged against its own variation. Each prompt is answered at least twice by
either arm (base's A/A repeats count), and answers are compared with answers to the same prompt only. A mean
hides "half of the answers are empty, the others twice as long"; the distance between answers does not.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import ceil, comb, inf, prod
from typing import Literal, TypeVar

import numpy as np

from servegate.stats.launches import InvalidSamplesError
from servegate.stats.signedrank import FloatArray, Shift

Answer = TypeVar("Answer")

DRAWS = 9_999
"""Relabellings drawn at least; more where alpha is below twenty of them."""
CHOICES = 1_000
"""Relabellings of one prompt's answers that are tried: all of them up to six answers an arm."""


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
    level: float,
    seed: int,
) -> Comparison:
    """Compare the answers of head with those of base, prompt by prompt.

    For a prompt with base answers x_1..x_b and head answers y_1..y_h, both at least two, the excess is mean
    d(x_i, y_j) - (mean over i < k of d(x_i, x_k) + mean over j < l of d(y_j, y_l)) / 2: half the energy
    distance, 0 on average if and only if both arms answer alike (Szekely and Rizzo, Journal of Statistical
    Planning and Inference 143, 2013). If they do, answers are exchangeable inside a prompt, so the mean
    excess over prompts is held against relabellings of answers inside prompts: every one of them where there
    are few, otherwise seeded draws. The interval is a seeded percentile bootstrap over prompts (Efron),
    `level` on each side.

    The answer is that of `judged`. Raises InvalidSamplesError where no prompt can be compared or a distance
    is not a finite number of at least 0.
    """
    matched = sorted(
        prompt for prompt in base.keys() & head.keys() if min(len(base[prompt]), len(head[prompt])) >= 2
    )
    unmatched = tuple(sorted((base.keys() | head.keys()) - set(matched)))
    if not matched:
        raise InvalidSamplesError("no prompt was answered at least twice by both arms")
    rng = np.random.default_rng(seed)
    tables, floors = [], []
    for prompt in matched:
        arms = labellings(len(base[prompt]), len(head[prompt]), CHOICES, rng)
        gaps = gaps_between([*base[prompt], *head[prompt]], distance)
        tables.append(excess_of(gaps, arms))
        floors.append(floor_of(gaps, len(base[prompt])))
    sums, smallest = _relabelled_sums(tables, alpha, rng)
    return judged(
        excess=float(np.mean([table[0] for table in tables])),
        interval=_bootstrap(np.array([table[0] for table in tables]), level, rng),
        floor=float(np.mean(floors)),
        p_value=share_at_least(sums, sum(float(table[0]) for table in tables)),
        smallest=smallest,
        tolerance=tolerance,
        alpha=alpha,
        prompts=len(matched),
        unmatched=unmatched,
    )


def location(
    base: Mapping[str, Sequence[float]], head: Mapping[str, Sequence[float]], *, alpha: float, seed: int
) -> Shift:
    """By how much head's numbers lie above base's: mean(head) - mean(base), averaged over prompts.

    The companion of `compare`: a small shift of everything moves the distance only by its square. Each end
    is the estimate less or plus what relabelling answers inside prompts exceeds with chance `alpha` if both
    arms answer alike. A head that did shift widens it: the ends are conservative there. Infinite where the
    answers are too few for `alpha`.

    Raises InvalidSamplesError where no prompt is shared or a number is not finite.
    """
    shared = sorted(prompt for prompt in base.keys() & head.keys() if base[prompt] and head[prompt])
    answers = {prompt: np.array([*base[prompt], *head[prompt]], dtype=float) for prompt in shared}
    if not shared or not all(np.isfinite(numbers).all() for numbers in answers.values()):
        raise InvalidSamplesError("a shift needs shared prompts with finite numbers")
    rng = np.random.default_rng(seed)
    tables = []
    for prompt in shared:
        arms = labellings(len(base[prompt]), len(head[prompt]), CHOICES, rng)
        in_head = arms @ answers[prompt]
        tables.append(in_head / len(head[prompt]) - (answers[prompt].sum() - in_head) / len(base[prompt]))
    estimate = float(np.mean([table[0] for table in tables]))
    sums, smallest = _relabelled_sums(tables, alpha, rng)
    if smallest > alpha:
        return Shift(estimate, -inf, inf)
    below, above = np.quantile(sums / len(shared), (alpha, 1 - alpha), method="closest_observation")
    return Shift(estimate, estimate - float(above), estimate - float(below))


def judged(
    *,
    excess: float,
    interval: tuple[float, float],
    floor: float,
    p_value: float,
    smallest: float,
    tolerance: float,
    alpha: float,
    prompts: int,
    unmatched: tuple[str, ...],
) -> Comparison:
    """`changed`: p <= alpha, so that it is not noise, and the interval lies beyond `tolerance`; `same`: it
    lies within, and p could have reached alpha (`smallest` is the least p possible); else `inconclusive`.

    No interval lies within a tolerance of 0. There arms are the same where they are less apart than base is
    from itself: where the interval lies within `floor`.
    """
    within = tolerance if tolerance > 0 else floor
    if p_value <= alpha and interval[0] > tolerance:
        state: Literal["changed", "same", "inconclusive"] = "changed"
        reason = f"answers of the two arms differ by more than answers of one arm, by over {tolerance:g}"
    elif smallest > alpha:
        state, reason = "inconclusive", f"too few answers: no outcome is rarer than {smallest:.2g}"
    elif interval[1] <= within:
        state, reason = (
            "same",
            f"answers of the two arms differ no more than answers of one arm, within {within:g}",
        )
    else:
        state, reason = (
            "inconclusive",
            f"the excess lies on both sides of {within:g}, or is no rarer than chance",
        )
    return Comparison(state, excess, interval, floor, p_value, prompts, unmatched, reason)


def labellings(n_base: int, n_head: int, most: int, rng: np.random.Generator) -> FloatArray:
    """Which answers are head's: a row of zeros and ones for each way to say so, the true one first.

    All of them where they are at most `most`; otherwise `most`, the others drawn.
    """
    if comb(n_base + n_head, n_head) <= most:
        return _all_labellings(n_base, n_head)
    true = np.repeat([0.0, 1.0], [n_base, n_head])
    return np.vstack([true, rng.permuted(np.tile(true, (most - 1, 1)), axis=1)])


@lru_cache(maxsize=64)
def _all_labellings(n_base: int, n_head: int) -> FloatArray:
    size = n_base + n_head
    # `combinations` ends with the last places, which are head's.
    places = np.array(list(combinations(range(size), n_head)))[::-1]
    labels = np.zeros((len(places), size))
    labels[np.arange(len(places))[:, None], places] = 1.0
    labels.flags.writeable = False
    return labels


def gaps_between(answers: Sequence[Answer], distance: Callable[[Answer, Answer], float]) -> FloatArray:
    """The distance of each answer from each. Raises InvalidSamplesError where one is no distance."""
    gaps = np.zeros((len(answers), len(answers)))
    for left, right in combinations(range(len(answers)), 2):
        gaps[left, right] = gaps[right, left] = distance(answers[left], answers[right])
    if not np.isfinite(gaps).all() or (gaps < 0).any():
        raise InvalidSamplesError("a distance between two answers is negative, NaN or infinite")
    return gaps


def excess_of(gaps: FloatArray, arms: FloatArray) -> FloatArray:
    """The excess under each labelling (a row of `arms`): between the arms less half of inside each."""
    n_head = arms[0].sum()
    n_base = arms.shape[1] - n_head
    head = ((arms @ gaps) * arms).sum(axis=1)
    between = arms @ gaps.sum(axis=1) - head
    base = gaps.sum() - 2 * between - head
    inside = base / (n_base * (n_base - 1)) + head / (n_head * (n_head - 1))
    return np.asarray(between / (n_base * n_head) - inside / 2)


def floor_of(gaps: FloatArray, n_base: int) -> float:
    """Mean distance of base's answers, which come first, from each other."""
    return float(gaps[:n_base, :n_base].sum() / (n_base * (n_base - 1)))


def share_at_least(values: FloatArray, observed: float) -> float:
    near = observed - 1e-9 * max(1.0, abs(observed))  # equal sums must count as equal
    return float((values >= near).mean())


def _relabelled_sums(
    tables: list[FloatArray], alpha: float, rng: np.random.Generator
) -> tuple[FloatArray, float]:
    """Sums of one value of each table: all of them, or the true one (first values) and draws.

    Also the smallest share that any one sum could have.
    """
    outcomes = prod(table.size for table in tables)
    draws = max(DRAWS, ceil(20 / alpha))
    if outcomes <= draws:
        sums = np.zeros(1)
        for table in tables:
            sums = (sums[:, None] + table).ravel()
        return sums, 1 / outcomes
    sums = np.zeros(draws + 1)
    for table in tables:
        picked = rng.integers(0, table.size, draws + 1)
        picked[0] = 0
        sums += table[picked]
    return sums, 1 / (draws + 1)


def _bootstrap(values: FloatArray, level: float, rng: np.random.Generator) -> tuple[float, float]:
    means = values[rng.integers(0, values.size, (DRAWS, values.size))].mean(axis=1)
    low, high = np.quantile(means, (level, 1 - level))
    return float(low), float(high)
