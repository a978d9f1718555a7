"""Errors that a user is meant to read: one line each, with the exit code of the public table."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What `servegate` exits with. Public interface."""

    PASS = 0
    REGRESSION = 1
    USAGE = 2
    NO_DATA = 3
    """No comparable data, or inconclusive where the policy says that fails."""
    MEASUREMENT_FAILED = 4
    INTERNAL = 70


class ServegateError(Exception):
    """Base. ``str()`` says what happened, where, and what to do, on one line where possible."""

    exit_code = ExitCode.USAGE


class UsageError(ServegateError):
    """A suite, a file or a command line that cannot work as it stands."""


class NoDataError(ServegateError):
    """There is nothing to compare with."""

    exit_code = ExitCode.NO_DATA


class MeasurementError(ServegateError):
    """The target is down, or too much of the measurement failed."""

    exit_code = ExitCode.MEASUREMENT_FAILED
