"""Simulated block times of interleaved arms, under noise of many kinds."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from zlib import crc32

import numpy as np
import numpy.typing as npt

from servegate.stats.launches import Launch

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Rng = np.random.Generator

ROWS, LAUNCHES, PAIRS = 6, 12, 8
BASE, HEAD, AGAIN = range(3)  # the arms; "again" is base once more, for the A/A series
SLOTS = 3 * PAIRS
SECOND_IS_FASTER = 0.009  # measured on identical code: the arm that is started second
CHANGES = (0.03, 0.05, 0.10, 0.20)
CHUNK = 600  # rows simulated at a time


@dataclass(frozen=True)
class Blocks:
    """Block log-times, shape (rows, launches, arms, pairs), and the blocks a detector marks as contended."""

    times: Array
    marks: Flags | None = None


@dataclass(frozen=True)
class Noise:
    """`launch_sd` is what a relaunch of both arms adds to a log-ratio; measured 0.7 % (p95: 1.8 %)."""

    name: str
    make: Callable[[Rng, int], Blocks]
    launch_sd: float = 0.007


def by_arm(timeline: Array) -> Array:
    """Blocks in the order they ran, A B A' A' B A ..., sorted to their arms; also for flags."""
    turns = timeline.reshape(*timeline.shape[:2], PAIRS, 3).copy()
    turns[:, :, 1::2] = turns[:, :, 1::2, ::-1]
    return np.moveaxis(turns[..., [BASE, HEAD, AGAIN]], 3, 2)


def white(rng: Rng, rows: int, sd: float) -> Array:
    """Independent blocks; `sd` is that of the log-ratio of a pair."""
    return rng.normal(0, sd / np.sqrt(2), (rows, LAUNCHES, 3, PAIRS))


def autoregressive(rng: Rng, shape: tuple[int, ...], memory: float) -> Array:
    values = rng.normal(0, 1, shape)
    for slot in range(1, shape[-1]):
        values[..., slot] = memory * values[..., slot - 1] + np.sqrt(1 - memory**2) * values[..., slot]
    return values


def independent(sd: float) -> Callable[[Rng, int], Blocks]:
    return lambda rng, rows: Blocks(white(rng, rows, sd))


def bursts(rng: Rng, rows: int, marked: bool = False) -> Blocks:
    """Something takes the machine with 6 % chance a block and keeps it for 4 blocks on average."""
    busy = np.empty((rows, LAUNCHES, SLOTS), dtype=bool)
    now = rng.random((rows, LAUNCHES)) < 0.06 / (0.06 + 0.25)
    for slot in range(SLOTS):
        draw = rng.random(now.shape)
        now = np.where(now, draw < 0.75, draw < 0.06)
        busy[..., slot] = now
    contended = by_arm(busy)
    times = white(rng, rows, 0.05) + contended * rng.exponential(0.4, contended.shape)
    seen = np.where(contended, rng.random(times.shape) < 0.8, rng.random(times.shape) < 0.02)
    return Blocks(times, seen if marked else None)


def drift(rng: Rng, rows: int) -> Blocks:
    walk = np.cumsum(rng.normal(0, 0.01, (rows, LAUNCHES * SLOTS)), axis=1)
    return Blocks(white(rng, rows, 0.05) + by_arm(walk.reshape(rows, LAUNCHES, SLOTS)))


def two_modes(rng: Rng, rows: int) -> Blocks:
    times = white(rng, rows, 0.05)
    return Blocks(times + 0.12 * (rng.random(times.shape) < 0.5))


def heavy_tails(rng: Rng, rows: int) -> Blocks:
    shape = (rows, LAUNCHES, 3, PAIRS)
    poisoned = rng.random(shape) < 0.02
    return Blocks(rng.standard_t(2, shape) * 0.04 / np.sqrt(2) + np.log(1.8) * poisoned)


def machine_memory(rng: Rng, rows: int) -> Blocks:
    shared = autoregressive(rng, (rows, LAUNCHES, SLOTS), 0.9)
    return Blocks(white(rng, rows, 0.05) + 0.1 * by_arm(shared))


def arm_memory(rng: Rng, rows: int) -> Blocks:
    """Each arm remembers its own last block, which interleaving cannot cancel."""
    return Blocks(autoregressive(rng, (rows, LAUNCHES, 3, PAIRS), 0.6) * 0.05 / np.sqrt(2))


def launch_modes(rng: Rng, rows: int) -> Blocks:
    """Every process settles into one of two modes, 12 % apart, and all rows of a suite see it."""
    modes = np.repeat(rng.random((-(-rows // ROWS), LAUNCHES, 3, 1)) < 0.5, ROWS, axis=0)[:rows]
    return Blocks(white(rng, rows, 0.05) + 0.12 * modes)


MODELS = (
    Noise("independent log-normal, sd 0.05", independent(0.05)),
    Noise("independent log-normal, sd 0.07", independent(0.07)),
    Noise("bursty contention, unmarked", bursts),
    Noise("bursty contention, 80 % of it marked", lambda rng, rows: bursts(rng, rows, marked=True)),
    Noise("drift, random walk 0.01 a block", drift),
    Noise("bistable blocks, 12 % apart", two_modes),
    Noise("heavy tails, 2 % of blocks x 1.8", heavy_tails),
    Noise("autocorrelated machine, AR 0.9", machine_memory),
    Noise("autocorrelated arms, AR 0.6", arm_memory),
    Noise("a p95: sd 0.06, launch sd 0.018", independent(0.06), launch_sd=0.018),
    Noise("too noisy: sd 0.15", independent(0.15)),
    Noise("hopeless: sd 0.44, launch sd 0.05", independent(0.44), launch_sd=0.05),
    Noise("bistable launches, 12 % apart", launch_modes),
)
QUIET = ("independent log-normal, sd 0.05", "independent log-normal, sd 0.07")
ROUGH = ("bursty contention, unmarked", "bistable blocks, 12 % apart", "heavy tails, 2 % of blocks x 1.8")


def simulate(noise: Noise, rng: Rng, rows: int, change: float) -> Blocks:
    blocks = noise.make(rng, rows)
    offsets = rng.normal(0, noise.launch_sd / np.sqrt(2), (rows, LAUNCHES, 3, 1))
    started = np.zeros((LAUNCHES, 3, 1))
    started[0::2, [HEAD, AGAIN]] = started[1::2, BASE] = -SECOND_IS_FASTER
    times = blocks.times + offsets + started
    times[:, :, HEAD] += np.log1p(change)
    return Blocks(times, blocks.marks)


def launches(blocks: Blocks, row: int, arm: int, start: int, end: int) -> list[Launch]:
    ratios = blocks.times[row, :, arm] - blocks.times[row, :, BASE]
    marks = None if blocks.marks is None else blocks.marks[row, :, arm] | blocks.marks[row, :, BASE]
    return [
        Launch(tuple(ratios[k].tolist()), k % 2 == 1, () if marks is None else tuple(marks[k].tolist()))
        for k in range(start, end)
    ]


def chunks(noise: Noise, seed: int, rows: int, change: float) -> Iterator[Blocks]:
    rng = np.random.default_rng([seed, crc32(noise.name.encode()), round(1000 * change)])
    for done in range(0, rows, CHUNK):
        yield simulate(noise, rng, min(CHUNK, rows - done), change)
