"""How often the gate is wrong: its rule and the rules of its peers, on simulated noise of many kinds.

    python benchmarks/calibrate.py            10,000 suites a noise model: what calibration.md shows
    python benchmarks/calibrate.py --quick    100 suites a noise model: a look at the format

A suite is six gating rows, judged by `servegate.stats.paired.decide` after every second launch until the row
is decided or the plan ends. Rows are independent, the worst case for a suite, but for the modes of a launch,
which belong to the process and so to all its rows. The same seed gives the same table.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from zlib import crc32

import numpy as np
import numpy.typing as npt
from scipy import stats

from servegate.stats.aa import noise_floor, under_floor
from servegate.stats.interval import interval
from servegate.stats.launches import Launch, Layout
from servegate.stats.paired import Limit, decide
from servegate.stats.sequential import Plan
from servegate.stats.signedrank import shift_interval

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Rng = np.random.Generator

ROWS, LAUNCHES, PAIRS = 6, 12, 8
LOOKS = (4, 6, 8, 10, 12)
BASE, HEAD, AGAIN = range(3)  # the arms; "again" is base once more, for the A/A series
SLOTS = 3 * PAIRS
SECOND_IS_FASTER = 0.009  # measured on identical code: the arm that is started second
PLAN = Plan(rows=ROWS, launches=LAUNCHES)
LIMIT = Limit(tolerance=0.05)
CHANGES = (0.03, 0.05, 0.10, 0.20)
CHUNK = 600  # rows simulated at a time
CHECKED = 120  # rows of the first chunk that are judged by `decide` itself


# --- noise


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


# --- our rule


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


def chunks(noise: Noise, seed: int, rows: int, change: float) -> Iterator[Blocks]:
    rng = np.random.default_rng([seed, crc32(noise.name.encode()), round(1000 * change)])
    for done in range(0, rows, CHUNK):
        yield simulate(noise, rng, min(CHUNK, rows - done), change)


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


# --- the rules of the peers


def simple_rule(base: Array, head: Array, _: Rng) -> Flags:
    """The simple paired rule: signed-rank interval of all blocks, 0.2 % a look, launches ignored."""
    return np.array([_simple(ratios) for ratios in head - base])


def _simple(ratios: Array) -> bool:
    for count in (10, 15, 20, 25, 30, 40, 50, 60):
        shift = shift_interval(ratios[:count], 0.002)
        if shift.low > LIMIT.log or shift.high < LIMIT.log:
            return shift.low > LIMIT.log
    return False


def mean_above(ratio: float) -> Callable[[Array, Array, Rng], Flags]:
    return lambda base, head, _: np.exp(head).mean(1) / np.exp(base).mean(1) > ratio


def welch(base: Array, head: Array, _: Rng) -> Flags:
    test = stats.ttest_ind(np.exp(head), np.exp(base), axis=1, equal_var=False)
    return np.asarray((test.pvalue < 0.05) & (test.statistic > 0))


def mann_whitney(factor: float) -> Callable[[Array, Array, Rng], Flags]:
    def rule(base: Array, head: Array, _: Rng) -> Flags:
        p = stats.mannwhitneyu(head, base, axis=1, method="asymptotic").pvalue
        return np.asarray((p < 0.002) & (np.median(head, 1) - np.median(base, 1) > np.log(factor)))

    return rule


def criterion(base: Array, head: Array, rng: Rng) -> Flags:
    """The bootstrap interval of the change of the mean, 95 %, wholly above a noise band of 2 %."""
    resamples, (rows, size) = 400, base.shape
    change = np.empty((resamples, rows))
    for k in range(resamples):
        means = [
            np.take_along_axis(np.exp(arm), rng.integers(0, size, (rows, size)), axis=1).mean(1)
            for arm in (base, head)
        ]
        change[k] = means[1] / means[0] - 1
    return np.asarray(np.percentile(change, 2.5, axis=0) > 0.02)


PEERS: dict[str, Callable[[Array, Array, Rng], Flags]] = {
    "pytest-benchmark, mean:5%": mean_above(1.05),
    "github-action-benchmark, ratio 1.10": mean_above(1.10),
    "Welch t, 5 %": welch,
    "Mann-Whitney, 0.2 %": mann_whitney(1.0),
    "asv continuous: Mann-Whitney 0.2 % and factor 1.1": mann_whitney(1.1),
    "criterion: bootstrap 95 %, band 2 %": criterion,
    "simple paired rule, 60 blocks": simple_rule,
}


def peers(noise: Noise, seed: int, rows: int, change: float) -> dict[str, Flags]:
    rng = np.random.default_rng(seed)
    called: dict[str, list[Flags]] = {name: [] for name in PEERS}
    for blocks in chunks(noise, seed, rows, change):
        base, head = (blocks.times[:, :, arm].reshape(-1, LAUNCHES * PAIRS) for arm in (BASE, HEAD))
        for name, rule in PEERS.items():
            called[name].append(rule(base, head, rng))
    return {name: np.concatenate(flags) for name, flags in called.items()}


@dataclass(frozen=True)
class Result:
    """Everything simulated for one noise model: rows without a change, and rows with each true change."""

    quiet: Outcome
    found: dict[float, Outcome]
    peers_quiet: dict[str, Flags]
    peers_found: dict[str, Flags]


def measure(number: int, seed: int, suites: int, rows: int, peer_suites: int) -> Result:
    noise = MODELS[number]
    result = Result(
        ours(noise, seed, suites * ROWS, 0.0),
        {change: ours(noise, seed, rows, change) for change in CHANGES},
        peers(noise, seed, peer_suites * ROWS, 0.0),
        peers(noise, seed, rows, 0.10),
    )
    print(f"{datetime.now(UTC):%H:%M:%S} done: {noise.name}", file=sys.stderr)
    return result


# --- tables


def pct(share: float) -> str:
    return f"{100 * share:.2f} %" if 0 < share < 0.01 else f"{100 * share:.1f} %"


def table(head: list[str], body: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def no_change(results: dict[str, Outcome]) -> str:
    body = [
        [
            name,
            pct(found.suites("regressed")),
            pct(found.share("pass")),
            pct(found.share("improved")),
            pct(found.share("inconclusive")),
            pct(found.suites("inconclusive")),
            f"{found.blocks.mean():.0f}",
            f"{np.median(found.needed):,.0f}" if found.needed else "-",
        ]
        for name, found in results.items()
    ]
    head = ["noise", "suites with a false `regressed`", "rows: pass", "improved", "inconclusive"]
    head += ["suites with an inconclusive row", "mean blocks", "blocks asked for when inconclusive (median)"]
    return table(head, body)


def power(results: dict[str, dict[float, Outcome]]) -> str:
    body = []
    for name, by_change in results.items():
        for change, found in by_change.items():
            curve = [pct(found.found_by(launch)) for launch in LOOKS]
            end = [pct(found.share("pass", "improved")), pct(found.share("inconclusive"))]
            body.append([name, f"+{change:.0%}", *curve, *end])
    looks = [f"found by {launch * PAIRS}" for launch in LOOKS]
    return table(["noise", "true change", *looks, "passed", "inconclusive at 96"], body)


def wanted(quiet: dict[str, Outcome], found: dict[str, dict[float, Outcome]]) -> str:
    def worst(names: tuple[str, ...], change: float, state: str) -> float:
        shares = [found[name][change].share(state) for name in names]
        return min(shares) if state == "regressed" else max(shares)

    figures = [
        (
            "no change, every model: suites `regressed`",
            max(o.suites("regressed") for o in quiet.values()),
            "<=",
            0.005,
        ),
        (
            "no change, sd <= 0.07: rows inconclusive",
            max(quiet[n].share("inconclusive") for n in QUIET),
            "<=",
            0.05,
        ),
        (
            "no change, sd <= 0.07: suites inconclusive",
            max(quiet[n].suites("inconclusive") for n in QUIET),
            "<=",
            0.05,
        ),
        ("+10 %, sd <= 0.07: passes", worst(QUIET, 0.10, "pass"), "<=", 0.0),
        ("+10 %, sd <= 0.07: found", worst(QUIET, 0.10, "regressed"), ">=", 0.95),
        ("+10 %, bursts, two modes, heavy tails: found", worst(ROUGH, 0.10, "regressed"), ">=", 0.90),
        ("+20 %, all of these: found", worst((*QUIET, *ROUGH), 0.20, "regressed"), ">=", 0.99),
    ]
    body = [
        [
            text,
            pct(seen),
            f"{sign} {100 * goal:g} %",
            "yes" if (seen <= goal if sign == "<=" else seen >= goal) else "NO",
        ]
        for text, seen, sign, goal in figures
    ]
    return table(["figure, worst model", "seen", "wanted", "met"], body)


def against_peers(results: dict[str, Result]) -> str:
    body = []
    for name, result in results.items():
        cells = [f"{pct(result.quiet.suites('regressed'))}, {pct(result.found[0.10].share('regressed'))}"]
        for rule in PEERS:
            alarms = float(result.peers_quiet[rule].reshape(-1, ROWS).any(axis=1).mean())
            cells.append(f"{pct(alarms)}, {pct(float(result.peers_found[rule].mean()))}")
        body.append([name, *cells])
    return table(["noise", "servegate", *PEERS], body)


def main() -> int:
    parser = argparse.ArgumentParser(description="Print the calibration tables of the timed verdict.")
    parser.add_argument("--quick", action="store_true", help="100 suites a noise model instead of 10,000")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    suites, rows, peer_suites = (100, 60, 20) if options.quick else (10_000, 1_000, 500)
    with ProcessPoolExecutor() as pool:
        tasks = {
            noise.name: pool.submit(measure, number, options.seed, suites, rows, peer_suites)
            for number, noise in enumerate(MODELS)
        }
        results = {name: task.result() for name, task in tasks.items()}
    quiet = {name: result.quiet for name, result in results.items()}
    found = {name: result.found for name, result in results.items()}
    quick = " --quick" if options.quick else ""
    print("# Calibration of the timed verdict\n")
    looks = ", ".join(map(str, LOOKS))
    print(
        f"`python benchmarks/calibrate.py{quick} --seed {options.seed}`, {datetime.now(UTC):%Y-%m-%d}."
        f" Tolerance 5 %, {ROWS} gating rows a suite, at most {LAUNCHES} launches of {PAIRS} block pairs,"
        f" looks after launches {looks}. The arm started second is {100 * SECOND_IS_FASTER:.1f} % faster, and"
        " a launch adds an sd of 0.7 % unless said otherwise. sd is that of the log-ratio of a block pair.\n"
    )
    print(f"## What was wanted\n\n{wanted(quiet, found)}\n")
    print(f"## No change: {suites:,} suites a row\n\n{no_change(quiet)}\n")
    print(f"## Power: {rows:,} rows each, share found against block pairs\n\n{power(found)}\n")
    print(
        f"## The rules of the peers on the same data\n\nEach cell: suites of {ROWS} unchanged rows with a"
        f" false alarm ({peer_suites:,} suites; servegate {suites:,}), then rows with a true +10 % that are"
        f" found ({rows:,}). What a peer does not find, it passes; what servegate does not find is"
        " inconclusive, but for the rows passed in the table above. The peers are given all 96 interleaved"
        " blocks of both arms: better data than the stored runs they usually compare.\n\n"
        f"{against_peers(results)}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
