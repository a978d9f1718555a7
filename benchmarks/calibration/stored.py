"""The rule for stored runs, and the rules of the peers, on simulated runs; and what came out, as tables."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from scipy import stats

from calibration.noise import ROWS, Array, Flags
from calibration.stored_noise import MODELS, UNSEEN, Runs, StoredNoise, simulate
from calibration.tables import pct, table
from servegate.stats.paired import Limit
from servegate.stats.unpaired import decide, interval
from servegate.timed import ALPHA

ROUNDS = (3, 5, 10)
TOLERANCES = (0.05, 0.10, 0.25)
CHANGES = (0.10, 0.20, 0.50, 1.00)
LEVEL = ALPHA / ROWS
CHUNK = 6_000  # rows simulated at a time
CHECKED = 60  # rows of the first chunk that are judged by `decide` itself
SHOWN = 5  # rounds of the table of states, a usual `repeat`
PEERS_ROUNDS = 10


@dataclass(frozen=True)
class Judged:
    """The intervals of all rows without a change; a true change moves them as a whole."""

    low: Array
    high: Array
    contended: Flags
    peers: dict[str, dict[float, Flags]]
    """By rule and true change: the rows that it calls slower."""

    def regressed(self, change: float, tolerance: float) -> Flags:
        return (self.low + np.log1p(change) > np.log1p(tolerance)) & ~self.contended

    def passed(self, change: float, tolerance: float) -> Flags:
        high = self.high + np.log1p(change)
        return (high < np.log1p(tolerance)) & (high >= -np.log1p(tolerance))

    def false_suites(self, tolerance: float) -> float:
        return suites(self.regressed(0.0, tolerance))


def suites(rows: Flags) -> float:
    """The share of suites in which any of six rows is called."""
    return float(rows.reshape(-1, ROWS).any(axis=1).mean())


def measure(number: int, seed: int, count: int) -> dict[int, Judged]:
    """`count` suites of a noise model, for each number of rounds."""
    return {rounds: judged(MODELS[number], seed, count * ROWS, rounds) for rounds in ROUNDS}


def judged(noise: StoredNoise, seed: int, rows: int, rounds: int) -> Judged:
    low, high, contended = [], [], []
    peers: dict[str, dict[float, list[Flags]]] = {name: {0.0: [], 0.20: []} for name in PEERS}
    for turn, runs in enumerate(chunks(noise, seed, rows, rounds)):
        base, head = runs.times[:, 0], runs.times[:, 1]
        found = interval(base, head, LEVEL, noise.assumed)
        if turn == 0:
            check(noise, runs, found.low, found.high)
        low.append(found.low)
        high.append(found.high)
        contended.append(runs.marks.any(axis=(1, 2)))
        for name, rule in PEERS.items() if rounds == PEERS_ROUNDS else ():
            for change, flags in peers[name].items():
                flags.append(rule(base, head + np.log1p(change)))
    called = {
        name: {change: np.concatenate(flags) for change, flags in by_change.items() if flags}
        for name, by_change in peers.items()
    }
    return Judged(np.concatenate(low), np.concatenate(high), np.concatenate(contended), called)


def chunks(noise: StoredNoise, seed: int, rows: int, rounds: int) -> Iterator[Runs]:
    rng = np.random.default_rng([seed, crc32(noise.name.encode()), rounds])
    for done in range(0, rows, CHUNK):
        yield simulate(noise, rng, min(CHUNK, rows - done), rounds)


def check(noise: StoredNoise, runs: Runs, low: Array, high: Array) -> None:
    """All rows at once and `decide` must agree."""
    limit = Limit(TOLERANCES[0])
    for row in range(min(CHECKED, len(low))):
        base, head = (np.exp(run).tolist() for run in runs.times[row])
        state = decide(base, head, limit, LEVEL, noise.assumed).state
        said = "regressed" if low[row] > limit.log else "improved" if high[row] < -limit.log else "pass"
        if state != (said if said != "pass" or high[row] < limit.log else "inconclusive"):
            raise RuntimeError(f"{noise.name}: the fast path and `decide` disagree")


def means(arm: Array) -> Array:
    return np.asarray(np.exp(arm).mean(axis=1))


def welch(base: Array, head: Array) -> Flags:
    test = stats.ttest_ind(np.exp(head), np.exp(base), axis=1, equal_var=False)
    return np.asarray((test.pvalue < 0.05) & (test.statistic > 0))


def mann_whitney(base: Array, head: Array) -> Flags:
    return np.asarray(
        stats.mannwhitneyu(head, base, axis=1, alternative="greater", method="asymptotic").pvalue < 0.025
    )


PEERS: dict[str, Callable[[Array, Array], Flags]] = {
    "previous value, ratio 1.10": lambda base, head: means(head) > 1.10 * means(base),
    "mean:5%": lambda base, head: means(head) > 1.05 * means(base),
    "min:5%": lambda base, head: head.min(axis=1) - base.min(axis=1) > np.log(1.05),
    "Welch t, 5 %": welch,
    "Mann-Whitney, 5 %": mann_whitney,
}


def wanted(results: dict[str, dict[int, Judged]]) -> str:
    seen = {name: found for name, found in results.items() if name != UNSEEN}

    def worst(names: dict[str, dict[int, Judged]]) -> float:
        return max(j.false_suites(TOLERANCES[0]) for by_rounds in names.values() for j in by_rounds.values())

    def passes(change: float, tolerance: float) -> float:
        every = [j for by_rounds in seen.values() for j in by_rounds.values()]
        return max(float(j.passed(change, tolerance).mean()) for j in every)

    figures = [
        ("no change, tolerance 5 %, every model below but the last: suites `regressed`", worst(seen), 0.005),
        (f"the same, {UNSEEN}", worst({UNSEEN: results[UNSEEN]}), 0.005),
        ("+20 % at a tolerance of 10 %: passes", passes(0.20, 0.10), LEVEL),
        ("+50 % at a tolerance of 25 %: passes", passes(0.50, 0.25), LEVEL),
    ]
    body = [
        [text, pct(share), f"<= {100 * goal:.2g} %", "yes" if share <= goal else "NO"]
        for text, share, goal in figures
    ]
    return table(["figure, worst model and number of rounds", "seen", "wanted", "met"], body)


def no_change(results: dict[str, dict[int, Judged]]) -> str:
    body = []
    for name, by_rounds in results.items():
        false = [pct(by_rounds[rounds].false_suites(TOLERANCES[0])) for rounds in ROUNDS]
        passed = [pct(float(by_rounds[SHOWN].passed(0.0, t).mean())) for t in (0.10, 0.25, 0.50)]
        body.append([name, *false, *passed])
    head = [f"false `regressed`, {rounds} rounds" for rounds in ROUNDS]
    head += [f"rows that pass at {t}, {SHOWN} rounds" for t in ("10 %", "25 %", "50 %")]
    return table(["noise", *head], body)


def power(results: dict[str, dict[int, Judged]]) -> str:
    body = []
    for name, by_rounds in results.items():
        for tolerance in TOLERANCES:
            cells = []
            for change in CHANGES:
                found = [by_rounds[rounds].regressed(change, tolerance).mean() for rounds in ROUNDS]
                cells.append(", ".join(f"{100 * share:.0f} %" for share in found))
            body.append([name, f"{tolerance:.0%}", *cells])
    return table(["noise", "tolerance", *(f"+{change:.0%}" for change in CHANGES)], body)


def against_peers(results: dict[str, dict[int, Judged]]) -> str:
    body = []
    for name, by_rounds in results.items():
        found = by_rounds[PEERS_ROUNDS]
        ours = f"{pct(found.false_suites(0.05))}, {pct(float(found.regressed(0.20, 0.05).mean()))}"
        cells = [
            f"{pct(suites(rows[0.0]))}, {pct(float(rows[0.20].mean()))}" for rows in found.peers.values()
        ]
        body.append([name, ours, *cells])
    return table(["noise", "servegate, 5 %", *PEERS], body)


def report(results: dict[str, dict[int, Judged]], count: int) -> str:
    return (
        "# Calibration of the verdict on stored timings\n\n"
        f"The same command. One run of base and one of head, {' or '.join(map(str, ROUNDS))} rounds each,"
        f" {ROWS} gating rows a suite, {count:,} suites a noise model. What belongs to the machine is shared"
        " by the rows of a suite; the luck of a run and the noise of a round are not. What is neither found"
        " nor passed is inconclusive.\n\n"
        f"## What was wanted of stored timings\n\n{wanted(results)}\n\n"
        "A burst that holds the machine for a whole run is a slower run. Only a meter of the load tells it"
        " from a slower head; arms in turn do not need to.\n\n"
        f"## Stored timings, no change\n\n{no_change(results)}\n\n"
        f"## Stored timings: share found with {', '.join(map(str, ROUNDS))} rounds\n\n{power(results)}\n\n"
        "## The rules of the peers on the same stored runs\n\n"
        f"Each cell: suites of {ROWS} unchanged rows with a false alarm, then rows with a true +20 % that are"
        f" found; {PEERS_ROUNDS} rounds a run. What a peer does not find, it passes; what servegate does not"
        f" find is inconclusive.\n\n{against_peers(results)}"
    )
