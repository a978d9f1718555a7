import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from github_fake import FakeGitHub
from post_runs import Job

from servegate.cli.main import exit_code
from servegate.github import client


@pytest.fixture
def github() -> Iterator[FakeGitHub]:
    """The fake; a test in which anybody broke GitHub's contract fails."""
    with FakeGitHub() as fake:
        yield fake
    assert fake.faults == []


@pytest.fixture
def job(github: FakeGitHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """An open pull request, a base with a baseline of three tokens, and a client that never sleeps."""
    monkeypatch.setattr(client, "POLITE", client.Pace(0, 0, 0, 0))
    github.add_pull()
    return Job(tmp_path, github)


@pytest.fixture
def post(job: Job, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """`servegate post` with the job's environment; returns the exit code."""

    def run(*arguments: str) -> int:
        for name in [name for name in os.environ if name.startswith("GITHUB_")]:
            monkeypatch.delenv(name)
        for name, value in job.environment.items():
            monkeypatch.setenv(name, value)
        suite = () if "--begin" in arguments else ("--suite", str(job.base / "servegate.yaml"))
        return int(exit_code(["post", *suite, *arguments]))

    return run
