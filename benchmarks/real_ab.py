"""`make real-ab`: does `servegate ab` cry wolf on this machine, and does it find what was made worse?

    python benchmarks/real_ab.py                        all of it: hours, on a machine with nothing else to do
    python benchmarks/real_ab.py --only A/A --runs 40
    python benchmarks/real_ab.py --only "decode +10 %" --runs 5 --budget 10m

Each run is one `servegate ab` in a temporary clone of this repository's HEAD. For A/A it is the quickstart
against itself. For the others the clone has two more commits: a base with rules for what is injected, and a
head that changes the configuration, or whose `sitecustomize` slows the engine from outside.

Prints a Markdown table. A row says how many of its runs took place; what did not run is said to be not run.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from servegate.machine import machine_facts
from servegate.verdict import State, Verdict

ROOT: Final = Path(__file__).resolve().parent.parent
SUITE: Final = Path("examples/quickstart/servegate.yaml")
INJECT: Final = "inject"
"""Folder of the clone that both arms import from first."""

POLICY: Final = """\
policy:
  completion_tokens: {change: 5%}
  kv_concurrency: {change: 0%}
  ttft_p95: {change: 10%}
  itl_p50: {change: 2%}
  stall_p95: {change: 20%}
"""
"""A rule for each injection. The quickstart's own are too wide to see 5 %, as a gate for everyone must be."""

SLOWER_STEPS: Final = """\
import time
from servegate_engine.backends.torch_backend import TorchBackend

forward = TorchBackend.forward

def slower(self, batch):
    began = time.perf_counter()
    logits = forward(self, batch)
    if {when}(part.length > 1 for part in batch.sequences):
        time.sleep({share} * (time.perf_counter() - began))
    return logits

TorchBackend.forward = slower
"""
DECODE, PREFILL = "not any", "any"

STALL: Final = """\
import time
from servegate_engine.engine import Engine

run = Engine._run

def stalling(self, scheduled):
    if any(request.meter.completion == 5 for request in scheduled):
        time.sleep(0.2)
    run(self, scheduled)

Engine._run = stalling
"""


@dataclass(frozen=True)
class Case:
    name: str
    row: str | None
    """The metric that must regress; None where none may."""
    sitecustomize: str = ""
    edit: tuple[str, str] = ("", "")
    """Of the suite's text, in head."""


def _slower(name: str, row: str, when: str, share: float) -> Case:
    return Case(name, row, SLOWER_STEPS.format(when=when, share=share))


CASES: Final = (
    Case("A/A", None),
    _slower("decode +5 %", "itl_p50", DECODE, 0.05),
    _slower("decode +10 %", "itl_p50", DECODE, 0.10),
    _slower("decode +20 %", "itl_p50", DECODE, 0.20),
    Case("one 200 ms stall a request", "stall_p95", STALL),
    _slower("prefill +50 %", "ttft_p95", PREFILL, 0.50),
    # No end of text before 40 tokens, where the quickstart's answers have 20 on average.
    Case(
        "completions doubled", "completion_tokens", edit=("max_tokens: 96", "max_tokens: 96, min_tokens: 40")
    ),
    Case("KV pool -5 %", "kv_concurrency", edit=("num_blocks: 256", "num_blocks: 243")),
)


@dataclass
class Seen:
    """What the runs of one case gave."""

    verdicts: list[Verdict] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """The last line of each run that gave no verdict."""


def main() -> int:
    args = _arguments()
    chosen = [case for case in CASES if args.only in (None, case.name)]
    seen: dict[str, Seen] = {}
    try:
        for case in chosen:
            seen[case.name] = Seen()
            _measure(case, args.runs, args.budget, seen[case.name])
    except KeyboardInterrupt:
        print("interrupted: the table holds the runs that were finished", file=sys.stderr)
    print(_report([_line(case, seen.get(case.name), args.runs) for case in CASES]))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [case.name for case in CASES]
    told = ", ".join(names).replace("%", "%%")
    parser.add_argument("--only", choices=names, metavar="NAME", help=f"one case: {told}")
    parser.add_argument("--runs", type=int, default=40, metavar="N", help="runs of each case (default: 40)")
    parser.add_argument(
        "--budget", default="5m", metavar="TIME", help="of each run's timed part (default: 5m)"
    )
    args = parser.parse_args()
    if args.runs < 1:
        parser.error("--runs must be at least 1")
    return args


