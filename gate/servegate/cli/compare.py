"""`compare` and `explain`: verdicts from saved files, with no target and no clock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from servegate.cli.measure import JSON, PATH, VERBOSE
from servegate.cli.output import emit, known_secrets, style, tell

if TYPE_CHECKING:
    from servegate.verdict import Verdict


@click.command()
@click.argument("base", type=PATH, metavar="BASE.json")
@click.argument("head", type=PATH, metavar="HEAD.json")
@click.option(
    "--suite", type=PATH, metavar="SUITE", help="Judge by this suite's policy; without it rows only inform."
)
@click.option(
    "--change",
    metavar="SHARE",
    help="Of two pytest-benchmark files: how much slower a benchmark may get.  [default: 10%]",
)
@click.option(
    "--floor", metavar="TIME", help="And by at least how much; both must be exceeded.  [default: 1ms]"
)
@JSON
@VERBOSE
@click.option("--markdown", type=PATH, metavar="FILE", help="Also write the verdict as GitHub Markdown.")
def compare(
    base: Path,
    head: Path,
    suite: Path | None,
    change: str | None,
    floor: str | None,
    as_json: bool,
    verbose: bool,
    markdown: Path | None,
) -> int:
    """Judge two saved files, offline.

    BASE and HEAD are records or facts: what `run` and `check` write, or a stored baseline. Or both are files
    of `pytest --benchmark-json`.
    """
    from servegate import pipeline
    from servegate.render.terminal import Next

    if _is_benchmark_json(base) or _is_benchmark_json(head):
        verdict = _benchmarks(base, head, suite, change, floor)
    elif change is not None or floor is not None:
        raise click.UsageError("--change and --floor judge pytest-benchmark files; records need --suite")
    else:
        verdict = pipeline.compare_files(base, head, suite)
    follow = Next(suite=str(suite) if suite else None)
    return tell(verdict, as_json=as_json, verbose=verbose, follow=follow, markdown=markdown)


@click.command()
@click.argument("verdict", type=PATH, metavar="VERDICT.json")
def explain(verdict: Path) -> int:
    """Say why, row by row, recomputed from the saved files.

    They lie beside VERDICT.json, where `check` wrote them.
    """
    from servegate.explain import explain as explain_verdict
    from servegate.explain import render
    from servegate.masking import masked

    explanation = explain_verdict(verdict)
    emit(render(masked(explanation, known_secrets()), style()))
    return explanation.exit_code


def _benchmarks(base: Path, head: Path, suite: Path | None, change: str | None, floor: str | None) -> Verdict:
    from servegate.errors import UsageError
    from servegate.pytest_plugin.benchmark import judge_files

    other = next((path for path in (base, head) if not _is_benchmark_json(path)), None)
    if other is not None:
        raise UsageError(f"{other}: not a pytest-benchmark file, and the other one is: compare two of a kind")
    if suite is not None:
        raise click.UsageError("--suite has no rule for pytest-benchmark files: use --change and --floor")
    return judge_files(base, head, change, floor)


def _is_benchmark_json(path: Path) -> bool:
    """What cannot be read is for the reader of records to complain about."""
    try:
        content = path.read_bytes()
        # As keys, quotes and all, they stand in no text of a record: a large one is not read twice.
        if b'"benchmarks"' not in content or b'"machine_info"' not in content:
            return False
        keys = json.loads(content)
    except (OSError, ValueError):
        return False
    return isinstance(keys, dict) and {"benchmarks", "machine_info"} <= keys.keys()
