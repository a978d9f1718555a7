"""What a suite measured over many commits: an SQLite file, one table a kind of fact. Never part of a verdict.

Slow drift stays below every pull request's tolerance; it shows here, after merge, as a change point.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from servegate.errors import UsageError
from servegate.facts import Facts
from servegate.files import digest
from servegate.metrics.table import METRICS
from servegate.stats.changepoint import ChangePoint, change_points

MIGRATIONS: Final = (
    """
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY,
        digest TEXT NOT NULL UNIQUE,
        suite TEXT NOT NULL,
        suite_digest TEXT NOT NULL,
        prompt_set_digest TEXT NOT NULL,
        created TEXT NOT NULL,
        sha TEXT,
        dirty INTEGER NOT NULL,
        hardware_key TEXT NOT NULL,
        accepted TEXT
    );
    CREATE TABLE samples (
        run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        workload TEXT NOT NULL,
        metric TEXT NOT NULL,
        value REAL NOT NULL,
        n INTEGER NOT NULL,
        PRIMARY KEY (run, workload, metric)
    );
    CREATE TABLE finish_reasons (
        run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        workload TEXT NOT NULL,
        reason TEXT NOT NULL,
        requests INTEGER NOT NULL,
        PRIMARY KEY (run, workload, reason)
    );
    CREATE TABLE fingerprints (
        run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        section TEXT NOT NULL,
        name TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (run, section, name)
    );
    """,
)
"""The n-th script brings a file of version n to version n + 1."""


@dataclass(frozen=True)
class Point:
    created: str
    sha: str | None
    dirty: bool
    value: float
    """In the metric's unit."""
    accepted: str | None
    """Why the run was accepted as a baseline: a new level starts here on purpose."""


@dataclass(frozen=True)
class Course:
    """One metric of one workload over time, oldest first; timed ones on one machine."""

    workload: str
    metric: str
    hardware_key: str | None
    """None for metrics that hold on every machine."""
    points: tuple[Point, ...]

    @property
    def changes(self) -> tuple[ChangePoint, ...]:
        """Where the level moved, accepted changes left out."""
        accepted = [i for i, point in enumerate(self.points) if point.accepted is not None]
        return change_points([point.value for point in self.points], accepted=accepted)


def append(path: Path, facts: Facts, accepted: str | None = None) -> None:
    """Add one run; the same run twice is kept once. An interrupted run is not added.

    ``accepted``: the reason for which it became the baseline. Raises UsageError where the file is of a newer
    servegate, is no history, or cannot be written.
    """
    if not facts.complete:
        return
    with _opened(path) as database:
        fingerprint, commit, identity = facts.fingerprint, facts.commit, digest(facts)
        known = database.execute("SELECT accepted FROM runs WHERE digest = ?", (identity,)).fetchone()
        database.execute("DELETE FROM runs WHERE digest = ?", (identity,))
        run = database.execute(
            "INSERT INTO runs (digest, suite, suite_digest, prompt_set_digest, created, sha, dirty,"
            " hardware_key, accepted) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                identity,
                facts.suite,
                facts.suite_digest,
                facts.prompt_set_digest,
                facts.created,
                commit.sha if commit else None,
                bool(commit and commit.dirty),
                fingerprint.hardware_key,
                accepted or (known[0] if known else None),
            ),
        ).lastrowid
        database.executemany(
            "INSERT INTO samples VALUES (?, ?, ?, ?, ?)",
            (
                (run, name, metric, sample.value, sample.n)
                for name, workload in facts.workloads.items()
                for metric, sample in workload.metrics.items()
                if sample.value is not None and not sample.invalid
            ),
        )
        database.executemany(
            "INSERT INTO finish_reasons VALUES (?, ?, ?, ?)",
            (
                (run, name, reason, requests)
                for name, workload in facts.workloads.items()
                for reason, requests in workload.finish_reasons.items()
            ),
        )
        database.executemany(
            "INSERT INTO fingerprints VALUES (?, ?, ?, ?)",
            (
                (run, section, name, value)
                for section in ("machine", "software", "served")
                for name, value in getattr(fingerprint, section).items()
            ),
        )


def courses(path: Path, suite: str) -> list[Course]:
    """Every metric of the suite, in the order of a report; timed ones of each machine apart.

    Raises UsageError where the file is missing or is no history.
    """
    if not path.is_file():
        raise UsageError(f"{path}: no such file; `servegate check --history {path}` adds a run to it")
    grouped: dict[tuple[str, str, str | None], list[Point]] = {}
    with _opened(path) as database:
        for workload, metric, hardware, *point in database.execute(
            "SELECT workload, metric, hardware_key, created, sha, dirty, value, accepted"
            " FROM samples JOIN runs ON runs.id = run WHERE suite = ? ORDER BY created, runs.id",
            (suite,),
        ):
            by_clock = metric not in METRICS or METRICS[metric].kind in ("timed", "cost")
            key = (workload, metric, hardware if by_clock else None)
            created, sha, dirty, value, accepted = point
            grouped.setdefault(key, []).append(Point(created, sha, bool(dirty), value, accepted))
    order = {name: place for place, name in enumerate(METRICS)}
    return [
        Course(*key, tuple(points))
        for key, points in sorted(
            grouped.items(),
            key=lambda item: (item[0][0], order.get(item[0][1], len(order)), item[0][2] or ""),
        )
    ]


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """The database, brought to this version; all of the block is written or none of it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(path, timeout=30, isolation_level=None)
    except (OSError, sqlite3.Error) as error:
        raise UsageError(f"{path}: cannot be opened as a history: {error}") from None
    try:
        database.execute("PRAGMA foreign_keys = ON")
        database.execute("BEGIN IMMEDIATE")
        _migrate(path, database)
        yield database
        database.execute("COMMIT")
    except sqlite3.Error as error:
        raise UsageError(f"{path}: not usable as a history: {error}") from None
    finally:
        database.close()


def _migrate(path: Path, database: sqlite3.Connection) -> None:
    version = int(database.execute("PRAGMA user_version").fetchone()[0])
    if version > len(MIGRATIONS):
        raise UsageError(
            f"{path}: a history of version {version}, and this servegate reads up to {len(MIGRATIONS)}; "
            "use the servegate that wrote it, or another file"
        )
    for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
        for statement in script.split(";"):  # executescript would commit half of it
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {number}")
