"""The verdict as GitHub shows it, rendered by GitHub's own parser."""

import re
from html.parser import HTMLParser

import cmarkgfm
import pytest

from servegate.render import markdown
from servegate.verdict import EnvironmentChange, Outcome, State, Verdict

OURS = {
    "h3",
    "ul",
    "li",
    "strong",
    "code",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "p",
    "details",
    "summary",
}

EVIL = [
    "a|b||c\\|d",
    "`code` ``x``",
    "<img src=x onerror=alert(1)></details>",
    "![i](https://evil.example/x.png) [l](https://evil.example)",
    "@octocat #12 GH-1 https://evil.example www.evil.example me@evil.example",
    "\n\n# heading\n\n- item\n\n---\n| x |\n",
    "-->\n<!-- x",
    "\n::error::x\n/merge\n",
]


class _Page(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.cells: list[list[str]] = []
        self.prose = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)
        self.open.append(tag)
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self.open.remove(tag)

    def handle_data(self, data: str) -> None:
        if "td" in self.open:
            self.cells[-1][-1] += data
        if "code" not in self.open:
            self.prose += data


def page(told: Verdict, **options) -> _Page:
    text = markdown.render(told, **options)
    return _Page(cmarkgfm.github_flavored_markdown_to_html(text, cmarkgfm.cmark.Options.CMARK_OPT_UNSAFE))


def test_table_reads_as_the_terminal_does(row, verdict) -> None:
    seen = page(verdict(row()), suite="s.yaml")
    assert seen.cells[1] == [
        "latency.ttft_p95",
        "100 ms",
        "150 ms",
        "50 % slower",
        "+10 % and 20 ms",
        "regressed",
    ]
    assert "FAIL: ttft_p95 50 % slower" in seen.prose
    assert "servegate baseline update s.yaml" in markdown.render(verdict(row()), suite="s.yaml")


def test_a_pass_folds_what_did_not_move(row, verdict) -> None:
    same = row(metric="steps", unit="", base=3.0, head=3.0, change=0.0, state=State.PASS)
    text = markdown.render(verdict(same, outcome=Outcome.PASS, exit_code=0, headline="PASS: 1 row"))
    assert text.startswith("### ✅ PASS: 1 row")
    assert "1 more row unchanged" in text
    assert "| metric" not in text
    assert "If this change is meant" not in text


@pytest.mark.parametrize("evil", EVIL)
def test_hostile_text_makes_no_cell_tag_link_or_mention(row, verdict, evil: str) -> None:
    told = verdict(
        row(workload=evil, metric=evil, base=evil, head=evil, change=None, tolerance=evil, reason=evil),
        row(metric=evil, state=State.NOT_COMPARABLE, reason=evil),
        row(metric=evil, state=State.NEW, base=None, reason=evil, gating=False),
        row(metric=evil, state=State.IMPROVED, head=1e6, change=-0.9, reason=evil),
        headline=evil,
        notes=(evil,),
        environment=(EnvironmentChange(group="served", name=evil, base=evil, head=evil),),
    )
    seen = page(told, suite=evil)
    assert set(seen.tags) <= OURS
    assert [len(cells) for cells in seen.cells] == [6, 6, 6, 6, 3, 3]
    assert seen.tags.count("h3") == 1
    assert seen.tags.count("details") == 1
    assert not seen.open
    assert not re.search(r"@\w|#\w|://|www\.|GH-\d", seen.prose)
    lines = markdown.render(told, suite=evil).splitlines()
    assert not [line for line in lines if re.match(r"\s*(::|/|<!--)", line)]


def test_details_may_quote_a_model_and_stay_out(row, verdict) -> None:
    assert "secret words" not in markdown.render(verdict(row(detail=("secret words of the model",))))


def test_what_no_filter_escaped_is_escaped_all_the_same() -> None:
    assert markdown._escaped("<b>|") == "&#60;b&#62;&#124;"
