"""How often the gate is wrong: its rules and the rules of its peers, on simulated noise of many kinds.

    python benchmarks/calibrate.py                  10,000 suites a noise model: what calibration.md shows
    python benchmarks/calibrate.py --quick          100 suites a noise model: a look at the format
    python benchmarks/calibrate.py --part stored    one part alone: in-turn, servers or stored

A suite is six gating rows. Arms in turn are judged by `servegate.stats.paired.decide` after every second
launch until the row is decided or the plan ends; rows are independent there, the worst case for a suite, but
for the modes of a launch, which belong to the process and so to all its rows. Two servers are judged once,
as one launch. Stored runs are judged once, by `servegate.stats.unpaired.decide`. The same seed gives the same
tables.
"""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime

from calibration import paired, servers, stored, stored_noise
from calibration.noise import CHANGES, LAUNCHES, MODELS, PAIRS, ROWS, SECOND_IS_FASTER
from calibration.peers import peers
from calibration.tables import Result, against_peers, no_change, power, wanted


def measure(number: int, seed: int, suites: int, rows: int, peer_suites: int) -> Result:
    noise = MODELS[number]
    result = Result(
        paired.ours(noise, seed, suites * ROWS, 0.0),
        {change: paired.ours(noise, seed, rows, change) for change in CHANGES},
        peers(noise, seed, peer_suites * ROWS, 0.0),
        peers(noise, seed, rows, 0.10),
    )
    print(f"{datetime.now(UTC):%H:%M:%S} done: {noise.name}", file=sys.stderr)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description="Print the calibration tables of the timed verdict.")
    parser.add_argument("--quick", action="store_true", help="100 suites a noise model instead of 10,000")
    parser.add_argument("--part", choices=["in-turn", "servers", "stored"], help="one part alone")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with ProcessPoolExecutor() as pool:
        if options.part in (None, "in-turn"):
            in_turn(pool, options.quick, options.seed)
        if options.part in (None, "servers"):
            of_servers(pool, 100 if options.quick else 2_000, options.seed)
        if options.part in (None, "stored"):
            of_stored_runs(pool, 100 if options.quick else 10_000, options.seed)
    return 0


def in_turn(pool: ProcessPoolExecutor, quick: bool, seed: int) -> None:
    suites, rows, peer_suites = (100, 60, 20) if quick else (10_000, 1_000, 500)
    tasks = {
        noise.name: pool.submit(measure, number, seed, suites, rows, peer_suites)
        for number, noise in enumerate(MODELS)
    }
    results = {name: task.result() for name, task in tasks.items()}
    quiet = {name: result.quiet for name, result in results.items()}
    found = {name: result.found for name, result in results.items()}
    print("# Calibration of the timed verdict\n")
    looks = ", ".join(map(str, paired.LOOKS))
    print(
        f"`python benchmarks/calibrate.py{' --quick' if quick else ''} --seed {seed}`,"
        f" {datetime.now(UTC):%Y-%m-%d}. Tolerance 5 %, {ROWS} gating rows a suite, at most {LAUNCHES}"
        f" launches of {PAIRS} block pairs,"
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
        f"{against_peers(results)}\n"
    )


def of_servers(pool: ProcessPoolExecutor, suites: int, seed: int) -> None:
    tasks = {
        model.name: pool.submit(servers.measure, number, seed, suites, min(suites, 1_000))
        for number, model in enumerate(servers.MODELS)
    }
    print(servers.report({name: task.result() for name, task in tasks.items()}, suites))


def of_stored_runs(pool: ProcessPoolExecutor, suites: int, seed: int) -> None:
    tasks = {
        noise.name: pool.submit(stored.measure, number, seed, suites)
        for number, noise in enumerate(stored_noise.MODELS)
    }
    print(stored.report({name: task.result() for name, task in tasks.items()}, suites))


if __name__ == "__main__":
    sys.exit(main())
