"""`post`: on the pull request."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from servegate.cli.measure import PATH
from servegate.cli.output import emit, say, tell

if TYPE_CHECKING:
    from servegate.github.post import Posted

MODES = ("update", "recreate", "on-change", "on-failure", "off")
_GATE = re.compile(r"[a-z0-9][a-z0-9._-]{0,59}")


def _gate_id(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not _GATE.fullmatch(value):
        raise click.BadParameter("use lower-case letters, digits, '.', '_' and '-', at most 60")
    return value


@click.command()
@click.option("--suite", type=PATH, metavar="SUITE", help="The suite, in a checkout of the base commit.")
@click.option(
    "--baselines",
    type=PATH,
    metavar="DIR",
    help="Baselines, in the same checkout.  [default: baselines/ beside SUITE]",
)
@click.option(
    "--artifact", type=PATH, metavar="PATH", help="Folder, record.json or zip with what was measured."
)
@click.option(
    "--artifact-name",
    default="servegate",
    show_default=True,
    metavar="NAME",
    help="Without --artifact: fetch it from the run that measured.",
)
@click.option(
    "--id",
    "gate",
    default="default",
    show_default=True,
    callback=_gate_id,
    metavar="ID",
    help="One comment and one status each; for several gates on a pull request.",
)
@click.option(
    "--comment", type=click.Choice(MODES), default="update", show_default=True, help="When to write."
)
@click.option("--begin", is_flag=True, help="Only find the pull request and set its status pending.")
def post(
    suite: Path | None,
    baselines: Path | None,
    artifact: Path | None,
    artifact_name: str,
    gate: str,
    comment: str,
    begin: bool,
) -> int:
    """Judge what another job measured, by the base's suite and baselines, and say so on the pull request.

    Runs in GitHub Actions, with GITHUB_TOKEN set. What cannot be posted is a warning; the exit code is the
    verdict's.
    """
    from servegate.github import post as posting
    from servegate.github.comment import Mode
    from servegate.github.trusted import Trusted
    from servegate.pipeline import default_baselines

    if begin:
        _warn(posting.begin(gate, os.environ))
        return 0
    if suite is None:
        raise click.UsageError("--suite is missing: the suite in a checkout of the base commit")
    trusted = Trusted(suite, baselines or default_baselines(suite))
    job = posting.Job(trusted, gate, Mode(comment), artifact, artifact_name)
    return _told(posting.post(job, os.environ))


def _told(posted: Posted) -> int:
    """The verdict in the log, then the lines that GitHub reads: ours alone, all other text is defused."""
    from servegate.github import annotations
    from servegate.render.terminal import Next

    if posted.verdict is None:
        _warn(posted.notices)
        return 0
    tell(posted.verdict, as_json=False, verbose=False, follow=Next(suite=posted.accepted_in))
    _warn(posted.notices)
    emit("".join(f"{line}\n" for line in annotations.lines(posted.verdict)))
    return posted.verdict.exit_code


def _warn(notices: Iterable[str]) -> None:
    for notice in notices:
        say(f"warning: {notice}")
