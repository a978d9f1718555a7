"""The rule for two servers that nobody restarts: one start of either, many blocks, one look."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from zlib import crc32

import numpy as np
import numpy.typing as npt

from calibration import noise
from calibration.noise import AGAIN, BASE, CHANGES, CHUNK, HEAD, LAUNCHES, PAIRS, ROWS, Array, Blocks, Rng
from calibration.paired import LIMIT
from calibration.tables import pct, table
from servegate.stats.aa import noise_floor, under_floor
from servegate.stats.interval import interval
from servegate.stats.launches import Launch, Layout
from servegate.stats.paired import decide
from servegate.stats.sequential import Plan

PLAN = Plan(rows=ROWS, launches=1)
CHECKED = 60  # rows of the first chunk that are judged by `decide` itself
States = npt.NDArray[np.str_]


def starts(sd: float) -> Callable[[Rng, int], Array]:
    """What one start adds to a server's log-times, shape (rows, 2); `sd` is that of the ratio of two."""
    return lambda rng, rows: rng.normal(0, sd / np.sqrt(2), (rows, 2))


def modes(rng: Rng, rows: int) -> Array:
    """A start picks one of two modes, 12 % apart, for all rows of its suite."""
    return 0.12 * np.repeat(rng.random((-(-rows // ROWS), 2)) < 0.5, ROWS, axis=0)[:rows]


USUAL = starts(0.007)


@dataclass(frozen=True)
class Servers:
    name: str
    make: Callable[[Rng, int], Blocks]
    start: Callable[[Rng, int], Array] = USUAL


MODELS = (
    Servers("independent log-normal, sd 0.05", noise.independent(0.05)),
    Servers("independent log-normal, sd 0.07", noise.independent(0.07)),
    Servers("bursty contention, which nobody sees", noise.bursts),
    Servers("drift, random walk 0.01 a block", noise.drift),
    Servers("bistable blocks, 12 % apart", noise.two_modes),
    Servers("heavy tails, 2 % of blocks x 1.8", noise.heavy_tails),
    Servers("autocorrelated machine, AR 0.9", noise.machine_memory),
    Servers("autocorrelated arms, AR 0.6", noise.arm_memory),
    Servers("a p95: sd 0.06, a start's sd 0.018", noise.independent(0.06), starts(0.018)),
    Servers("a quiet server: sd 0.01, a start's sd 0.007", noise.independent(0.01)),
    Servers("too noisy: sd 0.15", noise.independent(0.15)),
    Servers("bistable starts, 12 % apart", noise.independent(0.05), modes),
)


@dataclass(frozen=True)
class Judged:
    """States of rows without a change, and of rows with each true change."""

    quiet: States
    found: dict[float, States]

    @property
    def alarms(self) -> float:
        """Share of suites without a change that have a row which is called regressed."""
        return float((self.quiet.reshape(-1, ROWS) == "regressed").any(axis=1).mean())


def measure(number: int, seed: int, suites: int, rows: int) -> Judged:
    servers = MODELS[number]
    return Judged(
        judged(servers, seed, suites * ROWS, 0.0),
        {change: judged(servers, seed, rows, change) for change in CHANGES},
    )


def judged(servers: Servers, seed: int, rows: int, change: float) -> States:
    """All rows judged at once; the first ones also by `decide` itself, which must agree."""
    states = []
    for turn, (head, again) in enumerate(chunks(servers, seed, rows, change)):
        said = judge_all(head, again)
        singly = zip(head[:CHECKED], again[:CHECKED], strict=True) if turn == 0 else ()
        if any(judge(*row) != state for row, state in zip(singly, said, strict=False)):
            raise RuntimeError(f"{servers.name}: the fast path and `decide` disagree")
        states.append(said)
    return np.concatenate(states)


def chunks(servers: Servers, seed: int, rows: int, change: float) -> Iterator[tuple[Array, Array]]:
    """Log-ratios to base of head and of base's second client, shape (rows, blocks) each.

    Both clients of base see one server, and so one start of it.
    """
    rng = np.random.default_rng([seed, crc32(servers.name.encode()), round(1000 * change)])
    for done in range(0, rows, CHUNK):
        size = min(CHUNK, rows - done)
        times = servers.make(rng, size).times
        luck = servers.start(rng, size)
        head, again = ((times[:, :, arm] - times[:, :, BASE]).reshape(size, -1) for arm in (HEAD, AGAIN))
        yield head + (luck[:, 1] - luck[:, 0])[:, None] + np.log1p(change), again


def judge(head: Array, again: Array) -> str:
    series, same = ([Launch(tuple(row.tolist()), head_first=False)] for row in (head, again))
    return under_floor(decide(series, LIMIT, PLAN, same), noise_floor(same, LIMIT, PLAN)).state


def judge_all(head: Array, again: Array) -> States:
    """What `judge` says of every row, by the same `interval` on all rows at once."""
    blocks = head.shape[1]
    layout = Layout(np.zeros(blocks, dtype=np.intp), np.ones(blocks))
    found = interval(head, layout, PLAN.final_level, (again, layout))
    floor = interval(again, layout, PLAN.final_level)
    believed = (floor.low <= LIMIT.log) & (floor.high >= -LIMIT.log)
    worse, better = found.low > LIMIT.log, found.high < -LIMIT.log
    passed = ~better & (found.high < LIMIT.log)
    states = ["inconclusive", "regressed", "improved", "pass"]
    return np.select([~believed, worse, better, passed], states, "inconclusive")


def report(results: dict[str, Judged], suites: int) -> str:
    body = [
        [
            name,
            pct(found.alarms),
            pct(float(np.isin(found.quiet, ("pass", "improved")).mean())),
            *(pct(float((found.found[change] == "regressed").mean())) for change in CHANGES),
        ]
        for name, found in results.items()
    ]
    head = ["noise", "suites with a false `regressed`", "rows: pass", *(f"+{c:.0%} found" for c in CHANGES)]
    return (
        "# Calibration of two servers that nobody restarts\n\n"
        f"{suites:,} suites of {ROWS} rows without a change, tolerance 5 %; one start of either server,"
        f" {LAUNCHES * PAIRS} block pairs, one look. A start adds an sd of 0.7 % to a ratio unless said"
        " otherwise, which such a run cannot show: the rule assumes three tenths of the block sd, at most"
        " 1.8 %. What is not found is inconclusive.\n\n"
        f"{table(head, body)}\n"
    )
