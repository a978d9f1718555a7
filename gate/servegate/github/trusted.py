"""Record + suite and baselines of the base commit -> verdict. The artifact's own opinion is not asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from servegate.ab.judging import judge_ab
from servegate.ab.record import AbRecord
from servegate.bundle import judge
from servegate.errors import ServegateError, UsageError
from servegate.github.artifact import Measured
from servegate.repository import commit_of, path_in_repository
from servegate.suite.loading import load_suite
from servegate.verdict import EXIT_CODES, Comparison, Outcome, Verdict


@dataclass(frozen=True)
class Trusted:
    """A checkout of the base commit."""

    suite: Path
    baselines: Path

    @property
    def commit(self) -> str | None:
        commit = commit_of(self.suite.parent) if self.suite.parent.is_dir() else None
        return commit.sha if commit is not None else None

    @property
    def shown(self) -> str:
        """The suite as it is typed in the repository's top folder."""
        return path_in_repository(self.suite) or self.suite.name

    def watched(self, suite_name: str) -> tuple[str, ...]:
        """Paths in the repository that decide the verdict: a pull request that changes them is told so."""
        paths = (path_in_repository(path) for path in (self.suite, self.baselines / suite_name))
        return tuple(path for path in paths if path is not None)


def verdict_of(record: Measured, trusted: Trusted) -> Verdict:
    """Judged by the base alone. What cannot be judged is a verdict too, and none that passes.

    Of paired arms the base was measured, not stored: its suite and policy judge, its baselines do not.
    """
    if not trusted.suite.is_file():
        return without_data(
            f"the base has no suite {trusted.suite.name} yet; it judges from the first merge on",
            Outcome.NO_DATA,
        )
    suite = load_suite(trusted.suite).suite
    suites = (
        {arm.suite for arm in (record.base, record.head)} if isinstance(record, AbRecord) else {record.suite}
    )
    if suites != {suite.name}:
        return without_data("the artifact is a record of another suite", Outcome.FAILED, suite.name)
    try:
        if isinstance(record, AbRecord):
            return judge_ab(record, suite)
        return judge(record, suite, trusted.baselines)
    except ServegateError:
        raise
    except (
        Exception
    ) as error:  # the record comes from outside: whatever it breaks, it gets no green mark for it
        return without_data(
            f"the artifact's numbers cannot be judged ({type(error).__name__})", Outcome.FAILED, suite.name
        )


def without_data(why: str, outcome: Outcome, suite: str = "unknown") -> Verdict:
    """A verdict with no rows, for which there are no measurements to show."""
    title = {Outcome.NO_DATA: "NO COMPARABLE DATA"}.get(outcome, "MEASUREMENT FAILED")
    return Verdict(
        suite=suite,
        outcome=outcome,
        exit_code=int(EXIT_CODES[outcome]),
        headline=f"{title}: {why}",
        comparison=Comparison(suite=suite, rows=(), complete=False),
    )


def refuse_own_tree(trusted: Trusted, *untrusted: str | None) -> None:
    """UsageError where the checkout is the pull request's own: it would be judged by what it brings."""
    commit = trusted.commit
    if commit is not None and commit in untrusted:
        raise UsageError(
            f"{trusted.suite}: commit {commit[:12]} is the pull request's own, which may not judge itself; "
            "check out its base and name the suite there"
        )
