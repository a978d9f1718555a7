"""The command group, and the one place where an exception becomes an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

from servegate import __version__
from servegate.cli import ab, baseline, compare, history, measure, model, post, report, setup
from servegate.cli.output import complain, flush, known_secrets
from servegate.errors import ExitCode, ServegateError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="servegate", message="%(prog)s %(version)s")
def cli() -> None:
    """A regression gate for LLM inference: measure a suite, hold it against its baselines, judge.

    \b
    Exit codes: 0 pass, 1 regression, 2 usage or configuration error,
    3 no comparable data or inconclusive where the policy says that fails,
    4 measurement failed, 70 internal error.
    """


for command in (
    measure.check,
    measure.run,
    ab.ab,
    compare.compare,
    compare.explain,
    history.history,
    baseline.baseline,
    post.post,
    report.report,
    model.model,
    setup.doctor,
    setup.schema,
    setup.init,
):
    cli.add_command(command)


def main(args: Sequence[str] | None = None) -> None:
    """Entry point of the console script. Never returns."""
    code = exit_code(args)
    flush()
    sys.exit(code)


def exit_code(args: Sequence[str] | None = None) -> int:
    try:
        result: Any = cli.main(args, prog_name="servegate", standalone_mode=False)
    except click.Abort:
        # click makes it of a Ctrl-C that no command took. There is no verdict, so none of the codes of one.
        return complain("interrupted; there is no verdict", ExitCode.MEASUREMENT_FAILED)
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        where = f" (see '{context.command_path} --help')" if context else ""
        return complain(error.format_message().rstrip(".") + where, ExitCode.USAGE)
    except ServegateError as error:
        return complain(str(error), error.exit_code)
    except OSError as error:
        return complain(f"{error.filename or 'file system'}: {error.strerror or error}", ExitCode.USAGE)
    except Exception as error:
        return _internal(error)
    return result if isinstance(result, int) else ExitCode.PASS


def _internal(error: Exception) -> int:
    if os.environ.get("SERVEGATE_TRACEBACK") == "1":
        sys.stderr.write(known_secrets().mask(traceback.format_exc()))
        hint = "please report this with the lines above"
    else:
        hint = "please report this with the output of the same command under SERVEGATE_TRACEBACK=1"
    what = f"internal: {type(error).__name__}: {' '.join(str(error).split())}"
    return complain(f"{what}; {hint} and of 'servegate doctor' to the issue tracker", ExitCode.INTERNAL)
