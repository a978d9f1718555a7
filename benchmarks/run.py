"""`make bench`: every figure of benchmarks/results.md, measured here, with the command that gives it.

    python benchmarks/run.py [--out benchmarks/results.md]

Figures come from one machine on one day and are never asserted in a test.
"""

from __future__ import annotations

import argparse
import datetime as dt
import subprocess
import sys
import time
from pathlib import Path

from servegate.machine import machine_facts

HERE = Path(__file__).parent
SECTIONS = (
    ("Decode throughput, native numerics", ["decode_throughput.py"]),
    ("Engine overhead per step, the model stubbed", ["engine_overhead.py"]),
    ("The client of a server, and how late it stamps", ["wire_client.py"]),
    ("`servegate compare`, two records of 10,000 requests × 200 tokens", ["compare_speed.py"]),
)
STARTS = (
    ("`servegate --help`", ["-m", "servegate", "--help"]),
    ("`import servegate`", ["-c", "import servegate"]),
    ("`python -c pass`, for comparison", ["-c", "pass"]),
)


def section(title: str, command: list[str]) -> str:
    script = [str(HERE / command[0]), *command[1:]]
    print(f"{title} ...", file=sys.stderr, flush=True)
    done = subprocess.run([sys.executable, *script], stdout=subprocess.PIPE, text=True, check=True)
    return f"## {title}\n\n`python benchmarks/{' '.join(command)}`\n\n{done.stdout.strip()}\n"


def start_times(rounds: int = 15) -> str:
    """Median and best wall time of whole processes, in turns."""
    times: dict[str, list[float]] = {name: [] for name, _ in STARTS}
    for _ in range(rounds):
        for name, arguments in STARTS:
            begun = time.perf_counter()
            subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
            times[name].append(time.perf_counter() - begun)
    lines = [f"| {n} | {sorted(t)[rounds // 2] * 1e3:.0f} | {min(t) * 1e3:.0f} |" for n, t in times.items()]
    table = "\n".join(["| command | median ms | best ms |", "| --- | ---: | ---: |", *lines])
    return f"## Start-up\n\nWhole processes, {rounds} in turns (`python benchmarks/run.py`).\n\n{table}\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=HERE / "results.md")
    args = parser.parse_args()
    machine = machine_facts()
    head = (
        f"# Measured\n\n{dt.datetime.now(dt.UTC):%Y-%m-%d}, {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory']}, GPU: {machine['gpu']}. Made by `make bench`.\n"
    )
    text = "\n".join([head, *(section(title, command) for title, command in SECTIONS), start_times()])
    args.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