def _measure(case: Case, runs: int, budget: str, seen: Seen) -> None:
    with tempfile.TemporaryDirectory(prefix="servegate-real-ab-") as folder:
        clone = Path(folder) / "clone"
        _clone(case, clone)
        for number in range(1, runs + 1):
            print(f"{case.name}: run {number} of {runs}", file=sys.stderr, flush=True)
            _run(case, clone, budget, Path(folder) / f"out-{number}", seen)


def _clone(case: Case, clone: Path) -> None:
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    if case.row is None:
        return
    suite, injected = clone / SUITE, clone / INJECT / "sitecustomize.py"
    injected.parent.mkdir()
    injected.touch()
    suite.write_text(suite.read_text().partition("policy:\n")[0] + POLICY)
    _commit(clone, "base")
    old, new = case.edit
    text = suite.read_text()
    if old not in text:
        raise SystemExit(f"{case.name}: {SUITE} has no {old!r} to change")
    suite.write_text(text.replace(old, new) if old else text)
    # The last line: Python goes on where a sitecustomize fails, and the case would count as a miss.
    injected.write_text(f"{case.sitecustomize}\ninjected = True\n")
    _commit(clone, "head")
    subprocess.run(
        [sys.executable, "-c", "import sitecustomize; sitecustomize.injected"],
        env={**os.environ, "PYTHONPATH": str(injected.parent)},
        check=True,
    )


def _commit(clone: Path, message: str) -> None:
    who = ("-c", "user.name=real-ab", "-c", "user.email=real-ab@example.org", "-c", "commit.gpgsign=false")
    git = ["git", "-C", str(clone), *who]
    subprocess.run([*git, "add", "--all"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--no-verify", "--message", message], check=True)


def _run(case: Case, clone: Path, budget: str, out: Path, seen: Seen) -> None:
    """One `servegate ab`, as a user runs it: its verdict is read from what it saves."""
    sides = ["--base", "HEAD"] if case.row is None else ["--base", "HEAD~1", "--pythonpath", INJECT]
    command = ["-m", "servegate", "ab", str(SUITE), *sides, "--budget", budget, "--out", str(out)]
    done = subprocess.run([sys.executable, *command], cwd=clone, capture_output=True, text=True, check=False)
    saved = out / "verdict.json"
    if saved.is_file():
        seen.verdicts.append(Verdict.model_validate_json(saved.read_text(encoding="utf-8")))
    else:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        seen.failures.append(lines[-1])


def _line(case: Case, seen: Seen | None, runs: int) -> str:
    """The case's row of the table."""
    wanted = case.row or "none"
    if seen is None or not (seen.verdicts or seen.failures):
        return f"| {case.name} | {wanted} | not run | | | | |"
    regressed = [_regressed(verdict) for verdict in seen.verdicts]
    of = len(regressed)
    right = sum(case.row in rows if case.row else not rows for rows in regressed)
    others = Counter(row for rows in regressed for row in rows if row != case.row)
    beside = ", ".join(f"{row} ({times} of {of})" for row, times in others.most_common()) or "none"
    outcomes = Counter(verdict.outcome.value for verdict in seen.verdicts)
    outcomes += Counter(f"no verdict: {failure}" for failure in seen.failures)
    ended = ", ".join(f"{outcome} ({times})" for outcome, times in outcomes.most_common())
    said = seen.verdicts[-1].headline if seen.verdicts else ""
    ran = of + len(seen.failures)
    cells = (case.name, wanted, f"{ran} of {runs}", f"{right} of {of}", beside, ended, said)
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _regressed(verdict: Verdict) -> set[str]:
    return {r.metric for r in verdict.comparison.rows if r.gating and r.state is State.REGRESSED}


def _report(lines: Sequence[str]) -> str:
    machine = machine_facts()
    sha = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"],
        capture_output=True,
        text=True,
        check=True,
    )
    command = shlex.join(["python", "benchmarks/real_ab.py", *sys.argv[1:]])
    return "\n".join(
        [
            f"{dt.datetime.now(dt.UTC):%Y-%m-%d}, {machine['cpu']}, {machine['cores']} cores, "
            f"{machine['memory']}, commit {sha.stdout.strip()}. Made by `{command}`.",
            "",
            "| case | row that must regress | runs | right | others regressed | outcomes | last headline |",
            "| --- | --- | ---: | ---: | --- | --- | --- |",
            *lines,
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
