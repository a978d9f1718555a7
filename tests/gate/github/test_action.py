"""The composite Action: its shell steps run, and its text held to the rules that keep it safe."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from action_steps import ACTION, ROOT, Sandbox, action
from github_fake import BASE, FakeGitHub
from post_runs import Job, record

EVIL = 'x";touch pwned;"$(touch pwned)`touch pwned`\n::set-output name=a::b\nEOF'
MEASURES = """
import pathlib, sys
arguments = sys.argv[1:]
out = pathlib.Path(arguments[arguments.index("--out") + 1])
(out / "record.json").write_text("{}")
pathlib.Path("asked").write_text("\\n".join(arguments))
sys.exit(%d)
"""
POSTS = """
import sys
from servegate.github import client
client.POLITE = client.Pace(0, 0, 0, 0)
from servegate.cli import main
main()
"""


@pytest.mark.parametrize("code", [0, 1, 4])
def test_measure_keeps_the_exit_code_until_the_record_is_uploaded(tmp_path: Path, code: int) -> None:
    sandbox = Sandbox(tmp_path, {"mode": "measure", "suite": "s.yaml"}, MEASURES % code)
    assert sandbox.run() == code
    upload = next(step for step in action()["runs"]["steps"] if "upload-artifact" in step.get("uses", ""))
    assert Path(sandbox.expand(upload["with"]["path"])).read_text() == "{}"
    assert sandbox.expand(upload["with"]["name"]) == "servegate"
    asked = (sandbox.workspace / "asked").read_text().splitlines()
    assert asked[0] == "check"
    assert asked[-2:] == ["--", "s.yaml"]


def test_measure_with_a_base_runs_both_in_turn(tmp_path: Path) -> None:
    inputs = {"mode": "measure", "suite": "s.yaml", "base": "HEAD^1"}
    sandbox = Sandbox(tmp_path, inputs, MEASURES % 0)
    assert sandbox.run() == 0
    assert (sandbox.workspace / "asked").read_text().splitlines()[:3] == ["ab", "--base", "HEAD^1"]
    assert sandbox.outputs["measure"]["record"].endswith("/ab.json")


def test_the_environment_is_private_and_pinned(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, {"mode": "measure"}, MEASURES % 0)
    sandbox.run()
    assert list(sandbox.workspace.iterdir()) == [sandbox.workspace / "asked"]
    pip = (tmp_path / "pip").read_text().splitlines()
    assert pip[:3] == ["-m", "pip", "install"]
    assert "--constraint" in pip
    source, _, extra = pip[-1].partition("[")
    assert Path(source).resolve() == ROOT
    assert extra == "engine]"


@pytest.mark.parametrize("mode", ["", "measure; rm -rf /", EVIL])
def test_another_mode_is_refused_unsaid(tmp_path: Path, mode: str) -> None:
    sandbox = Sandbox(tmp_path, {"mode": mode}, MEASURES % 0)
    assert sandbox.run() == 2
    assert sandbox.log == '::error title=servegate::the input "mode" must be measure or post\n'


def test_edge_ai_350_combine_prs_no_input_is_read_as_shell(tmp_path: Path) -> None:
    """aimock#217, zshellcheck#176 too: inputs reach the shell as variables, never as text of the script."""
    measuring = Sandbox(tmp_path, {"mode": "measure", "suite": EVIL}, MEASURES % 0)
    measuring.run()
    assert (measuring.workspace / "asked").read_text().endswith(EVIL)
    (tmp_path / "p").mkdir()
    keep = "import pathlib, sys; pathlib.Path(sys.argv[2]).write_text('\\0'.join(sys.argv))"
    posting = Sandbox(tmp_path / "p", {"mode": "post", "suite": EVIL, "id": EVIL, "comment": EVIL}, keep)
    assert posting.run() == 0
    assert not list(tmp_path.rglob("pwned"))


def test_post_sets_pending_checks_out_the_base_and_posts(
    job: Job, github: FakeGitHub, tmp_path: Path
) -> None:
    job.measured(record(tokens=6))
    (tmp_path / "sandbox").mkdir()
    sandbox = Sandbox(tmp_path / "sandbox", {"mode": "post", "token": "t"}, POSTS)
    job.base.rename(sandbox.workspace / ".servegate-base")
    sandbox.environment = {key: value for key, value in job.environment.items() if key != "GITHUB_OUTPUT"}
    assert sandbox.run() == 1, sandbox.log
    checkout = next(step for step in action()["runs"]["steps"] if "checkout" in step.get("uses", ""))
    assert sandbox.expand(checkout["with"]["ref"]) == BASE, sandbox.log
    assert checkout["with"]["path"] == ".servegate-base"
    assert sandbox.outputs["post"] == {"outcome": "regressed", "exit-code": "1"}
    assert github.states == ["pending", "pending", "failure"]
    assert "FAIL" in github.bodies[0]


def test_every_nested_action_is_pinned_by_commit_with_its_version() -> None:
    uses = re.findall(r"uses: (.*)", ACTION.read_text())
    assert len(uses) == 2
    for used in uses:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", used)


def test_the_action_writes_neither_path_nor_environment() -> None:
    text = ACTION.read_text()
    assert "GITHUB_ENV" not in text
    assert "GITHUB_PATH" not in text


def test_posting_is_finished_whatever_the_checkout_did() -> None:
    post = next(step for step in action()["runs"]["steps"] if step.get("id") == "post")
    assert post["if"].startswith("always() && ")
