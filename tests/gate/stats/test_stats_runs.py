"""Answers of whole runs: what one process answers is of one piece."""

from itertools import product

import numpy as np
import pytest

from servegate.stats.distributions import absolute, compare, unequal
from servegate.stats.launches import InvalidSamplesError
from servegate.stats.runs import compare_runs, runs_needed, shift_of_runs

Runs = dict[str, list[float | None]]
RULE = {"tolerance": 5.0, "alpha": 0.001, "level": 0.001, "seed": 1}


def runs(rng: np.random.Generator, number: int, prompts: int = 20, sd: float = 20.0) -> Runs:
    return {f"p{k}": (100 + rng.normal(0, sd, number)).tolist() for k in range(prompts)}


def test_runs_that_vary_as_before_are_the_same() -> None:
    rng = np.random.default_rng(1)
    result = compare_runs(runs(rng, 8), runs(rng, 7), absolute, **RULE)
    assert (result.state, result.prompts, result.unmatched) == ("same", 20, ())
    assert result.floor == pytest.approx(2 * 20 / np.sqrt(np.pi), rel=0.1)


def test_half_of_the_answers_empty_with_the_same_mean_is_a_change() -> None:
    rng = np.random.default_rng(2)
    head = {f"p{k}": rng.choice([0.0, 200.0], 7).tolist() for k in range(20)}
    result = compare_runs(runs(rng, 8), head, absolute, **RULE)
    assert result.state == "changed"
    assert result.interval[0] > 20


def test_processes_that_pick_one_of_two_modes_are_not_called_a_change() -> None:
    """Answers repeat inside a run and depend on its start: relabelled one by one they look like a change."""
    modes = {"base": [0, 0, 0, 1, 0, 0, 1, 0], "head": [1, 0, 1, 1, 0, 1, 1]}
    base, head = ({f"p{k}": [100.0 + 30 * mode for mode in modes[arm]] for k in range(20)} for arm in modes)
    assert compare(base, head, absolute, **RULE | {"tolerance": 1e-6}).state == "changed"
    assert compare_runs(base, head, absolute, **RULE | {"tolerance": 1e-6}).state == "inconclusive"


def test_the_p_value_of_small_cases_is_the_brute_force_one() -> None:
    rng = np.random.default_rng(4)
    base, head = runs(rng, 3, prompts=4), runs(rng, 3, prompts=4)
    answers = np.array([[*base[p], *head[p]] for p in base], dtype=float)

    def excess(in_head: tuple[int, ...]) -> float:
        pairs = [(i, j) for i, j in product(range(6), repeat=2) if i != j]
        gap = {(i, j): np.abs(answers[:, i] - answers[:, j]).mean() for i, j in pairs}
        between = np.mean([gap[i, j] for i, j in pairs if i in in_head and j not in in_head])
        inside = [
            np.mean([gap[i, j] for i, j in pairs if (i in in_head) == (j in in_head) == arm])
            for arm in (True, False)
        ]
        return float(between - sum(inside) / 2)

    choices = [c for c in product(range(6), repeat=3) if c[0] < c[1] < c[2]]
    observed = excess((3, 4, 5))
    expected = np.mean([excess(choice) >= observed - 1e-9 for choice in choices])
    result = compare_runs(base, head, absolute, **RULE)
    assert result.excess == pytest.approx(observed)
    assert result.p_value == pytest.approx(expected)


def test_equal_engines_are_called_changed_no_more_often_than_stated() -> None:
    rng = np.random.default_rng(5)
    rule = {"tolerance": 1e-9, "alpha": 0.05, "level": 0.05}
    called = sum(
        compare_runs(runs(rng, 6, 5), runs(rng, 6, 5), absolute, **rule, seed=s).p_value <= 0.05
        for s in range(200)
    )
    assert called <= 18  # 10 expected


def test_a_prompt_that_one_run_did_not_answer_is_left_out_and_named() -> None:
    rng = np.random.default_rng(6)
    base, head = runs(rng, 8), runs(rng, 7)
    base["p3"][2] = None
    head["new"] = [1.0] * 7
    result = compare_runs(base, head, absolute, **RULE)
    assert (result.prompts, result.unmatched) == (19, ("new", "p3"))
    assert shift_of_runs(base, head, alpha=0.001).low < 0


@pytest.mark.parametrize("head", [{}, {"p0": [1.0]}, {"p0": [None, None]}])
def test_nothing_in_common_compares_nothing_and_says_so(head: Runs) -> None:
    with pytest.raises(InvalidSamplesError, match="no prompt"):
        compare_runs({"p0": [1.0, 2.0]}, head, absolute, **RULE)
    if len(head.get("p0", [])) != 1:
        with pytest.raises(InvalidSamplesError):
            shift_of_runs({"p0": [1.0, 2.0]}, head, alpha=0.001)


def test_few_runs_are_inconclusive_however_far_apart() -> None:
    base, head = {"a": ["x"] * 4, "b": ["x"] * 4}, {"a": ["y"] * 3, "b": ["y"] * 3}
    result = compare_runs(base, head, unequal, **RULE)
    assert (result.state, result.p_value) == ("inconclusive", pytest.approx(1 / 35))
    assert [runs_needed(alpha) for alpha in (0.05, 0.0025, 0.005 / 6)] == [3, 6, 7]


def test_the_shift_is_that_of_run_means() -> None:
    rng = np.random.default_rng(7)
    base = runs(rng, 8)
    head = {prompt: [length + 30 for length in answers] for prompt, answers in runs(rng, 7).items()}
    shift = shift_of_runs(base, head, alpha=0.001)
    assert 10 < shift.low < 30 < shift.high < 50
