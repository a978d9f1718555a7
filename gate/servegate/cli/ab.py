"""`ab`: base and head measured in turn on this machine."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

import click

from servegate.cli.measure import HISTORY, JSON, PATH, SUITE, VERBOSE, remember
from servegate.cli.output import say, tell

_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(s|m|h)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}


def _duration(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """``90s``, ``5m``, ``1h`` -> ns."""
    match = _DURATION.fullmatch(value.strip())
    if match is None or float(match[1]) == 0:
        raise click.BadParameter(f"{value!r} is not a duration such as 90s, 5m or 1h", ctx, param)
    return int(float(match[1]) * _SECONDS[match[2]] * 1e9)


@click.command()
@SUITE
@click.option(
    "--base", metavar="REF", help="Compare with the commit where HEAD left this branch, tag or commit."
)
@click.option(
    "--budget",
    callback=_duration,
    metavar="TIME",
    default="5m",
    show_default=True,
    help="Time for the timed workloads; exact ones run once before.",
)
@click.option(
    "--launches", type=click.IntRange(2, 100), help="Starts of the arms.  [default: by the budget, up to 12]"
)
@click.option("--base-python", metavar="FILE", help="Interpreter of the base arm: another engine version.")
@click.option("--head-python", metavar="FILE", help="Interpreter of the head arm.")
@click.option("--base-url", metavar="URL", help="Server of the base arm, in place of its suite's target.url.")
@click.option("--head-url", metavar="URL", help="Server of the head arm.")
@click.option(
    "--pythonpath",
    metavar="DIR:DIR",
    help="Folders of each arm's own tree that its process imports from first.",
)
@click.option(
    "--out",
    type=PATH,
    metavar="DIR",
    default="servegate-out",
    show_default=True,
    help="Where record and verdict go.",
)
@HISTORY
@JSON
@VERBOSE
def ab(
    suite: Path,
    base: str | None,
    budget: int,
    launches: int | None,
    base_python: str | None,
    head_python: str | None,
    base_url: str | None,
    head_url: str | None,
    pythonpath: str | None,
    out: Path,
    history: Path | None,
    as_json: bool,
    verbose: bool,
) -> int:
    """Measure base and head of SUITE in turn on this machine, and judge.

    Base is a commit (--base), another interpreter (--base-python), another server (--base-url), or several of
    these. Each arm is a process of its own; the checkout is left as it is.
    """
    from servegate.ab.runner import Budget
    from servegate.ab.session import Request, run
    from servegate.progress import reporting
    from servegate.render.terminal import Next
    from servegate.signals import ending_in_order

    if not any((base, base_python, head_python, base_url, head_url)):
        raise click.UsageError("say what to compare with: --base REF, or another --base-python or --base-url")
    request = Request(
        suite=suite,
        base=base,
        budget=Budget(budget, launches),
        base_python=base_python,
        head_python=head_python,
        base_url=base_url,
        head_url=head_url,
        pythonpath=tuple(pythonpath.split(":")) if pythonpath else (),
        out=out,
    )
    with ending_in_order(), reporting(sys.stderr) as progress:
        result = run(request, progress)
    if result.out is None:
        say(f"warning: {out} could not be written: this verdict is nowhere but here")
    if history is not None:
        remember(history, result.head, suite)
    saved = str(result.out / "verdict.json") if result.out is not None else None
    return tell(result.verdict, as_json=as_json, verbose=verbose, follow=Next(verdict=saved))
