"""`make real-ab`: does `servegate ab` cry wolf on this machine, and does it find what was made worse?

    python benchmarks/real_ab.py                        all of it: hours, on a machine with nothing else to do
    python benchmarks/real_ab.py --only A/A --runs 40
    python benchmarks/real_ab.py --only "decode +10 %" --runs 5 --budget 10m

Each run is one `servegate ab` in a temporary clone of this repository's HEAD. For A/A it is the quickstart
against itself. For the others the clone has two more commits: a base with rules for what is injected, and a
head that changes the configuration, or whose `sitecustomize` slows the engine from outside.

Runs are kept and add up: `--runs 0` prints the table of all of them. A row says how many of its runs took
place; what did not run is said to be not run.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from servegate.machine import machine_facts
from servegate.model import Model
from servegate.stats.sequential import FIRST_CLAIM
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
        until = time.perf_counter() + {share} * (time.perf_counter() - began)
        while time.perf_counter() < until:
            pass  # busy: a CPU that slept comes back slower than what is injected
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
        until = time.perf_counter() + 0.2
        while time.perf_counter() < until:
            pass
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


class Run(Model):
    """What one `servegate ab` gave: a line of the file that runs are kept in."""

    case: str
    date: str
    commit: str
    budget: str
    outcome: str
    """Of the verdict; `no verdict` where there was none."""
    regressed: tuple[str, ...] = ()
    """Gating metrics."""
    inconclusive: tuple[str, ...] = ()
    launches: int = 0
    """How often the arms were started: below six, no change of a time is claimed."""
    said: str
    """The headline, or the last line of a run that gave no verdict."""


def main() -> int:
    args = _arguments()
    chosen = [case for case in CASES if args.only in (None, case.name)]
    try:
        for case in chosen:
            _measure(case, args.runs, args.budget, args.keep)
    except KeyboardInterrupt:
        print("interrupted: the table holds the runs that were finished", file=sys.stderr)
    kept = args.keep.read_text("utf-8").splitlines() if args.keep.is_file() else []
    print(_report([Run.model_validate_json(line) for line in kept]))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [case.name for case in CASES]
    told = ", ".join(names).replace("%", "%%")
    parser.add_argument("--only", choices=names, metavar="NAME", help=f"one case: {told}")
    parser.add_argument(
        "--runs", type=int, default=40, metavar="N", help="runs of each case to add (default: 40)"
    )
    parser.add_argument(
        "--budget", default="5m", metavar="TIME", help="of each run's timed part (default: 5m)"
    )
    parser.add_argument(
        "--keep",
        type=Path,
        default=ROOT / "benchmarks/real-ab.jsonl",
        metavar="FILE",
        help="where runs are kept, and add up over days (default: benchmarks/real-ab.jsonl)",
    )
    args = parser.parse_args()
    if args.runs < 0:
        parser.error("--runs must be at least 0, which prints the table alone")
    return args


def _measure(case: Case, runs: int, budget: str, keep: Path) -> None:
    if not runs:
        return
    with tempfile.TemporaryDirectory(prefix="servegate-real-ab-") as folder:
        clone = Path(folder) / "clone"
        _clone(case, clone)
        for number in range(1, runs + 1):
            print(f"{case.name}: run {number} of {runs}", file=sys.stderr, flush=True)
            run = _run(case, clone, budget, Path(folder) / f"out-{number}")
            with keep.open("a", encoding="utf-8") as file:
                file.write(run.model_dump_json() + "\n")


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


def _run(case: Case, clone: Path, budget: str, out: Path) -> Run:
    """One `servegate ab`, as a user runs it: its verdict is read from what it saves."""
    sides = ["--base", "HEAD"] if case.row is None else ["--base", "HEAD~1", "--pythonpath", INJECT]
    command = ["-m", "servegate", "ab", str(SUITE), *sides, "--budget", budget, "--out", str(out)]
    done = subprocess.run([sys.executable, *command], cwd=clone, capture_output=True, text=True, check=False)
    known = {
        "case": case.name,
        "date": f"{dt.datetime.now(dt.UTC):%Y-%m-%d}",
        "commit": _commit_of(ROOT),
        "budget": budget,
    }
    saved = out / "verdict.json"
    if not saved.is_file():
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return Run(**known, outcome="no verdict", said=lines[-1])
    verdict = Verdict.model_validate_json(saved.read_text(encoding="utf-8"))
    rows = [row for row in verdict.comparison.rows if row.gating]
    return Run(
        **known,
        outcome=verdict.outcome.value,
        regressed=tuple(row.metric for row in rows if row.state is State.REGRESSED),
        inconclusive=tuple(row.metric for row in rows if row.state is State.INCONCLUSIVE),
        launches=max((row.evidence.launches for row in rows if row.evidence), default=0),
        said=verdict.headline,
    )


def _commit_of(tree: Path) -> str:
    command = ["git", "-C", str(tree), "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _line(case: Case, runs: Sequence[Run]) -> str:
    """The case's row of the table."""
    wanted = case.row or "none"
    if not runs:
        return f"| {case.name} | {wanted} | not run | | | | | | |"
    found = [run for run in runs if run.outcome != "no verdict"]
    right = sum(case.row in run.regressed if case.row else not run.regressed for run in found)
    undecided = sum(case.row in run.inconclusive for run in found)
    launches = sorted({run.launches for run in found}) or [0]
    cells = (
        case.name,
        wanted,
        str(len(runs)),
        f"{right} of {len(runs)}" + (f", {undecided} inconclusive" if undecided else ""),
        _counted(row for run in found for row in {*run.regressed} - {case.row}),
        _counted(run.outcome for run in runs),
        " to ".join(map(str, launches if len(launches) < 2 else (launches[0], launches[-1]))),
        str(sum(run.launches >= FIRST_CLAIM for run in found)),
        runs[-1].said,
    )
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _counted(names: Iterable[str]) -> str:
    return ", ".join(f"{name} ({times})" for name, times in Counter(names).most_common()) or "none"


def _report(runs: Sequence[Run]) -> str:
    machine = machine_facts()
    days, commits, budgets = (
        ", ".join(sorted({getattr(run, name) for run in runs}, key=lambda text: (len(text), text)))
        for name in ("date", "commit", "budget")
    )
    return "\n".join(
        [
            f"{days}, {machine['cpu']}, {machine['cores']} cores, {machine['memory']}, commit {commits}, "
            f"budget {budgets}. Made by `python benchmarks/real_ab.py`.",
            "",
            "| case | row that must regress | runs | right | others regressed | outcomes | launches "
            f"| runs with {FIRST_CLAIM} or more | last headline |",
            "| --- | --- | ---: | ---: | --- | --- | ---: | ---: | --- |",
            *(_line(case, [run for run in runs if run.case == case.name]) for case in CASES),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
