"""Answers of several runs of either arm, where what one process answers is of one piece.

A process that starts may pick a kernel, a batch order or a cache state for all of its answers. Then answers
of one run share its luck, as tokens share that of a block, and the run is what can be exchanged: whole runs
are relabelled, never single answers.
"""

from collections.abc import Callable, Mapping, Sequence
from math import comb, inf

import numpy as np

from servegate.stats.distributions import (
    DRAWS,
    Answer,
    Comparison,
    excess_of,
    floor_of,
    gaps_between,
    judged,
    labellings,
    share_at_least,
)
from servegate.stats.launches import InvalidSamplesError
from servegate.stats.ranksum import shift_between
from servegate.stats.signedrank import FloatArray, Shift

LABELLINGS = 2 * DRAWS
"""Of whole runs that are tried: all of them up to eight runs an arm."""


def runs_needed(alpha: float) -> int:
    """The fewest runs of each arm of whose labellings one is no more likely than `alpha`."""
    runs = 1
    while comb(2 * runs, runs) * alpha < 1:
        runs += 1
    return runs


def compare_runs(
    base: Mapping[str, Sequence[Answer | None]],
    head: Mapping[str, Sequence[Answer | None]],
    distance: Callable[[Answer, Answer], float],
    *,
    tolerance: float,
    alpha: float,
    level: float,
    seed: int,
) -> Comparison:
    """`distributions.compare` with the run as the unit: entry i of each prompt is run i's answer.

    Prompts that a run did not answer (None) are left out. The excess is the same number; the runs being
    exchangeable if both arms answer alike, it is held against the labellings of runs, all prompts together.
    The interval is the jackknife's over runs (Tukey; Arvesen, Annals of Mathematical Statistics 40, 1969,
    for a statistic of pairs) with Student's t, `level` on each side.

    Raises InvalidSamplesError where no prompt was answered by all runs, two of each arm at least, or a
    distance is not a finite number of at least 0.
    """
    complete = {
        prompt: [answer for arm in (base, head) for answer in arm[prompt] if answer is not None]
        for prompt in sorted(base.keys() & head.keys())
    }
    n_base, n_head = (max(map(len, arm.values()), default=0) for arm in (base, head))
    matched = [prompt for prompt, answers in complete.items() if len(answers) == n_base + n_head]
    if not matched or min(n_base, n_head) < 2:
        raise InvalidSamplesError("no prompt was answered by all runs, two of each arm at least")
    gaps = np.zeros((n_base + n_head, n_base + n_head))
    for prompt in matched:
        gaps += gaps_between(complete[prompt], distance) / len(matched)
    arms = labellings(n_base, n_head, LABELLINGS, np.random.default_rng(seed))
    found = excess_of(gaps, arms)
    return judged(
        excess=float(found[0]),
        interval=_jackknife(gaps, arms[0], float(found[0]), level),
        floor=floor_of(gaps, n_base),
        p_value=share_at_least(found, float(found[0])),
        smallest=1 / len(arms),
        tolerance=tolerance,
        alpha=alpha,
        prompts=len(matched),
        unmatched=tuple(sorted((base.keys() | head.keys()) - set(matched))),
    )


def shift_of_runs(
    base: Mapping[str, Sequence[float | None]],
    head: Mapping[str, Sequence[float | None]],
    *,
    alpha: float,
) -> Shift:
    """By how much head's runs lie above base's, each run being the mean of its prompts: `shift_between`.

    Raises InvalidSamplesError where no prompt has a finite number in all runs.
    """
    n_base, n_head = (max(map(len, arm.values()), default=0) for arm in (base, head))
    rows = [
        [number for arm in (base, head) for number in arm[prompt] if number is not None]
        for prompt in sorted(base.keys() & head.keys())
    ]
    complete = np.array([row for row in rows if len(row) == n_base + n_head])
    if complete.size == 0 or not min(n_base, n_head) or not np.isfinite(complete).all():
        raise InvalidSamplesError("a shift needs prompts with a finite number in every run")
    runs = complete.mean(axis=0)
    return shift_between(runs[:n_base], runs[n_base:], alpha)


def _jackknife(gaps: FloatArray, in_head: FloatArray, excess: float, level: float) -> tuple[float, float]:
    """excess -+ t * se; se^2 sums (n - 1) / n * sum of (excess without run i - mean of those)^2 over arms."""
    from scipy.special import stdtrit

    variance = 0.0
    for arm in (0.0, 1.0):
        runs = np.flatnonzero(in_head == arm)
        if runs.size < 3:
            return -inf, inf
        without = np.array(
            [float(excess_of(_without(gaps, i), _without(in_head, i)[None])[0]) for i in runs.tolist()]
        )
        variance += float((runs.size - 1) / runs.size * ((without - without.mean()) ** 2).sum())
    half = float(stdtrit(len(in_head) - 2, 1 - level)) * variance**0.5
    return excess - half, excess + half


def _without(values: FloatArray, run: int) -> FloatArray:
    for axis in range(values.ndim):
        values = np.delete(values, run, axis)
    return values
