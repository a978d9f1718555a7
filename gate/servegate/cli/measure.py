"""`check` and `run`: the commands that measure."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from servegate.cli.output import say, tell

if TYPE_CHECKING:
    from servegate.record import RunRecord

PATH = click.Path(path_type=Path)
SUITE = click.argument("suite", type=PATH)
BASELINES = click.option(
    "--baselines",
    type=PATH,
    metavar="DIR",
    help="Where baselines are kept.  [default: baselines/ beside SUITE]",
)
HISTORY = click.option(
    "--history", type=PATH, metavar="FILE", help="Also add this run to a history, for `servegate history`."
)
JSON = click.option(
    "--json", "as_json", is_flag=True, help="Print the verdict as JSON, and nothing else, to stdout."
)
VERBOSE = click.option("-v", "--verbose", is_flag=True, help="Show unchanged rows too.")


@click.command()
@SUITE
@BASELINES
@click.option(
    "--out",
    type=PATH,
    metavar="DIR",
    default="servegate-out",
    show_default=True,
    help="Where record, facts and verdict go.",
)
@click.option(
    "--base",
    metavar="REF",
    help="Take policy, pins and baselines from the commit where HEAD left this branch, tag or commit.",
)
@HISTORY
@JSON
@VERBOSE
def check(
    suite: Path,
    baselines: Path | None,
    out: Path,
    base: str | None,
    history: Path | None,
    as_json: bool,
    verbose: bool,
) -> int:
    """Measure SUITE, compare it with its baselines, judge. The main job."""
    from servegate import pipeline
    from servegate.progress import reporting
    from servegate.render.terminal import Next
    from servegate.signals import ending_in_order

    with ending_in_order(), reporting(sys.stderr) as progress:
        result = pipeline.check(suite, baselines, out, progress, base)
    if result.out is None:
        say(f"warning: {out} could not be written: this verdict is nowhere but here")
    if history is not None:
        remember(history, result.record, suite)
    saved = str(result.out / "verdict.json") if result.out is not None else None
    return tell(
        result.verdict, as_json=as_json, verbose=verbose, follow=Next(suite=str(suite), verdict=saved)
    )


def remember(file: Path, record: RunRecord, suite: Path) -> None:
    """A history that cannot be written changes no verdict."""
    from servegate.errors import UsageError
    from servegate.extract import facts
    from servegate.history import append
    from servegate.suite.loading import load_suite

    try:
        append(file, facts(record, load_suite(suite).suite))
    except UsageError as error:
        say(f"warning: {error}")


@click.command()
@SUITE
@click.option("--out", type=PATH, required=True, metavar="RECORD.json", help="File for the record.")
def run(suite: Path, out: Path) -> int:
    """Measure SUITE and write its record; judge nothing."""
    from servegate import pipeline
    from servegate.progress import reporting
    from servegate.signals import ending_in_order

    with ending_in_order(), reporting(sys.stderr) as progress:
        record = pipeline.measure(suite, out, progress)
    say(f"wrote {out}")
    return 0 if record.complete else 4
