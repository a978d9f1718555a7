"""What two tests say of a row: by how much answers moved, and how far they lie apart.

The shift says by how much head's answers lie above base's, on average. The excess says how much further
answers of different arms lie apart than answers of one arm, and sees what a mean hides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil
from statistics import fmean
from typing import Any, Final, Literal

from servegate.stats.distributions import Comparison, compare, location
from servegate.stats.runs import compare_runs, runs_needed, shift_of_runs
from servegate.stats.signedrank import Shift
from servegate.verdict import State

NOISE: Final = 0.005
"""Chance that any row of a suite regresses although both arms answer alike; its tests share it equally."""
ALPHA: Final = 0.05
"""Chance that any interval of a suite has a wrong end, as for timed rows; shared likewise."""
MOST_UNITS: Final = 64
"""Answers or runs of an arm that count: more tell little, and each is held against every other."""
MOST_MORE: Final = 100
"""Times the answers there are: where it takes more than that to decide, none would."""

Answers = Mapping[str, Sequence[Any]]
"""By base's prompt id an entry for each round; None where it has no usable answer."""
Units = dict[str, list[tuple[Any, ...] | None]]
"""By prompt what can be exchanged between arms: one answer, or all answers of one run."""
Worse = Literal["up", "down", "either"]


@dataclass(frozen=True)
class Question:
    """A row of two arms, ready to be tested."""

    base: Answers
    head: Answers
    distance: Callable[[Any, Any], float]
    number: Callable[[Any], float] | None
    """What is averaged for the shift; None where an answer is no number."""
    worse: Worse
    rounds_a_run: tuple[int, int] | None
    """Of base and head, where several processes of each were measured: whole runs are then exchanged."""
    tests: int
    """Of the suite, this row's included: they share the errors."""
    seed: int


@dataclass(frozen=True)
class Seen:
    """The answer, in the unit of one answer."""

    state: State
    excess: Comparison
    shift: Shift | None
    sure: bool
    """Is the shift not noise?"""
    tolerance: float
    mean: float
    """Of base's answers; 0 where they are no numbers."""
    units: tuple[int, int]
    """Answers a prompt, or runs, of base and head."""
    by_run: bool
    needed: int | None
    """Of them in each arm to decide; None if decided, or if no number of them would."""

    @property
    def within(self) -> float:
        """What counts as equal: without a tolerance, base's own variation."""
        return self.tolerance if self.tolerance > 0 else self.excess.floor

    @property
    def moved(self) -> bool:
        """Does the shift alone lie beyond the tolerance, up or down?"""
        return (
            self.sure
            and self.shift is not None
            and (self.shift.low > self.tolerance or self.shift.high < -self.tolerance)
        )


def examine(question: Question, tolerance: Callable[[float, int], float]) -> Seen:
    """Both tests, held against ``tolerance(mean of base's answers, prompts)``.

    Regressed where a test lies beyond the tolerance on the bad side, pass where both lie within it,
    inconclusive otherwise. Raises InvalidSamplesError where the answers cannot be compared.
    """
    sizes = question.rounds_a_run
    base = _units(question.base, sizes[0] if sizes else None)
    head = _units(question.head, sizes[1] if sizes else None)
    shared = [prompt for prompt in base if prompt in head]
    noise, level = NOISE / question.tests, ALPHA / question.tests
    mean, shift, sure = 0.0, None, False
    if question.number is not None:
        before, after = (_numbers(units, question.number) for units in (base, head))
        known = [number for prompt in shared for number in before[prompt] if number is not None]
        mean = fmean(known) if known else 0.0
    limit = tolerance(mean, max(len(shared), 1))
    excess = (compare_runs if sizes else compare)(
        base,
        head,
        _lifted(question.distance),
        tolerance=limit,
        alpha=noise,
        level=level,
        seed=question.seed,
    )
    if question.number is not None:
        shift, beside_noise = (
            shift_of_runs(before, after, alpha=alpha)
            if sizes
            else location(before, after, alpha=alpha, seed=question.seed)
            for alpha in (level, noise)
        )
        sure = beside_noise.low > 0 or beside_noise.high < 0
    units = (_most(base), _most(head))
    seen = Seen(
        state=State.INCONCLUSIVE,
        excess=excess,
        shift=shift,
        sure=sure,
        tolerance=limit,
        mean=mean,
        units=units,
        by_run=sizes is not None,
        needed=None,
    )
    state = _state(seen, question.worse)
    return replace(seen, state=state, needed=_needed(seen, noise) if state is State.INCONCLUSIVE else None)


def _units(answers: Answers, size: int | None) -> Units:
    """Each answer alone, or ``size`` successive ones as a run; a run that lacks one is None."""
    found: Units = {}
    for prompt, given in answers.items():
        if size is None:
            runs: list[tuple[Any, ...]] = [(answer,) for answer in given if answer is not None]
        else:
            runs = [tuple(given[start : start + size]) for start in range(0, len(given) - size + 1, size)]
        found[prompt] = [None if None in run else run for run in runs[:MOST_UNITS]]
    return found


def _numbers(units: Units, number: Callable[[Any], float]) -> dict[str, list[Any]]:
    return {
        prompt: [None if unit is None else fmean(map(number, unit)) for unit in given]
        for prompt, given in units.items()
    }


def _lifted(distance: Callable[[Any, Any], float]) -> Callable[[Any, Any], float]:
    """Between two runs: the mean over pairs of their answers."""

    def between(left: tuple[Any, ...], right: tuple[Any, ...]) -> float:
        if len(left) == len(right) == 1:
            return distance(left[0], right[0])
        return fmean(distance(a, b) for a, b in product(left, right))

    return between


def _most(units: Units) -> int:
    return max(map(len, units.values()), default=0)


def _state(seen: Seen, worse: Worse) -> State:
    """A distance has no direction: its change counts as one for the better where the shift's centre does."""
    excess, shift = seen.excess, seen.shift
    better = shift is not None and (shift.estimate < 0 if worse == "up" else shift.estimate > 0)
    better = better and worse != "either"
    if seen.moved or excess.state == "changed":
        return State.IMPROVED if better else State.REGRESSED
    no_worse = shift is None or (
        (worse == "down" or shift.high <= seen.within) and (worse == "up" or shift.low >= -seen.within)
    )
    return State.PASS if no_worse and excess.state == "same" else State.INCONCLUSIVE


def _needed(seen: Seen, noise: float) -> int | None:
    """Answers (or runs) of each arm at which the intervals, which shrink with their root, would decide."""
    here = min(seen.units)
    if seen.by_run and here < runs_needed(noise):
        return runs_needed(noise)
    within, shift = seen.within, seen.shift
    undecided = [(seen.excess.excess, *seen.excess.interval)] if seen.excess.interval[1] > within else []
    if shift is not None and max(-shift.low, shift.high) > within:
        undecided.append((abs(shift.estimate), shift.low, shift.high))
    factor = 1.0
    for centre, low, high in undecided:
        room, half = max(within - centre, centre - seen.tolerance), (high - low) / 2
        if room <= 0 or half > room * MOST_MORE**0.5:
            return None
        factor = max(factor, (half / room) ** 2)
    return max(ceil(here * factor), here + 1)
