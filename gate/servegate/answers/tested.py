"""Which answers a metric speaks of, and how far its rule lets them move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from statistics import fmean
from typing import Any, Final

from servegate.answers.evidence import Answers, Question, Seen, Worse, examine
from servegate.answers.words import details, empties, quantiles, reason, shares
from servegate.facts import AnswerFacts, WorkloadFacts
from servegate.metrics.matching import Matching, match_prompts
from servegate.stats.distributions import absolute, mean_gap, unequal
from servegate.stats.launches import InvalidSamplesError
from servegate.suite.schema import Rule
from servegate.verdict import Evidence, Row, State


@dataclass(frozen=True)
class Varying:
    """Both arms of a workload whose answers vary."""

    old: WorkloadFacts
    new: WorkloadFacts
    matching: Matching

    @classmethod
    def of(cls, old: WorkloadFacts, new: WorkloadFacts) -> Varying:
        return cls(old, new, match_prompts(old.prompts, new.prompts))

    @property
    def rounds_a_run(self) -> tuple[int, int] | None:
        """Where there are several processes of both arms."""
        old, new = self.old.rounds_a_run, self.new.rounds_a_run
        return (old, new) if old and new else None


@dataclass(frozen=True)
class Tested:
    """A metric of answers."""

    answers: Callable[[Varying], tuple[Answers, Answers]]
    unit: str
    """Of one answer."""
    distance: Callable[[Any, Any], float] = absolute
    number: Callable[[Any], float] | None = float
    worse: Worse = "either"
    in_all: bool = False
    """The rule's absolute values are for all prompts together."""
    from_zero: bool = False
    """Base stands at zero by definition, so that ``max`` says how far head may be from it."""
    remedy: str = "a higher `repeat`, and a baseline made with it, or `servegate ab`"

    @property
    def tests(self) -> int:
        """One of the excess, and one for each way in which a shift may be bad."""
        if self.number is None:
            return 1
        return 3 if self.worse == "either" else 2

    def applies(self, rule: Rule | None) -> bool:
        if rule is None:
            return False
        return rule.change is not None or bool(rule.equal) or (self.from_zero and rule.max is not None)

    def tolerance(self, rule: Rule | None, mean: float, prompts: int) -> float:
        """In the unit of one answer, where base's mean is ``mean``."""
        if rule is None:
            return 0.0
        limit = max(float(rule.floor or 0.0), float(rule.max or 0.0) if self.from_zero else 0.0)
        return max((rule.change or 0.0) * mean, limit / prompts if self.in_all else limit)

    def stands(self, row: Row, rule: Rule | None) -> bool:
        """Is the row right whatever varies: every logprob within its limit, or a value beyond a limit of its
        own?"""
        if self.distance is mean_gap:
            return row.state is State.PASS
        if rule is None or self.from_zero or not isinstance(row.head, float):
            return False
        above = rule.max is not None and row.head > rule.max
        return above or (rule.min is not None and row.head < rule.min)

    def judged(self, row: Row, rule: Rule | None, varying: Varying, tests: int, seed: int) -> Row:
        """The row by the two tests."""
        base, head = self.answers(varying)
        question = Question(
            base, head, self.distance, self.number, self.worse, self._sizes(varying, head), tests, seed
        )
        try:
            seen = examine(question, lambda mean, prompts: self.tolerance(rule, mean, prompts))
        except InvalidSamplesError as error:
            why = f"the target does not repeat itself, and {error}: {self.remedy}"
            return row.model_copy(update={"state": State.INCONCLUSIVE, "reason": why, "change": None})
        of_lengths = self.unit == "tokens"
        shown = {} if self.number else {"base": shares(base), "head": shares(head)}
        told = [*details(seen, self.unit), *([quantiles(base, head)] if of_lengths else [])]
        return row.model_copy(
            update={
                "state": seen.state,
                "reason": reason(seen, self.unit, empties(base, head) if of_lengths else None),
                "change": self._change(row, seen),
                "detail": (*told, *row.detail),
                "evidence": self._evidence(seen),
                **shown,
            }
        )

    def _sizes(self, varying: Varying, head: Answers) -> tuple[int, int] | None:
        """Entries of either arm that are of one run."""
        sizes = varying.rounds_a_run
        if sizes is None or self.distance is not mean_gap:
            return sizes
        runs = max((len(a.lengths) for a in varying.new.answers.values()), default=0) // sizes[1]
        scores = max(map(len, head.values()), default=0)
        return (max(scores // max(runs, 1), 1),) * 2

    def _evidence(self, seen: Seen) -> Evidence | None:
        """Of lengths, whose shift is a share of base's."""
        if seen.shift is None or seen.mean <= 0 or self.unit != "tokens":
            return None
        return Evidence(
            unit="runs" if seen.by_run else "answers a prompt",
            interval=(seen.shift.low / seen.mean, seen.shift.high / seen.mean)
            if isfinite(seen.shift.low)
            else None,
            blocks=min(seen.units),
            launches=min(seen.units) if seen.by_run else 1,
            noise_floor=None,  # that of one answer is in the detail; this one is of means
            smallest_detectable=None,
            blocks_needed=seen.needed,
        )

    def _change(self, row: Row, seen: Seen) -> float | None:
        """Relative to base; None where the mean is not what changed: the headline then tells the reason."""
        if seen.shift is None or seen.mean <= 0 or self.unit == "nat":
            return row.change
        if seen.state is State.REGRESSED and not seen.moved:
            return None
        return seen.shift.estimate / seen.mean


def _of_rounds(of: Callable[[AnswerFacts], Sequence[Any]]) -> Callable[[Varying], tuple[Answers, Answers]]:
    def answers(varying: Varying) -> tuple[Answers, Answers]:
        base, head = varying.old.answers, varying.new.answers
        return (
            {b: of(base[b]) for b, _ in varying.matching.pairs if b in base},
            {b: of(head[h]) for b, h in varying.matching.pairs if h in head},
        )

    return answers


def _empty(answers: AnswerFacts) -> Sequence[float | None]:
    return [None if length is None else float(length == 0) for length in answers.lengths]


def _scores(varying: Varying) -> tuple[Answers, Answers]:
    """Scores of base's completions. Not what base gave as it generated: other arithmetic, other noise."""
    base: dict[str, Sequence[Any]] = {}
    head: dict[str, Sequence[Any]] = {}
    for old_id, new_id in varying.matching.pairs:
        old = varying.old.forced.get(old_id)
        new = varying.new.forced.get(new_id) or varying.new.forced.get(old_id)
        if old is not None and new is not None and old.completion_ids == new.completion_ids:
            base[old_id], head[old_id] = (old.logprobs, *old.again), (new.logprobs, *new.again)
    return base, head


def _passes(varying: Varying) -> tuple[Answers, Answers]:
    """By prompt and check, whether each answer passed: 1 or 0."""
    names = {head: base for base, head in varying.matching.pairs}
    arms = [
        {(renamed.get(fact.prompt_id, fact.prompt_id), fact.check): fact.passes for fact in facts.quality}
        for facts, renamed in ((varying.old, {}), (varying.new, names))
    ]
    base, head = (
        {
            f"{prompt}: {check}": [float(p) for p in passes]
            for (prompt, check), passes in arm.items()
            if passes
        }
        for arm in arms
    )
    return base, head


_LENGTHS: Final = Tested(_of_rounds(lambda answers: answers.lengths), "tokens")
_SCORES: Final = Tested(
    _scores,
    "nat",
    distance=mean_gap,
    number=fmean,
    from_zero=True,
    remedy="`servegate ab` lets base score its own completions as often as head",
)
_QUALITY: Final = Tested(_passes, "share", worse="down")

TESTED: Final[dict[str, Tested]] = {
    "completion_tokens": replace(_LENGTHS, in_all=True),
    "completion_tokens_mean": _LENGTHS,
    "finish_reasons": Tested(
        _of_rounds(lambda answers: answers.finish_reasons),
        "share",
        distance=unequal,
        number=None,
        in_all=True,
        from_zero=True,
    ),
    "empty_answers": Tested(_of_rounds(_empty), "share", worse="up"),
    "logprob_delta": _SCORES,
    "logprob_delta_mean": _SCORES,
    "quality_lost": replace(_QUALITY, in_all=True, from_zero=True),
    "quality_pass_rate": _QUALITY,
}
