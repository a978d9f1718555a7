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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from servegate.machine import machine_facts
from servegate.model import Model
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


class Run(Model):
    """What one `servegate ab` gave, as it is kept in the folder."""

    case: str
    commit: str
    verdict: Verdict | None
    failure: str | None = None
    """The last line of a run that gave no verdict."""


def main() -> int:
    args = _arguments()
    chosen = [case for case in CASES if args.only in (None, case.name)]
    args.keep.mkdir(parents=True, exist_ok=True)
    try:
        for case in chosen:
            _measure(case, args.runs, args.budget, args.keep)
    except KeyboardInterrupt:
        print("interrupted: the table holds the runs that were finished", file=sys.stderr)
    runs = [Run.model_validate_json(path.read_text("utf-8")) for path in sorted(args.keep.glob("*.json"))]
    print(_report(runs))
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
        default=ROOT / ".servegate/real-ab",
        metavar="FOLDER",
        help="where runs are kept, and add up over invocations (default: .servegate/real-ab)",
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
            kept = keep / f"{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S}-{os.getpid()}.json"
            kept.write_text(run.model_dump_json(), encoding="utf-8")


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
    saved = out / "verdict.json"
    if saved.is_file():
        verdict = Verdict.model_validate_json(saved.read_text(encoding="utf-8"))
        return Run(case=case.name, commit=_commit_of(ROOT), verdict=verdict)
    lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return Run(case=case.name, commit=_commit_of(ROOT), verdict=None, failure=lines[-1])


def _commit_of(tree: Path) -> str:
    command = ["git", "-C", str(tree), "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _line(case: Case, runs: Sequence[Run]) -> str:
    """The case's row of the table."""
    wanted = case.row or "none"
    if not runs:
        return f"| {case.name} | {wanted} | not run | | | | | |"
    verdicts = [run.verdict for run in runs if run.verdict is not None]
    regressed = [_regressed(verdict) for verdict in verdicts]
    right = sum(case.row in rows if case.row else not rows for rows in regressed)
    others = Counter(row for rows in regressed for row in rows if row != case.row)
    beside = ", ".join(f"{row} ({times})" for row, times in others.most_common()) or "none"
    outcomes = Counter(verdict.outcome.value for verdict in verdicts)
    outcomes += Counter(f"no verdict: {run.failure}" for run in runs if run.verdict is None)
    ended = ", ".join(f"{outcome} ({times})" for outcome, times in outcomes.most_common())
    launches = sorted(map(_launches, verdicts))
    told = f"{launches[0]} to {launches[-1]}" if launches else ""
    said = verdicts[-1].headline if verdicts else ""
    cells = (case.name, wanted, str(len(runs)), f"{right} of {len(runs)}", beside, ended, told, said)
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _regressed(verdict: Verdict) -> set[str]:
    return {r.metric for r in verdict.comparison.rows if r.gating and r.state is State.REGRESSED}


def _launches(verdict: Verdict) -> int:
    """How often the arms were started: below six, no change of a time is claimed."""
    return max((row.evidence.launches for row in verdict.comparison.rows if row.evidence), default=0)


def _report(runs: Sequence[Run]) -> str:
    machine = machine_facts()
    commits = ", ".join(sorted({run.commit for run in runs}))
    return "\n".join(
        [
            f"{dt.datetime.now(dt.UTC):%Y-%m-%d}, {machine['cpu']}, {machine['cores']} cores, "
            f"{machine['memory']}, commit {commits}. Made by `python benchmarks/real_ab.py`.",
            "",
            "| case | row that must regress | runs | right | others regressed | outcomes | launches "
            "| last headline |",
            "| --- | --- | ---: | ---: | --- | --- | ---: | --- |",
            *(_line(case, [run for run in runs if run.case == case.name]) for case in CASES),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
