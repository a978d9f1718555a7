"""`baseline update` and `baseline show`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import click

from servegate.cli.measure import BASELINES, HISTORY, SUITE
from servegate.cli.output import emit, say


@click.group()
def baseline() -> None:
    """Show or update what a suite is compared with."""


@baseline.command()
@SUITE
@BASELINES
@click.option("--reason", metavar="TEXT", help="Why the change is accepted; kept in the baseline.")
@click.option("--in-ci", is_flag=True, help="Allow it where CI is set.")
@HISTORY
def update(
    suite: Path, baselines: Path | None, reason: str | None, in_ci: bool, history: Path | None
) -> None:
    """Measure SUITE, show old and new, and write its baselines."""
    from servegate import pipeline
    from servegate.progress import reporting
    from servegate.signals import ending_in_order

    with ending_in_order(), reporting(sys.stderr) as progress:
        done = pipeline.update_baselines(
            suite, baselines, reason=reason, in_ci=in_ci, progress=progress, history=history
        )
    _lines(done.changes or ("nothing changed",))
    for path in done.written:
        say(f"wrote {path}")


@baseline.command()
@SUITE
@BASELINES
def show(suite: Path, baselines: Path | None) -> None:
    """Print what is stored for SUITE: for which machine, since when, and every value."""
    from servegate import pipeline
    from servegate.errors import NoDataError
    from servegate.files import read_facts
    from servegate.render import stored
    from servegate.suite.loading import load_suite

    folder = (baselines or pipeline.default_baselines(suite)) / load_suite(suite).suite.name
    files = sorted(folder.rglob("*.json"))
    if not files:
        raise NoDataError(f"{folder}: no baseline yet; `servegate baseline update {suite}` makes one")
    for path in files:
        _lines(stored.lines(str(path), read_facts(path)))


def _lines(lines: Iterable[str]) -> None:
    """Names of prompts and machines stand in them."""
    from servegate.render.escape import clean, defuse

    emit(
        defuse("".join(f"{' ' * (len(line) - len(line.lstrip(' ')))}{clean(line, 500)}\n" for line in lines))
    )
