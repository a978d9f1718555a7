"""Tolerances beside the test: ``@pytest.mark.servegate(change="10%", floor="1ms")``."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from servegate.errors import UsageError
from servegate.pytest_plugin import MARKER, timing
from servegate.suite.schema import Rule

Tolerance = str | float | None


def tolerance(item: pytest.Item, change: Tolerance = None, floor: Tolerance = None) -> Rule:
    """What the call says, else what the test's marker says. UsageError where one says what it cannot."""
    marker = item.get_closest_marker(MARKER)
    given = dict(marker.kwargs) if marker else {}
    unknown = sorted(given.keys() - {"change", "floor"})
    if marker and (marker.args or unknown):
        what = unknown[0] if unknown else repr(marker.args[0])
        raise UsageError(f"marker servegate takes change= and floor=, not {what}")
    return timing.tolerance(
        given.get("change") if change is None else change, given.get("floor") if floor is None else floor
    )


def validate_markers(items: Sequence[pytest.Item]) -> None:
    """Before the first test runs, so that a typing mistake does not cost a measurement."""
    for item in items:
        try:
            tolerance(item)
        except UsageError as error:
            raise pytest.UsageError(f"{item.nodeid}: {error}") from None
