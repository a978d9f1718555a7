"""The three-way decision about a timed metric of two runs that were stored, not measured in turn.

Two runs of one code lie further apart than their rounds tell: the machine was in another state, and how that
state was drawn cannot be seen from one run each. So the interval for the change has two parts, that of the
rounds, which are seen, and that of the runs, which is assumed from measurements. The second does not shrink
with more rounds. Whoever needs a smaller one measures in turn (`paired`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isfinite, log, sqrt

import numpy as np

from servegate.stats.launches import InvalidSamplesError
from servegate.stats.paired import (
    BELIEF,
    Limit,
    State,
    held_against,
    inconclusive,
    reach_of,
    share,
    standard_error,
)
from servegate.stats.ranksum import sum_cut
from servegate.stats.signedrank import FloatArray, Shift

FEWEST_ROUNDS = 3  # of a run: of two, nobody can say which one is off
MOST_ROUNDS = 200  # of a run: more are put together, since each is held against all of the other run
EQUAL = "both sides are equal in every round: the same data, or a clock too coarse"
POISONED = 0.2  # share of a run's rounds that must not move an end of the interval
# What the luck of one run adds, by what is measured; the day on which it ran is in it. Of a rate or a median
# gap: 24 runs of identical code on two quiet shared cores gave 28.6 % of pairs beyond +5 % and 13.8 % beyond
# +10 %; both are what an sd of 6 % a run gives. Published ranges of repeated runs go up to 25 % of a time to
# first token and to 44 % of a p95 of small batches; a range of ten runs is three sd.
RUN_SD = 0.06
FIRST_TOKEN_RUN_SD = 0.08
TAIL_RUN_SD = 0.14
RUN_SHARE_OF_ROUND_SD = 1.5  # where rounds are so noisy that this is more, runs are as well
RUN_WEIGHT = 10  # degrees of freedom of all this: measured on a few machines, and assumed of yours
# Degrees of freedom of the robust spread, as a share of m + n - 2: with 0.7 Student's t holds its level for 3
# to 10 normal rounds a run; 0.5 leaves room for skewed ones.
FREEDOM = 0.5


@dataclass(frozen=True)
class Decision:
    """What was decided about one metric of two runs. Changes are shares of base: 0.05 is +5 %.

    | field | meaning |
    | --- | --- |
    | `estimate`, `interval` | the change and its interval; no interval where rounds are too few |
    | `rounds` | of base and of head, as judged |
    | `round_sd` | noise of one round inside its run, on the log scale |
    | `smallest_detectable` | the smallest change for the worse that these runs would show 4 times in 5 |
    | `rounds_needed` | of each run, to decide if the change stays; None if decided or if none would do |
    | `beyond_belief` | better by more than a factor of 3 |
    """

    state: State
    estimate: float
    interval: tuple[float, float] | None
    rounds: tuple[int, int]
    round_sd: float | None
    smallest_detectable: float | None
    rounds_needed: int | None
    beyond_belief: bool
    reason: str


@dataclass(frozen=True)
class Interval:
    """A change on the log scale and its noise, one entry for each row of values."""

    centre: FloatArray
    low: FloatArray
    high: FloatArray
    round_sd: FloatArray
    run_part: FloatArray
    """Half-width that remains however many rounds there are."""


def decide(
    base: Sequence[float], head: Sequence[float], limit: Limit, level: float, run_sd: float = RUN_SD
) -> Decision:
    """Judge the change from the rounds of one run of base to those of one run of head, in the metric's unit.

    `level` is the chance that either end of the interval is wrong: alpha over the number of gating rows.
    `run_sd` is what the luck of one run adds, on the log scale. Rounds count in any order.

    Raises InvalidSamplesError naming the first value that is not a positive, finite number, and without any.
    """
    before, after = _logs("base", base), _logs("head", head)
    rounds = (before.size, after.size)
    if min(rounds) < FEWEST_ROUNDS:
        return _too_few(before, after, rounds)
    found = interval(before, after, level, run_sd)
    shift = Shift(float(found.centre), float(found.low), float(found.high))
    if before.size == after.size and np.array_equal(before, after):
        state, reason = inconclusive(EQUAL)
    else:
        state, reason = held_against(shift, limit)
    sign = -1.0 if limit.higher_is_better else 1.0
    reach = reach_of(standard_error(shift, level), level)
    needed = _rounds_needed(found, shift, rounds, limit.log - sign * shift.estimate)
    return Decision(
        state=state,
        estimate=share(shift.estimate),
        interval=(share(shift.low), share(shift.high)),
        rounds=rounds,
        round_sd=float(found.round_sd),
        smallest_detectable=share(sign * (limit.log + reach)),
        rounds_needed=needed if state == "inconclusive" else None,
        beyond_belief=state == "improved" and -sign * shift.estimate > log(BELIEF),
        reason=reason,
    )


def interval(base: FloatArray, head: FloatArray, level: float, run_sd: float = RUN_SD) -> Interval:
    """The change from base to head, each end wrong with chance `level`; the last axis holds log rounds.

    1. The centre is the Hodges-Lehmann shift, the median of all differences head_j - base_i (Annals of
       Mathematical Statistics 34, 1963). It stands while fewer than 29 % of the rounds are poisoned.
    2. The round part [centre - a, centre + b] inverts the Mann-Whitney test exactly (`sum_cut`; Hollander,
       Wolfe and Chicken, *Nonparametric Statistical Methods*, 4.3) where its ends stand although a fifth of
       one run's rounds are poisoned: a cut of at least m n / 5, which at 5 % takes 7 rounds a run, and with
       six gating rows 12. With fewer a = b = t(f, level) s sqrt(1/m + 1/n), s the spread of `_spread` and
       f = 0.5 (m + n - 2).
    3. The run part is c = t(10, level) sqrt(2) max(run_sd, 1.5 s): the luck of both runs, as assumed above.
    4. The interval is [centre - sqrt(a^2 + c^2), centre + sqrt(b^2 + c^2)] (Howe 1974; Zou and Donner,
       Statistics in Medicine 27, 2008).
    """
    from scipy.special import stdtrit

    m, n = base.shape[-1], head.shape[-1]
    ordered = _differences(base, head)
    centre = _middle(ordered)
    spread = _spread(base, head)
    cut = sum_cut(m, n, level)
    if cut >= POISONED * m * n:
        below, above = centre - ordered[..., cut], ordered[..., -1 - cut] - centre
    else:
        below = above = -float(stdtrit(FREEDOM * (m + n - 2), level)) * spread * sqrt(1 / m + 1 / n)
    runs = -float(stdtrit(RUN_WEIGHT, level)) * sqrt(2) * np.maximum(run_sd, RUN_SHARE_OF_ROUND_SD * spread)
    return Interval(centre, centre - np.hypot(below, runs), centre + np.hypot(above, runs), spread, runs)


def in_blocks(values: Sequence[float], most: int) -> tuple[float, ...]:
    """The values, or the medians of `most` runs of successive ones where there are more."""
    if len(values) <= most:
        return tuple(values)
    return tuple(float(np.median(block)) for block in np.array_split(np.asarray(values, dtype=float), most))


def require_usable(arm: str, values: Sequence[float]) -> None:
    """Raise InvalidSamplesError without values, and naming the first that is not positive and finite."""
    if not values:
        raise InvalidSamplesError(f"{arm} has no rounds")
    for position, value in enumerate(values, start=1):
        if not (isfinite(value) and value > 0):
            raise InvalidSamplesError(
                f"{arm} round {position} is {value}: a relative change needs positive numbers"
            )


def _logs(arm: str, values: Sequence[float]) -> FloatArray:
    require_usable(arm, values)
    logs: FloatArray = np.log(np.asarray(in_blocks(values, MOST_ROUNDS), dtype=float))
    return logs


def _too_few(base: FloatArray, head: FloatArray, rounds: tuple[int, int]) -> Decision:
    arm, fewest = ("head", rounds[1]) if rounds[1] < rounds[0] else ("base", rounds[0])
    return Decision(
        state="inconclusive",
        estimate=share(float(_middle(_differences(base, head)))),
        interval=None,
        rounds=rounds,
        round_sd=None,
        smallest_detectable=None,
        rounds_needed=FEWEST_ROUNDS,
        beyond_belief=False,
        reason=f"{arm} has {fewest} of the {FEWEST_ROUNDS} rounds that a run needs to be judged",
    )


def _differences(base: FloatArray, head: FloatArray) -> FloatArray:
    """head_j - base_i for all i and j along the last axis, sorted."""
    every = head[..., None, :] - base[..., :, None]
    ordered: FloatArray = np.sort(every.reshape(*every.shape[:-2], -1))
    return ordered


def _middle(ordered: FloatArray) -> FloatArray:
    last = ordered.shape[-1] - 1
    return np.asarray((ordered[..., last // 2] + ordered[..., last - last // 2]) / 2)


def _spread(base: FloatArray, head: FloatArray) -> FloatArray:
    """1.0483 times the median of all |x_i - x_j| inside either run: the sd, for normal rounds.

    The companion of the Hodges-Lehmann shift, with the same breakdown point of 29 % (Shamos 1976; Bickel and
    Lehmann 1979).
    """
    inside = []
    for run in (base, head):
        first, second = np.triu_indices(run.shape[-1], 1)
        inside.append(np.abs(run[..., first] - run[..., second]))
    return np.asarray(1.0483 * _middle(np.sort(np.concatenate(inside, axis=-1))))


def _rounds_needed(found: Interval, shift: Shift, rounds: tuple[int, int], distance: float) -> int | None:
    """Rounds of each run with which the interval would clear the limit, if the change stayed what it is.

    The round part shrinks with the root of the rounds, the run part not at all: with h the harmonic mean of
    the rounds, a^2 h / R + c^2 = distance^2.
    """
    half, runs = (shift.high - shift.low) / 2, float(found.run_part)
    room, of_rounds = distance**2 - runs**2, max(half**2 - runs**2, 0.0)
    harmonic = 2 * rounds[0] * rounds[1] / sum(rounds)
    if room <= 0 or of_rounds * harmonic > room * MOST_ROUNDS:
        return None
    return max(ceil(of_rounds * harmonic / room), max(rounds) + 1)
