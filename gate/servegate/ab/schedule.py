"""Who runs next and for how long: decided in integers, with no process and no clock.

Every launch starts three processes: base, head, and base again. A block is one round of each. Base runs in
the middle, so that both of its pairs, with head and with itself, are neighbours in time::

    block 0   head  base  again
    block 1   again base  head
    block 2   head  base  again      ...

Each pair is taken in both orders (A B B A), which cancels a linear drift. A launch has a bias of its own that
no interleaving removes, so launches come in twos with the start order turned round.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final, Literal

Role = Literal["base", "head", "again"]
ROLES: Final[tuple[Role, ...]] = ("base", "head", "again")

LAUNCHES: Final = 12
"""Of a run whose budget allows them; what the decision rule is calibrated for."""
FEWEST_LAUNCHES: Final = 2
DEFAULT_BUDGET: Final = 300_000_000_000
"""ns."""
MOST_BLOCKS: Final = 8
"""In one launch, for each default budget: more tell little, since they share the launch's luck."""

WARM: Final = 0.05
"""A round that is faster than the one before by more than this share: the arm is still warming up."""
MOST_WARM_UPS: Final = 5

_OUTWARD: Final[tuple[Role, ...]] = ("head", "base", "again")


def block_order(block: int) -> tuple[Role, ...]:
    """The arms of a launch's ``block``-th block, in the order in which they run."""
    return _OUTWARD if block % 2 == 0 else _OUTWARD[::-1]


def start_order(launch: int) -> tuple[Role, ...]:
    """The arms of a launch in the order in which their processes start: head first in every other one."""
    return _OUTWARD if launch % 2 == 0 else _OUTWARD[::-1]


def head_first(launch: int) -> bool:
    return start_order(launch).index("head") == 0


def is_warm(walls: Sequence[int], earlier: Sequence[int]) -> bool:
    """Do warm-up rounds of these wall times no longer get faster?

    Or is the last one as fast as those that ended warm-up in ``earlier`` launches of the arm.
    """
    if walls and earlier and walls[-1] <= median(earlier) * (1 + WARM):
        return True
    return len(walls) > 1 and walls[-1] >= walls[-2] * (1 - WARM)


def plan_launches(budget: int, start: int, block: int, least_blocks: int, asked: int | None) -> int:
    """How many launches to plan, once the first has shown what it costs; an even number, orders balanced.

    ``asked`` wins. Otherwise as many as the budget holds with ``least_blocks`` each, 2 to 12. The plan
    follows from durations alone, never from what the blocks say of head.
    """
    if asked is not None:
        return asked
    affordable = budget // max(start + least_blocks * block, 1)
    return max(FEWEST_LAUNCHES, min(LAUNCHES, affordable - affordable % 2))


def blocks_in_launch(
    budget: int, remaining: int, launches_left: int, start: int, block: int, least_blocks: int
) -> int:
    """Blocks of a launch that is about to start: its share of what remains of the budget, even and capped."""
    share = (remaining // max(launches_left, 1) - start) // max(block, 1)
    most = MOST_BLOCKS * max(1, budget // DEFAULT_BUDGET)
    return max(least_blocks, min(most, share - share % 2))


def is_look(launches: int, planned: int) -> bool:
    """Looks come where both start orders are balanced, and at the end."""
    return launches % 2 == 0 or launches >= planned
