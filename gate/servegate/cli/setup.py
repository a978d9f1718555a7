"""`doctor`, `schema` and `init`: the first five minutes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from servegate.cli.measure import PATH
from servegate.cli.output import emit, say

if TYPE_CHECKING:
    from servegate.suite.export import Kind

FILES = ("suite", "prompts", "record", "facts", "verdict")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else, to stdout.")
def doctor(as_json: bool) -> None:
    """Say what is installed, what is missing, and the command for it."""
    import json

    from servegate.doctor import diagnose

    findings = diagnose()
    if as_json:
        emit(json.dumps({"findings": [finding.model_dump() for finding in findings]}, indent=2) + "\n")
        return
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        fix = f"; run: {finding.fix}" if finding.fix else ""
        emit(f"{finding.status:<10}  {finding.name:<{width}}  {finding.found}{fix}\n")


@click.command()
@click.argument("kind", type=click.Choice(FILES), default="suite", metavar=f"[{'|'.join(FILES)}]")
def schema(kind: Kind) -> None:
    """Print the JSON Schema of the suite, or of another file."""
    from servegate.suite.export import schema_text

    emit(schema_text(kind))


@click.command()
@click.argument("directory", type=PATH, default=".", metavar="[DIRECTORY]")
def init(directory: Path) -> None:
    """Write a small suite to start from into DIRECTORY.

    It runs as it stands. The default is the current directory; nothing is overwritten.
    """
    from servegate.suite.export import init_files

    files = init_files(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
        say(f"wrote {path}")
    suite = directory / "servegate.yaml"
    emit(f"next: servegate model fetch smollm2-135m && servegate baseline update {suite}\n")
