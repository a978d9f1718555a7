"""The loop on fake arms and a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from paired_fakes import QUIET, Lab

from servegate.ab.protocol import TimedWorkload
from servegate.ab.record import LaunchRecord, MachineLoad
from servegate.ab.runner import Budget, TimedPart, run_timed

LATENCY = TimedWorkload(name="latency", warmup=1, repeat=1)


def quiet_meter(pid: int) -> Callable[[], MachineLoad]:
    return lambda: QUIET


def measure(
    lab: Lab,
    budget: Budget,
    decided: Callable[[Sequence[LaunchRecord], int], bool] = lambda launches, planned: False,
    workloads: Sequence[TimedWorkload] = (LATENCY,),
) -> TimedPart:
    return run_timed(
        workloads, lab.start, decided, lab.clock, quiet_meter, budget, lambda stage, done, total: None
    )


def test_a_launch_starts_warms_measures_and_closes_every_arm() -> None:
    lab = Lab()
    part = measure(lab, Budget(1, launches=2))
    assert lab.log[:3] == ["start head", "start base", "start again"]
    assert lab.log[3:9] == [f"{role} latency" for role in ("head", "head", "base", "base", "again", "again")]
    assert lab.log[9:12] == ["head latency", "base latency", "again latency"]
    assert [line for line in lab.log if line.startswith("close")][:3] == [
        "close head",
        "close base",
        "close again",
    ]
    assert part.ended == "budget spent"


def test_blocks_run_in_turn_and_the_start_order_is_swapped() -> None:
    lab = Lab()
    part = measure(lab, Budget(100_000, launches=2))
    assert [launch.started[0] for launch in part.launches] == ["head", "again"]
    assert [launch.head_first for launch in part.launches] == [True, False]
    order = [block.role for block in part.launches[0].blocks]
    assert order[:6] == ["head", "base", "again", "again", "base", "head"]
    assert part.ended == "launches done"


def test_it_stops_when_decided_and_asks_only_at_balanced_looks() -> None:
    asked: list[int] = []

    def decided(launches: Sequence[LaunchRecord], planned: int) -> bool:
        asked.append(len(launches))
        return len(launches) == 4

    part = measure(Lab(), Budget(1_000_000), decided)
    assert asked == [2, 4]
    assert (len(part.launches), part.planned, part.ended) == (4, 12, "decided")


def test_the_budget_ends_it_and_is_not_passed_by_more_than_what_had_begun() -> None:
    lab = Lab()
    part = measure(lab, Budget(12_000, launches=12))
    assert part.ended == "budget spent"
    assert (len(part.launches), part.planned) == (3, 12)
    assert lab.clock.now < 12_000 + 300


def test_repeat_says_how_many_blocks_a_launch_needs_at_least() -> None:
    part = measure(
        Lab(), Budget(1, launches=2), workloads=[TimedWorkload(name="latency", warmup=1, repeat=3)]
    )
    assert len({block.block for block in part.launches[0].blocks}) == 1  # the budget was gone
    part = measure(
        Lab(), Budget(9_000, launches=2), workloads=[TimedWorkload(name="latency", warmup=1, repeat=3)]
    )
    assert all(len({block.block for block in launch.blocks}) >= 3 for launch in part.launches)


def test_warm_up_goes_on_until_rounds_stop_getting_faster() -> None:
    lab = Lab(wall_ns=lambda number: [1000, 500, 100][number] if number < 3 else 100)
    part = measure(lab, Budget(100_000, launches=2))
    assert part.launches[0].warmups[0].walls_ns == (1000, 500, 100, 100)
    assert part.launches[0].warmups[0].stable


def test_warm_up_is_bounded_and_says_that_it_did_not_settle() -> None:
    lab = Lab(wall_ns=lambda number: 10_000 // (number + 1))
    part = measure(lab, Budget(1, launches=2))
    assert len(part.launches[0].warmups[0].walls_ns) == 5
    assert not part.launches[0].warmups[0].stable


@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_ctrl_c_closes_all_arms_and_keeps_the_blocks_that_ran(at: int) -> None:
    lab = Lab(interrupt_at=at)
    part = measure(lab, Budget(100_000, launches=2))
    assert part.ended == "interrupted"
    assert {line for line in lab.log if line.startswith("close")} == {
        "close base",
        "close head",
        "close again",
    }
    rounds = [block.role for launch in part.launches for block in launch.blocks]
    assert rounds == ["head", "base", "again", "again"][: {0: 0, 1: 0, 2: 1, 3: 4}[at]]


def test_nothing_is_started_where_nothing_is_timed() -> None:
    lab = Lab()
    part = measure(lab, Budget(1000), workloads=())
    assert part.ended == "nothing is timed"
    assert not lab.log


def test_an_arm_that_fails_to_start_leaves_none_running() -> None:
    lab = Lab()

    def start(role: str) -> object:
        if role == "again":
            raise RuntimeError("no room")
        return lab.start(role)  # type: ignore[arg-type]

    with pytest.raises(RuntimeError, match="no room"):
        run_timed(
            [LATENCY],
            start,  # type: ignore[arg-type]
            lambda launches, planned: False,
            lab.clock,
            quiet_meter,
            Budget(1000),
            lambda stage, done, total: None,
        )
    assert lab.log == ["start head", "start base", "close head", "close base"]
