"""The rule for arms in turn, on simulated rows: after every second launch, until a row is decided."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibration.noise import AGAIN, BASE, HEAD, LAUNCHES, PAIRS, ROWS, Blocks, Noise, chunks, launches
from servegate.stats.aa import noise_floor, under_floor
from servegate.stats.interval import interval
from servegate.stats.launches import Launch, Layout
from servegate.stats.paired import Limit, decide
from servegate.stats.sequential import Plan

LOOKS = (4, 6, 8, 10, 12)
PLAN = Plan(rows=ROWS, launches=LAUNCHES)
LIMIT = Limit(tolerance=0.05)
CHECKED = 120  # rows of the first chunk that are judged by `decide` itself


@dataclass(frozen=True)
class Outcome:
    """States of simulated rows, with the blocks each took and the blocks that inconclusive ones asked for."""

    states: npt.NDArray[np.str_]
    blocks: npt.NDArray[np.int_]
    needed: list[int]

    def share(self, *states: str) -> float:
        return float(np.isin(self.states, states).mean())

    def suites(self, state: str) -> float:
        return float((self.states.reshape(-1, ROWS) == state).any(axis=1).mean())

    def found_by(self, launch: int) -> float:
        return float(((self.states == "regressed") & (self.blocks <= launch * PAIRS)).mean())


def judge(blocks: Blocks, row: int) -> tuple[str, int, int | None]:
    series: list[Launch] = []
    same: list[Launch] = []
    for count in LOOKS:
        series += launches(blocks, row, HEAD, len(series), count)
        same += launches(blocks, row, AGAIN, len(same), count)
        decision = decide(series, LIMIT, PLAN, same)
        if decision.state in ("regressed", "improved"):
            decision = under_floor(decision, noise_floor(same, LIMIT, PLAN))
        if decision.state != "inconclusive":
            return decision.state, count * PAIRS, None
    return decision.state, LAUNCHES * PAIRS, decision.blocks_needed


def judge_all(blocks: Blocks) -> tuple[npt.NDArray[np.str_], npt.NDArray[np.int_]]:
    """What `judge` says of every row, by the same `interval` on all rows at once: forty times faster."""
    times = blocks.times
    ratios, again = (times[:, :, arm] - times[:, :, BASE] for arm in (HEAD, AGAIN))
    states = np.full(len(ratios), "inconclusive")
    used = np.full(len(ratios), LAUNCHES * PAIRS)
    live = np.arange(len(ratios))
    for count in LOOKS:
        level = PLAN.level(count)
        if level is None or not live.size:
            break
        number = np.arange(count).repeat(PAIRS)
        layout = Layout(number, np.where(number % 2 == 0, 1.0, -1.0))
        same = again[live, :count].reshape(live.size, -1)
        found = interval(ratios[live, :count].reshape(live.size, -1), layout, level, (same, layout))
        floor = interval(same, layout, level)
        believed = (floor.low <= LIMIT.log) & (floor.high >= -LIMIT.log) & (count >= PLAN.first_claim)
        worse, better = found.low > LIMIT.log, found.high < -LIMIT.log
        passed = ~better & (found.high < LIMIT.log)
        states[live] = np.select(
            [worse & believed, better & believed, passed], ["regressed", "improved", "pass"], "inconclusive"
        )
        decided = states[live] != "inconclusive"
        used[live[decided]] = count * PAIRS
        live = live[~decided]
    return states, used


def ours(noise: Noise, seed: int, rows: int, change: float) -> Outcome:
    """All rows judged; the first ones also by `decide` itself, which must agree."""
    states, used, needed = [], [], []
    for turn, blocks in enumerate(chunks(noise, seed, rows, change)):
        singly = range(
            len(blocks.times) if blocks.marks is not None else min(CHECKED, len(blocks.times)) * (turn == 0)
        )
        judged = [judge(blocks, row) for row in singly]
        needed += [more for _, _, more in judged if more is not None]
        if blocks.marks is not None:
            states.append(np.array([state for state, _, _ in judged]))
            used.append(np.array([count for _, count, _ in judged]))
            continue
        said, took = judge_all(blocks)
        if [state for state, _, _ in judged] != said[: len(judged)].tolist():
            raise RuntimeError(f"{noise.name}: the fast path and `decide` disagree")
        states.append(said)
        used.append(took)
    return Outcome(np.concatenate(states), np.concatenate(used), needed)
