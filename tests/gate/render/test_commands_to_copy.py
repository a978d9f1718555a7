"""Commands that a reader copies do what they say, whatever a suite's path is called."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import cmarkgfm
import pytest
from bundles import SUITE, bundle, paired_bundle, record
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from servegate.bundle import judge, save
from servegate.files import read_record
from servegate.record import RunRecord, plain_path
from servegate.render import commands, comment, markdown, terminal
from servegate.render.comment import Origin
from servegate.render.html import data, page
from servegate.render.terminal import Next
from servegate.repository import path_in_repository
from servegate.verdict import Comparison, Outcome, Verdict

NAMES = [
    "servegate.yaml",
    "my suites/a b.yaml",
    "a/it's $(id) `x`;|&<b>*_[]!.yaml",
    "ä/日本.yaml",
    "a\"b#c'd.yaml",
]
VERDICT = Verdict(
    suite="s",
    outcome=Outcome.REGRESSED,
    exit_code=1,
    headline="FAIL: x",
    comparison=Comparison(suite="s", rows=()),
)
ORIGIN = Origin(
    head_sha="a" * 40,
    base_sha="b" * 40,
    run_url="https://github.com/o/r/actions/runs/1",
    run_name="run 1",
    suite="x",
)


def _plain(path: str) -> bool:
    try:
        return plain_path(path) == path
    except ValueError:
        return False


paths = st.sampled_from(NAMES) | st.text(min_size=1, max_size=40).filter(_plain)


def shown_code(text: str) -> list[str]:
    """What a reader sees, and copies, of the code in a piece of Markdown."""
    from html.parser import HTMLParser

    class Codes(HTMLParser):
        inside, found = False, [""]

        def handle_starttag(self, tag: str, attrs: object) -> None:
            self.inside = tag == "code"

        def handle_endtag(self, tag: str) -> None:
            if tag == "code":
                self.inside, self.found = False, [*self.found, ""]

        def handle_data(self, text: str) -> None:
            if self.inside:
                self.found[-1] += text

    codes = Codes()
    codes.feed(cmarkgfm.github_flavored_markdown_to_html(text, cmarkgfm.cmark.Options.CMARK_OPT_UNSAFE))
    return codes.found


@given(st.text(min_size=1).filter(lambda path: "\x00" not in path))
def test_a_shell_reads_the_path_as_one_word(path: str) -> None:
    assert shlex.split(commands.check(path)) == ["servegate", "check", path]
    assert shlex.split(commands.accept(path)) == ["servegate", "baseline", "update", path]
    assert shlex.split(commands.ab(path, "HEAD")) == ["servegate", "ab", path, "--base", "HEAD"]


@given(paths)
def test_what_is_copied_from_a_comment_or_a_terminal_is_the_command(path: str) -> None:
    told = shown_code(comment.render(VERDICT, replace(ORIGIN, suite=path)))
    assert commands.check(path) in told
    assert commands.accept(path) in told
    assert commands.accept(path) in shown_code(markdown.render(VERDICT, suite=path))
    assert f"accept, if it is meant: {commands.accept(path)}\n" in terminal.render(
        VERDICT, follow=Next(suite=path)
    )


def test_paired_arms_are_measured_again_and_no_baseline_takes_them() -> None:
    told = comment.render(VERDICT, replace(ORIGIN, suite="s.yaml", pull=7, paired=True))
    fetch = f"git fetch origin pull/7/head {'b' * 40} && git checkout {'a' * 40}"
    assert f"{fetch} && servegate ab s.yaml --base {'b' * 40}" in shown_code(told)
    assert "baseline update" not in told


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../a",
        "a/../b",
        "a//b",
        "./a",
        "a/",
        "-rf",
        "~/a",
        "a\\b",
        "a\nb",
        "a\u202eb",
        "a  b",
        "x" * 201,
    ],
)
def test_an_untrusted_record_names_a_plain_path_or_is_none(path: str) -> None:
    content = record(1, 2, "x", "").model_dump(mode="json") | {"schema_version": 1, "suite_path": path}
    with pytest.raises(ValidationError):
        RunRecord.model_validate(content)


def test_the_report_names_the_suite_where_it_is_known(tmp_path: Path) -> None:
    before = bundle(tmp_path)
    assert "servegate check SUITE" in page.render(data.read(before))
    head = read_record(before / "record.json").model_copy(update={"suite_path": "my suites/a.yaml"})
    save(judge(head, SUITE, tmp_path / "stored"), head, SUITE, tmp_path / "stored", tmp_path / "named")
    text = page.render(data.read(tmp_path / "named"))
    assert "servegate check &#39;my suites/a.yaml&#39;" in text
    assert "servegate baseline update &#39;my suites/a.yaml&#39;" in text
    assert "SUITE" not in text


def test_a_report_of_paired_arms_of_before_paths_were_kept_still_loads(tmp_path: Path) -> None:
    assert "servegate ab SUITE --base" in page.render(data.read(paired_bundle(tmp_path)))


def test_a_path_is_that_of_the_repository_wherever_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import subprocess

    folder = tmp_path / "repo" / "suites"
    folder.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(tmp_path / "repo")], check=True, timeout=60)
    monkeypatch.chdir(folder)
    assert path_in_repository(Path("a.yaml")) == "suites/a.yaml"
    assert path_in_repository(Path("-a.yaml")) == "suites/-a.yaml"
    assert path_in_repository(tmp_path / "repo" / "-a.yaml") is None
    assert path_in_repository(tmp_path / "b.yaml") is None
