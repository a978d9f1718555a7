"""Two runs that were not measured in turn: the interval, its level, and what it cannot claim."""

from __future__ import annotations

from math import exp, inf, log, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servegate.stats import unpaired
from servegate.stats.launches import InvalidSamplesError
from servegate.stats.paired import Limit
from servegate.stats.unpaired import EQUAL, decide, in_blocks, interval

LEVEL = 0.05 / 6
LIMIT = Limit(0.10)
ROUNDS = st.lists(st.floats(0.5, 2.0), min_size=3, max_size=12)


@given(ROUNDS, ROUNDS, st.floats(1e-3, 1e3))
def test_the_unit_of_the_metric_does_not_matter(base: list[float], head: list[float], unit: float) -> None:
    here = decide(base, head, LIMIT, LEVEL)
    there = decide([unit * x for x in base], [unit * x for x in head], LIMIT, LEVEL)
    assert there.interval == pytest.approx(here.interval, rel=1e-6, abs=1e-9)


@given(ROUNDS, ROUNDS)
def test_base_and_head_change_places_with_the_sign(base: list[float], head: list[float]) -> None:
    there, back = (decide(*arms, LIMIT, LEVEL) for arms in ((base, head), (head, base)))
    assert there.interval is not None
    assert back.interval is not None
    low, high = (1 / (1 + end) - 1 for end in there.interval)
    assert back.interval == pytest.approx((high, low), rel=1e-6, abs=1e-9)


@given(ROUNDS, ROUNDS, st.randoms(use_true_random=False))
def test_the_order_of_rounds_does_not_matter(base: list[float], head: list[float], random: object) -> None:
    shuffled = [*head]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = decide(base, head, LIMIT, LEVEL), decide(base, shuffled, LIMIT, LEVEL)
    assert (one.estimate, one.interval) == (other.estimate, other.interval)


@given(ROUNDS, ROUNDS, st.floats(0, 2))
def test_a_slower_head_is_never_judged_better(base: list[float], head: list[float], more: float) -> None:
    rank = {"improved": 0, "pass": 1, "inconclusive": 1.5, "regressed": 2}
    slower = decide(base, [exp(more) * x for x in head], LIMIT, LEVEL).state
    judged = decide(base, head, LIMIT, LEVEL).state
    if "inconclusive" not in (judged, slower):
        assert rank[judged] <= rank[slower]


@pytest.mark.parametrize("rounds", [3, 4, 5, 8, 12, 20])
@pytest.mark.parametrize("level", [0.05, 0.05 / 6])
def test_each_end_is_wrong_no_more_often_than_its_level(rounds: int, level: float) -> None:
    """Of the round part alone, with normal rounds; 12 and 20 rounds reach the exact one."""
    rng = np.random.default_rng(rounds)
    base, head = rng.normal(0, 0.3, (2, 20_000, rounds))
    found = interval(base, head, level, run_sd=0)
    rounds_alone = np.sqrt(np.maximum((found.centre - found.low) ** 2 - found.run_part**2, 0))
    wrong = float((found.centre - rounds_alone > 0).mean())
    assert wrong <= level + 3 * np.sqrt(level / 20_000)


def test_the_luck_of_a_run_is_in_the_interval_however_many_rounds_there_are() -> None:
    rng = np.random.default_rng(0)
    rows, rounds = 20_000, 10
    luck = rng.normal(0, unpaired.RUN_SD, (2, rows, 1))
    base, head = luck + rng.normal(0, 0.01, (2, rows, rounds))
    assert float((interval(base, head, LEVEL).low > 0).mean()) <= LEVEL
    assert float((interval(base, head, LEVEL, run_sd=0).low > 0).mean()) > 20 * LEVEL


@pytest.mark.parametrize("rounds", [10, 12, 20])
def test_a_fifth_of_one_runs_rounds_cannot_move_an_end_far(rounds: int) -> None:
    """poseidon-http-server#129: two of ten at 1.8 times; here at a thousand times."""
    clean = np.linspace(-0.03, 0.03, rounds)
    poisoned = clean + np.where(np.arange(rounds) < rounds // 5, log(1000), 0)
    quiet, loud = interval(clean, clean, LEVEL), interval(clean, poisoned, LEVEL)
    assert loud.low == pytest.approx(quiet.low, abs=0.03)
    assert loud.high == pytest.approx(quiet.high, abs=0.03)


def test_without_the_guard_the_exact_end_is_the_poison(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpaired, "POISONED", 0.0)
    clean = np.linspace(-0.03, 0.03, 10)
    assert interval(clean, clean + np.where(np.arange(10) < 2, log(1000), 0), LEVEL).high > 1


@pytest.mark.parametrize("bad", [0.0, -1.0, nan, inf])
def test_what_no_change_can_be_computed_from_is_named(bad: float) -> None:
    with pytest.raises(InvalidSamplesError, match=r"head round 3 is"):
        decide([1, 1, 1], [1, 1, bad], LIMIT, LEVEL)
    with pytest.raises(InvalidSamplesError, match="base has no rounds"):
        decide([], [1, 1, 1], LIMIT, LEVEL)


def test_fewer_than_three_rounds_claim_nothing() -> None:
    found = decide([1, 1.01, 0.99], [9, 9], LIMIT, LEVEL)
    assert (found.state, found.interval, found.rounds_needed) == ("inconclusive", None, 3)
    assert found.reason == "head has 2 of the 3 rounds that a run needs to be judged"
    assert found.estimate == pytest.approx(8)


def test_equal_rounds_are_a_copy() -> None:
    assert decide([1, 2, 3], [1, 2, 3], Limit(9), LEVEL).reason == EQUAL


def test_the_rounds_that_it_asks_for_decide() -> None:
    base, head = ([factor * x for x in (0.97, 1.0, 1.03)] for factor in (1, 1.5))
    first = decide(base, head, LIMIT, LEVEL)
    assert first.state == "inconclusive"
    assert first.rounds_needed is not None
    more = -(-first.rounds_needed // 3)
    assert decide(base * more, head * more, LIMIT, LEVEL).state == "regressed"


def test_where_the_luck_of_runs_is_in_the_way_no_rounds_help() -> None:
    base, head = ([factor * x for x in (0.97, 1.0, 1.03)] for factor in (1, 1.2))
    found = decide(base, head, LIMIT, LEVEL)
    assert (found.state, found.rounds_needed) == ("inconclusive", None)
    assert found.smallest_detectable is not None
    assert found.smallest_detectable > 0.2


def test_many_rounds_are_put_together() -> None:
    assert in_blocks([1, 2, 3], 5) == (1, 2, 3)
    assert in_blocks([1, 1, 1, 5, 5, 5, 9, 9], 3) == (1, 5, 9)
    rng = np.random.default_rng(1)
    found = decide(*rng.lognormal(0, 0.1, (2, 5_000)).tolist(), LIMIT, LEVEL)
    assert found.rounds == (unpaired.MOST_ROUNDS, unpaired.MOST_ROUNDS)
