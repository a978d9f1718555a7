"""`compare` and `explain`: verdicts from saved files, with no target and no clock."""

from __future__ import annotations

from pathlib import Path

import click

from servegate.cli.measure import JSON, PATH, VERBOSE
from servegate.cli.output import emit, known_secrets, style, tell


@click.command()
@click.argument("base", type=PATH, metavar="BASE.json")
@click.argument("head", type=PATH, metavar="HEAD.json")
@click.option(
    "--suite", type=PATH, metavar="SUITE", help="Judge by this suite's policy; without it rows only inform."
)
@JSON
@VERBOSE
@click.option("--markdown", type=PATH, metavar="FILE", help="Also write the verdict as GitHub Markdown.")
def compare(
    base: Path, head: Path, suite: Path | None, as_json: bool, verbose: bool, markdown: Path | None
) -> int:
    """Judge two saved files, offline.

    BASE and HEAD are records or facts: what `run` and `check` write, or a stored baseline.
    """
    from servegate import pipeline
    from servegate.render.terminal import Next

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
