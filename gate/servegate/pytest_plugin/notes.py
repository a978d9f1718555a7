"""What was judged, on its way from the test to the report: JUnit's properties and the table at the end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from rich.table import Table
from rich.text import Text

from servegate.errors import ServegateError
from servegate.masking import Secrets, masked
from servegate.pytest_plugin import PROPERTY
from servegate.render import terminal
from servegate.render.escape import clean
from servegate.wording import count

T = TypeVar("T")

UPDATED = "updated"


def shown(value: T) -> T:
    """``value`` as it may stand in a report: secrets of this environment are masked."""
    return masked(value, Secrets.of(os.environ))


def note(
    item: pytest.Item,
    name: str,
    verdict: str,
    seen: str,
    *,
    suite: Sequence[str] = (),
    extra: dict[str, Any] | None = None,
) -> None:
    """Leave a judgement in the test's report. ``suite``: lines on the suite that it is a row of."""
    content: dict[str, Any] = {
        "test": item.nodeid,
        "name": name,
        "verdict": verdict,
        "seen": seen,
        # Counted by pytest-rerunfailures: a pass after two failures does not read like a pass.
        "attempt": getattr(item, "execution_count", 1) or 1,
    }
    if suite:
        content["suite"] = list(suite)
    if extra:
        content["extra_info"] = extra
    item.user_properties.append((PROPERTY, json.dumps(shown(content), default=str)))


@contextmanager
def readable() -> Iterator[None]:
    """A fault that a person is meant to read fails the test with its message and no traceback."""
    try:
        yield
    except ServegateError as error:
        # From None: or pytest shows the message twice.
        raise pytest.fail.Exception(f"servegate: {clean(shown(str(error)), 2000)}", pytrace=False) from None


def summary(notes: Sequence[dict[str, Any]], style: terminal.Style) -> str:
    """The end of the run: each suite, a table of what was judged, what to do with written baselines."""
    console = terminal.console_for(style)
    for lines in dict.fromkeys(tuple(entry["suite"]) for entry in notes if "suite" in entry):
        console.print(Text(clean(lines[0], 600), "bold"), soft_wrap=True)
        for line in lines[1:]:
            console.print(Text(f"  {clean(line, 600)}"), soft_wrap=True)
    shown = [entry for entry in notes if "suite" not in entry or entry["verdict"] not in ("pass", UPDATED)]
    rerun = {entry["test"] for entry in notes if entry["attempt"] > 1}
    if shown:
        console.print(_table(shown, rerun))
    passed = sum(entry["verdict"] == "pass" for entry in notes if "suite" in entry)
    if passed:
        console.print(Text(f"not shown: {count(passed, 'row')} of suites, which passed"))
    updated = len({tuple(e.get("suite", (e["test"], e["name"]))) for e in notes if e["verdict"] == UPDATED})
    if updated:
        console.print(Text(f"{count(updated, 'baseline')} written; review them with `git diff baselines/`"))
    return terminal.finished(console)


def _table(notes: Sequence[dict[str, Any]], rerun: set[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("test", "judged", "verdict", "seen"):
        table.add_column(heading, overflow="fold")
    for entry in notes:
        attempt = f" (attempt {entry['attempt']})" if entry["test"] in rerun else ""
        name = "" if "suite" in entry else entry["name"]  # a row's is in its test id
        cells = (entry["test"], name, f"{entry['verdict']}{attempt}", entry["seen"])
        table.add_row(*(Text(clean(cell)) for cell in cells))
    return table
