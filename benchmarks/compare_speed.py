"""How long two large records take to compare, and how much memory.

    python benchmarks/compare_speed.py [--requests 10000] [--tokens 200]

Writes two records with every field filled, then reads, reduces, compares and judges them in a new process, as
`servegate compare` does. Prints a Markdown table: wall time, processor time and peak memory of that process,
the interpreter's start included, and the same read as JSON lists instead of packed arrays.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from servegate.files import write_record, write_text
from servegate.fingerprint import Fingerprint
from servegate.record import RequestRecord, RoundRecord, RunRecord, Usage, WorkloadRecord
from servegate.series import Series

COMPARE = """
import sys
from pathlib import Path
from servegate.compare import DEFAULT_POLICY, compare
from servegate.extract import facts
from servegate.files import read_record
from servegate.verdict import decide
base, head = (facts(read_record(Path(path))) for path in sys.argv[1:])
print(decide(compare(base, head), DEFAULT_POLICY).headline)
"""


def large_record(requests: int, tokens: int, seed: int) -> RunRecord:
    rng = np.random.default_rng(seed)
    return RunRecord(
        suite="large",
        suite_digest="0" * 64,
        prompt_set_digest="0" * 64,
        created=f"2026-01-01T00:00:0{seed}Z",
        fingerprint=Fingerprint(machine={"cpu": "any"}, software={}, served={}),
        workloads=(
            WorkloadRecord(
                name="latency",
                kind="closed",
                numerics="native",
                offered={"requests": str(requests)},
                rounds=(
                    RoundRecord(
                        wall_ns=10**12, requests=tuple(_request(i, tokens, rng) for i in range(requests))
                    ),
                ),
            ),
        ),
    )


def _request(index: int, tokens: int, rng: np.random.Generator) -> RequestRecord:
    sent = index * 100_000_000
    arrivals = sent + 50_000_000 + np.cumsum(rng.integers(5_000_000, 30_000_000, tokens))
    return RequestRecord(
        id=f"prompt-{index}",
        prompt_id=f"prompt-{index}",
        prompt_digest=f"{index:064x}",
        scheduled_ns=sent,
        sent_ns=sent + 10_000,
        arrivals_ns=Series(arrivals.astype("<i8")),
        ended_ns=int(arrivals[-1]),
        finish_reason="length",
        token_ids=Series(rng.integers(0, 49_152, tokens).astype("<u4")),
        text="word " * tokens,
        logprobs=Series(-rng.exponential(1.0, tokens)),
        usage=Usage(prompt_tokens=100, cached_tokens=0, completion_tokens=tokens),
    )


def _measure(paths: list[Path]) -> tuple[float, float, float]:
    """Wall seconds, processor seconds, peak MB of one comparison in a process of its own."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", COMPARE, *map(str, paths)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the comparison exited with {process.returncode}")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        packed = [Path(folder) / f"packed-{side}.json" for side in ("base", "head")]
        lists = [Path(folder) / f"lists-{side}.json" for side in ("base", "head")]
        for seed, (one, other) in enumerate(zip(packed, lists, strict=True)):
            record = large_record(arguments.requests, arguments.tokens, seed)
            write_record(one, record)
            write_text(other, record.model_dump_json())
        print(
            f"two records of {arguments.requests:,} requests x {arguments.tokens} tokens, best of "
            f"{arguments.repeat}\n"
        )
        print("| encoding | MB a record | wall s | processor s | peak MB |\n| --- | --- | --- | --- | --- |")
        for name, paths in (("as written", packed), ("JSON lists", lists)):
            wall, cpu, peak = min(_measure(paths) for _ in range(arguments.repeat))
            print(f"| {name} | {paths[0].stat().st_size / 1e6:.0f} | {wall:.2f} | {cpu:.2f} | {peak:.0f} |")


if __name__ == "__main__":
    main()
