from collections.abc import Iterator

import pytest
from github_fake import FakeGitHub


@pytest.fixture
def github() -> Iterator[FakeGitHub]:
    """The fake; a test in which anybody broke GitHub's contract fails."""
    with FakeGitHub() as fake:
        yield fake
    assert fake.faults == []
