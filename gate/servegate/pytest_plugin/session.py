"""What the whole pytest run has in common: its options, its base commit, its place among xdist's workers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from servegate.basecommit import BaseCommit, find_base
from servegate.baseline import refuse_in_ci
from servegate.errors import UsageError

if TYPE_CHECKING:
    from servegate.pytest_plugin.measuring import SuiteRun


@dataclass
class Session:
    root: Path
    updating: bool
    in_ci: bool
    """Baselines may be written in CI: it was asked for by its own name."""
    reference: str | None
    """As --servegate-base has it."""
    base: BaseCommit | None
    workers: int
    shared: Path | None
    """A folder that all xdist workers of this run see; None without xdist."""
    runs: dict[Path, SuiteRun] = field(default_factory=dict)
    """Suite files that were measured in this process."""
    metrics: dict[str, dict[str, float | str]] = field(default_factory=dict)
    """Test id to what was measured in it, for pytest-benchmark's JSON."""

    @property
    def header(self) -> str | None:
        return f"servegate: judged by base {self.base.said}" if self.base is not None else None


_SESSION = pytest.StashKey[Session]()


def session_of(config: pytest.Config) -> Session:
    """Made when it is first needed. UsageError where the base commit is not to be had."""
    if _SESSION not in config.stash:
        config.stash[_SESSION] = _opened(config)
    return config.stash[_SESSION]


def check_options(config: pytest.Config) -> None:
    """Before anything is collected. pytest's UsageError for options that cannot work."""
    update = config.getoption("servegate_update")
    if update and config.getoption("servegate_base"):
        raise pytest.UsageError("--servegate-update writes this tree's baselines: it has no use for a base")
    try:
        refuse_in_ci(update != "local")
    except UsageError:
        raise pytest.UsageError(
            "--servegate-update: refused in CI, where nobody looks; run it locally and commit the baselines, "
            "or say --servegate-update=force"
        ) from None
    try:
        session_of(config)
    except UsageError as error:
        raise pytest.UsageError(f"--servegate-base: {error}") from None


def _opened(config: pytest.Config) -> Session:
    update: str | None = config.getoption("servegate_update")
    reference: str | None = config.getoption("servegate_base")
    worker: dict[str, Any] = getattr(config, "workerinput", {})
    basetemp = config.getoption("basetemp", None)
    return Session(
        root=config.rootpath,
        updating=update is not None,
        in_ci=update == "force",
        reference=reference,
        base=find_base(config.rootpath, reference) if reference else None,
        workers=int(worker.get("workercount", 1)),
        # xdist puts every worker's folder into one of the run's.
        shared=Path(basetemp).parent if worker and basetemp else None,
    )
