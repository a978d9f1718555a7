"""No bytes in a title, a branch, an id or a model's words yield an output, a command or a heading."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import cmarkgfm
import github_events as events
import pytest
from github_fake import FakeGitHub
from hypothesis import given, settings
from hypothesis import strategies as st
from post_runs import Job, outputs, record
from test_comment import EVIL

from servegate.github.runner_files import write_outputs

Post = Callable[..., int]
LINES = ["\n", "\r", "\r\n", "EOF", "verdict=pass", "a<<b", "servegate-", "::error::x", "\u2028", "\x85"]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(LINES) | st.text(max_size=5), max_size=8).map("".join))
def test_an_output_holds_what_it_was_given_and_no_other_appears(value: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "output"
        write_outputs({"GITHUB_OUTPUT": str(file)}, {"first": value, "last": "1"})
        text = file.read_bytes().decode()
    read = outputs(text.replace("\r\n", "\n").replace("\r", "\n"))  # the strictest reading of a line's end
    assert set(read) == {"first", "last"}
    kept = value.encode("utf-8", "replace").decode()
    assert outputs(text)["first"] == kept


@pytest.mark.parametrize("evil", [text for text in EVIL if "\ud800" not in text])
def test_title_and_branch_reach_neither_log_nor_comment_nor_outputs(
    job: Job, post: Post, github: FakeGitHub, capfd: pytest.CaptureFixture[str], evil: str
) -> None:
    github.add_pull(1, fork=True, branch=evil)
    job.event("workflow_run", events.workflow_run(branch=evil, title=evil))
    job.measured(record(tokens=6, text=evil, prompt=evil))
    assert post("--begin") == 0
    assert post() == 1
    told = capfd.readouterr()
    lines = [line for line in (told.out + told.err).splitlines() if line.lstrip().startswith("::")]
    assert all(line.startswith("::error title=servegate") for line in lines)
    assert set(job.outputs) == {"base-sha", "outcome", "exit-code"}
    html = cmarkgfm.github_flavored_markdown_to_html(
        github.bodies[0], cmarkgfm.cmark.Options.CMARK_OPT_UNSAFE
    )
    assert html.count("<h3>") == 1
    assert html.count("<a ") == 1
    assert "<img" not in html
    assert evil.strip() not in github.bodies[0]


def test_a_secret_in_an_artifact_is_masked_wherever_it_is_told(
    job: Job, post: Post, github: FakeGitHub, capfd: pytest.CaptureFixture[str]
) -> None:
    token, value = "ghp_" + "a1B2" * 9, "p4ss-word-of-40"
    job.environment["DEPLOY_TOKEN"] = value
    measured = record(tokens=6, prompt=f"p {token}")
    job.measured(measured.model_copy(update={"notes": (f"measured with {value} and {token}",)}))
    assert post() == 1
    said = capfd.readouterr()
    assert "note: measured with *** and ***" in said.out
    assert "measured with &#42;&#42;&#42; and" in job.summary
    told = [said.out, said.err, job.summary, *github.bodies, str(github.statuses), str(job.outputs)]
    assert not any(secret in text for secret in (token, value) for text in told)
