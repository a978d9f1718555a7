"""`report`: a saved verdict as a page for people, or as JUnit XML for CI systems."""

from __future__ import annotations

from pathlib import Path

import click

from servegate.cli.measure import PATH
from servegate.cli.output import known_secrets, say
from servegate.errors import ExitCode, UsageError


@click.command()
@click.argument("directory", type=PATH, metavar="OUT_DIR")
@click.option(
    "--html",
    type=PATH,
    metavar="FILE",
    help="One HTML file: no script, no network.  [default: OUT_DIR/report.html, where --junit is not given]",
)
@click.option("--junit", type=PATH, metavar="FILE", help="JUnit XML: a test case for each row that gates.")
@click.option(
    "--history",
    type=PATH,
    metavar="FILE",
    help="Also draw in the HTML file what earlier commits measured, from the file of `check --history`.",
)
def report(directory: Path, html: Path | None, junit: Path | None, history: Path | None) -> int:
    """Write the report of a verdict that `check --out` or `ab --out` saved.

    Judges nothing: exits with 0, or with 4 where the saved files do not give the saved verdict.
    """
    from servegate.files import write_text
    from servegate.history import courses
    from servegate.render.html import data, page
    from servegate.render.junit import render as render_junit

    if html is None and junit is None:
        html = directory / "report.html"
    if html is None and history is not None:
        raise UsageError("--history is drawn in the HTML file only; give --html FILE too")
    read = data.read(directory, known_secrets())
    found = courses(history, read.verdict.suite) if history is not None else None
    for path, text in (
        (html, page.render(read, found) if html is not None else ""),
        (junit, render_junit(read.verdict) if junit is not None else ""),
    ):
        if path is not None:
            write_text(path, text)
            say(f"wrote {path}")
    if not read.holds:
        say(f"error: the files in {directory} do not give the verdict that is saved there")
        return int(ExitCode.MEASUREMENT_FAILED)
    return int(ExitCode.PASS)
