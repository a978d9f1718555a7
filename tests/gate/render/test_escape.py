"""Hostile text, through GitHub's own Markdown parser and through a runner's command parser."""

import re
from html.parser import HTMLParser

import cmarkgfm
import pytest

from servegate.render.escape import clean, code, defuse, prose

HOSTILE = [
    "x|y",
    "x\\|y",
    "x\\\\|y||z",
    "a`b``c",
    "`",
    "<script>alert(1)</script>",
    "</details></td></table><h1>hi</h1>",
    "-->",
    "![x](https://evil.example/p.png)",
    "[x](javascript:alert(1))",
    "https://evil.example www.evil.example ftp://evil.example",
    "mail me@evil.example",
    "@octocat @org/team",
    "&#64;octocat &lt;b&gt;",
    "#123 owner/repo#1 GH-12",
    "line\nbreak\r\n# heading\u2028::error::x\v\f",
    "```\n# heading\n```",
    "~~gone~~ **bold** _em_ $x$",
    "\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "bidi\u202etxt\u2066 zero\u200bwidth\ufeff soft\u00adhyphen",
    "lone \ud83d surrogate",
    "",
    "\\",
    "trailing \\",
    "::set-output name=x::y",
]


class _Page(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def github(markdown: str) -> _Page:
    return _Page(cmarkgfm.github_flavored_markdown_to_html(markdown, cmarkgfm.cmark.Options.CMARK_OPT_UNSAFE))


@pytest.mark.parametrize("escape", [code, prose])
@pytest.mark.parametrize("text", HOSTILE)
def test_one_cell_stays_one_cell_with_nothing_in_it(escape, text: str) -> None:
    page = github(f"| a | b |\n| --- | --- |\n| {escape(text)} | end |\n")
    assert page.tags.count("td") == 2
    assert set(page.tags) <= {"table", "thead", "tbody", "tr", "th", "td", "code"}
    assert page.text.rstrip().endswith("end")


@pytest.mark.parametrize("escape", [code, prose])
@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_reader_sees_is_the_text(escape, text: str) -> None:
    page = github(f"| a |\n| --- |\n| {escape(text)} |\n")
    seen = page.text.replace("\u200b", "").split("a", 1)[1].strip()
    assert seen == clean(text)


@pytest.mark.parametrize("text", HOSTILE)
def test_prose_holds_nothing_that_github_refers_to(text: str) -> None:
    """Mentions and issues are found in the decoded text, so an entity would not do."""
    seen = github(f"- {prose(text)}\n").text
    assert not re.search(r"@\w|#\w|://|www\.|GH-\d", seen)


def test_clean_keeps_what_people_write() -> None:
    assert clean("Größe 30 days, 東京 é ✅") == "Größe 30 days, 東京 é ✅"
    assert clean("x" * 400, 10) == "x" * 9 + "…"


@pytest.mark.parametrize(
    "line", ["::error::x", "  ::error::x", "\x1b[31m::error::x", "a ##[error]x", "##vso[task.x]y", "##VSO[x]"]
)
def test_no_line_of_a_log_is_a_command(line: str) -> None:
    """GitHub: `::name::` after blanks, `##[name]` anywhere. Azure: `##vso[`."""
    safe = defuse(f"first\n{line}\n")
    assert not re.search(r"^(\s|\x1b\[[0-9;]*m)*::", safe, re.MULTILINE)
    assert "##[" not in safe
    assert "##vso[" not in safe.lower()


def test_test_ids_stay_readable() -> None:
    assert defuse("tests/test_a.py::test_b") == "tests/test_a.py::test_b"
