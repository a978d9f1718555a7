"""Simulated rounds of two runs that were stored, hours or days apart, under noise of many kinds.

What belongs to the machine (bursts, memory, drift, which host it is) is shared by the rows of a suite; the
noise of a round and the luck of a run are drawn for each row, which is the worst case for a suite.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from calibration.noise import ROWS, Array, Flags, Rng, autoregressive
from servegate.stats.unpaired import FIRST_TOKEN_RUN_SD, RUN_SD, TAIL_RUN_SD

Make = Callable[[Rng, tuple[int, int, int]], Array]
"""(rng, (rows, runs, rounds)) -> log times, which broadcast to that shape."""


@dataclass(frozen=True)
class StoredNoise:
    """`assumed` is the luck of a run that the rule takes for granted; `luck` is what it really is."""

    name: str
    rounds: Make
    luck: Make
    assumed: float = RUN_SD
    bursty: bool = False
    seen: bool = False
    """Does the meter of the machine's load mark 80 % of the rounds in a burst (and 2 % of the others)?"""


@dataclass(frozen=True)
class Runs:
    """Log times and marks, shape (rows, base and head, rounds)."""

    times: Array
    marks: Flags


def simulate(noise: StoredNoise, rng: Rng, rows: int, rounds: int) -> Runs:
    shape = (rows, 2, rounds)
    times = noise.rounds(rng, shape) + noise.luck(rng, shape)
    marks = np.zeros(shape, dtype=bool)
    if noise.bursty:
        busy = by_suite(busyness, rng, shape) > 0
        times = times + busy * rng.exponential(0.4, shape)
        marks = np.where(busy, rng.random(shape) < 0.8, rng.random(shape) < 0.02) & noise.seen
    return Runs(np.broadcast_to(times, shape), marks)


def by_suite(make: Make, rng: Rng, shape: tuple[int, int, int]) -> Array:
    """Drawn once for the six rows of a suite."""
    suites = make(rng, (-(-shape[0] // ROWS), *shape[1:]))
    return np.repeat(suites, ROWS, axis=0)[: shape[0]]


def of_machine(make: Make) -> Make:
    return lambda rng, shape: by_suite(make, rng, shape)


def white(sd: float) -> Make:
    return lambda rng, shape: rng.normal(0, sd, shape)


def lucky(sd: float) -> Make:
    return lambda rng, shape: rng.normal(0, sd, (*shape[:2], 1))


def hosts(apart: float) -> Make:
    """Each run lands on one of two hosts; what is left of the luck is what a launch adds."""
    coin = of_machine(lambda rng, shape: apart * (rng.random((*shape[:2], 1)) < 0.5))
    return lambda rng, shape: coin(rng, shape) + lucky(0.007)(rng, shape)


def hosted(rng: Rng, shape: tuple[int, int, int]) -> Array:
    """Ratios of runs with an sd of 5 %, now and then 1.5: what asv saw on hosted runners."""
    return rng.standard_t(3, (*shape[:2], 1)) * 0.05 / np.sqrt(3) / np.sqrt(2)


def two_modes(rng: Rng, shape: tuple[int, int, int]) -> Array:
    return rng.normal(0, 0.035, shape) + 0.12 * (rng.random(shape) < 0.5)


def heavy_tails(rng: Rng, shape: tuple[int, int, int]) -> Array:
    return rng.standard_t(2, shape) * 0.04 / np.sqrt(2) + np.log(1.8) * (rng.random(shape) < 0.02)


def memory(rng: Rng, shape: tuple[int, int, int]) -> Array:
    return 0.06 * autoregressive(rng, shape, 0.9)


def drift(rng: Rng, shape: tuple[int, int, int]) -> Array:
    return np.cumsum(rng.normal(0, 0.01, shape), axis=-1)


def busyness(rng: Rng, shape: tuple[int, int, int]) -> Array:
    """Something takes the machine with 6 % chance a round and keeps it for 4 rounds on average."""
    busy = np.empty(shape)
    now = rng.random(shape[:-1]) < 0.06 / (0.06 + 0.25)
    for k in range(shape[-1]):
        draw = rng.random(now.shape)
        now = np.where(now, draw < 0.75, draw < 0.06)
        busy[..., k] = now
    return busy


def both(one: Make, other: Make) -> Make:
    return lambda rng, shape: one(rng, shape) + other(rng, shape)


UNSEEN = "bursts that no meter sees"
MODELS = (
    StoredNoise("dedicated machine: round 0.5 %, run 0.8 %", white(0.005), lucky(0.008)),
    StoredNoise("two shared cores as measured: run 6.2 %, round 1 %", white(0.01), lucky(0.062)),
    StoredNoise("the same, round 3 %", white(0.03), lucky(0.062)),
    StoredNoise("hosted runner: ratios t(3), sd 5 %, round 3 %", white(0.03), hosted),
    StoredNoise("time to first token: round 10 %, run 8 %", white(0.10), lucky(0.08), FIRST_TOKEN_RUN_SD),
    StoredNoise("p95 of small batches: round 15 %, run 14 %", white(0.15), lucky(0.14), TAIL_RUN_SD),
    StoredNoise("days: 5 % a day, run 3 %, round 3 %", white(0.03), lucky(float(np.hypot(0.05, 0.03)))),
    StoredNoise("two hosts, 12 % apart, round 2 %", white(0.02), hosts(0.12)),
    StoredNoise("two hosts, 20 % apart, round 2 %", white(0.02), hosts(float(np.log(1.205)))),
    StoredNoise("bistable rounds, 12 % apart, run 3 %", two_modes, lucky(0.03)),
    StoredNoise("heavy tails, 2 % of rounds x 1.8, run 3 %", heavy_tails, lucky(0.03)),
    StoredNoise(
        "machine with memory: AR 0.9, sd 6 %, run 3 %", both(white(0.035), of_machine(memory)), lucky(0.03)
    ),
    StoredNoise(
        "drift, random walk 1 % a round, run 3 %", both(white(0.035), of_machine(drift)), lucky(0.03)
    ),
    StoredNoise("too noisy: round 15 %, run 5 %", white(0.15), lucky(0.05)),
    StoredNoise("hopeless: round 44 %, run 5 %", white(0.44), lucky(0.05)),
    StoredNoise("bursts, 80 % of it marked, run 2 %", white(0.035), lucky(0.02), bursty=True, seen=True),
    StoredNoise(UNSEEN, white(0.035), lucky(0.02), bursty=True),
)
