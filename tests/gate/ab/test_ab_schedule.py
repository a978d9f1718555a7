"""The schedule is integers: who runs next, how many launches and blocks a budget holds."""

from __future__ import annotations

import pytest

from servegate.ab import schedule
from servegate.ab.schedule import ROLES


@pytest.mark.parametrize("other", ["head", "again"])
def test_both_pairs_are_neighbours_in_time_and_taken_in_both_orders(other: str) -> None:
    for block in range(6):
        order = schedule.block_order(block)
        assert abs(order.index("base") - order.index(other)) == 1  # type: ignore[arg-type]
    first = [schedule.block_order(b).index(other) < schedule.block_order(b).index("base") for b in range(6)]  # type: ignore[arg-type]
    assert sum(first) == 3


def test_every_block_runs_each_arm_once() -> None:
    assert all(set(schedule.block_order(block)) == set(ROLES) for block in range(4))


def test_start_orders_alternate() -> None:
    assert [schedule.head_first(launch) for launch in range(4)] == [True, False, True, False]
    assert all(set(schedule.start_order(launch)) == set(ROLES) for launch in range(2))


@pytest.mark.parametrize(
    ("walls", "earlier", "warm"),
    [
        ([], [], False),
        ([100], [], False),  # one round has nothing to be held against
        ([200, 100], [], False),  # still twice as fast as before
        ([200, 100, 97], [], True),
        ([100, 120], [], True),  # slower is noise, not warming up
        ([100], [100, 100], True),
        ([105], [100, 100], True),
        ([106], [100, 100], False),
        ([150, 148], [100, 100], True),  # the machine is slower than it was, and that is all
    ],
)
def test_warm_up_ends_when_rounds_stop_getting_faster(
    walls: list[int], earlier: list[int], warm: bool
) -> None:
    assert schedule.is_warm(walls, earlier) is warm


@pytest.mark.parametrize(
    ("budget", "asked", "planned"),
    [
        (0, None, 2),
        (1_000, None, 2),
        (5_000, None, 4),  # five would fit: orders stay balanced
        (100_000, None, 12),
        (100, 7, 7),
    ],
)
def test_launches_are_planned_from_what_one_costs(budget: int, asked: int | None, planned: int) -> None:
    assert schedule.plan_launches(budget, start=800, block=100, least_blocks=2, asked=asked) == planned


@pytest.mark.parametrize(
    ("remaining", "blocks"),
    [(0, 2), (2_000, 2), (2_900, 4), (3_050, 4), (1_000_000, 8)],
)
def test_a_launch_gets_its_share_of_the_budget_in_whole_mirrored_blocks(remaining: int, blocks: int) -> None:
    assert schedule.blocks_in_launch(remaining, remaining, 2, start=1000, block=100, least_blocks=2) == blocks


def test_more_blocks_than_the_cap_are_run_where_a_metric_needs_them() -> None:
    assert schedule.blocks_in_launch(0, 0, 2, start=1000, block=100, least_blocks=10) == 10


def test_a_larger_budget_buys_more_blocks_in_each_launch() -> None:
    twice = 2 * schedule.DEFAULT_BUDGET
    assert schedule.blocks_in_launch(twice, twice, 12, start=0, block=1000, least_blocks=2) == 16


def test_looks_come_with_balanced_orders_and_at_the_end() -> None:
    assert [n for n in range(1, 6) if schedule.is_look(n, 5)] == [2, 4, 5]
