"""What a reviewer sees, through GitHub's own Markdown parser; and what nobody can make them see."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import cmarkgfm
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from servegate.github.annotations import command, lines
from servegate.render.comment import MAX_BYTES, Origin, render
from servegate.suite.schema import Policy
from servegate.verdict import Comparison, EnvironmentChange, Evidence, Outcome, Row, State, Verdict, decide

MARKER = "<!-- servegate gate=default v=1 -->"
RUN = "https://github.com/o/r/actions/runs/77/attempts/1"
OURS = {
    "h3", "ul", "li", "strong", "code", "table", "thead", "tbody", "tr", "th", "td", "p", "a",
    "details", "summary",
}  # fmt: skip
EVIL = [
    "a|b||c\\|d",
    "`code` ``x`` ```",
    "<img src=x onerror=alert(1)></details></td>",
    "![i](https://evil.example/x.png) [l](https://evil.example) [r]: https://evil.example",
    "@octocat @org/team #12 GH-1 https://evil.example www.evil.example me@evil.example",
    "\n\n# heading\n\n- item\n\n---\n| x |\n\nheading\n===\n",
    "-->\n<!-- servegate gate=default v=1",
    "\n::error::x\n/merge\n@dependabot merge",
    "~~~\n$$x$$ &lt;b&gt; &#64;octocat \u202e\u200b\x1b[31m\ud800",
]


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.rows: list[list[str]] = []
        self.links: list[str | None] = []
        self.prose = ""
        self.hidden = 0
        html = cmarkgfm.github_flavored_markdown_to_html(text, cmarkgfm.cmark.Options.CMARK_OPT_UNSAFE)
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "a":
            self.links.append(dict(attrs).get("href"))

    def handle_endtag(self, tag: str) -> None:
        self.open.remove(tag)

    def handle_comment(self, data: str) -> None:
        self.hidden += 1

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data
        if "code" not in self.open:
            self.prose += data


def row(**given: Any) -> Row:
    plain: dict[str, Any] = {
        "workload": "latency",
        "metric": "ttft_p95",
        "kind": "timed",
        "unit": "ns",
        "better": "lower",
        "gating": True,
        "base": 100e6,
        "head": 150e6,
        "change": 0.5,
        "tolerance": "+10 % and 20 ms",
        "state": State.REGRESSED,
        "reason": "100 ms -> 150 ms (+50 %)",
    }
    return Row(**(plain | given))


def verdict(*rows: Row, **more: Any) -> Verdict:
    return decide(Comparison(suite="support", rows=rows, **more), Policy())


def origin(**more: Any) -> Origin:
    plain: dict[str, Any] = {
        "head_sha": "a" * 40,
        "base_sha": "b" * 40,
        "run_url": RUN,
        "run_name": "run 77, attempt 1",
        "suite": "suites/servegate.yaml",
        "pull": 7,
        "hardware": "amd-epyc-1",
    }
    return Origin(**(plain | more))


def told(given: Verdict, **more: Any) -> str:
    return render(given, origin(**more), MARKER)


def test_the_first_line_says_verdict_number_and_cause() -> None:
    text = told(verdict(row()))
    assert text.startswith(f"{MARKER}\n### ❌ FAIL: ttft p95 rose in latency")
    assert "+50 %" in text.splitlines()[1]
    page = Page(text)
    assert page.rows[0] == ["metric", "base", "this PR", "change", "allowed", "verdict"]
    assert page.rows[1] == [
        "latency.ttft_p95", "100 ms", "150 ms", "50 % slower", "+10 % and 20 ms", "regressed",
    ]  # fmt: skip
    assert page.links == [RUN]


def test_interval_and_noise_floor_are_told_where_there_are_any() -> None:
    evidence = Evidence(
        interval=(0.42, 0.58),
        blocks=12,
        launches=4,
        noise_floor=0.021,
        smallest_detectable=None,
        blocks_needed=None,
    )
    page = Page(told(verdict(row(evidence=evidence))))
    assert page.rows[1][3] == "50 % slower (+42 % to +58 %)"
    assert "noise floor: base against base differed by up to 2.1 %" in page.prose
    assert "noise floor" not in told(verdict(row()))


def test_cost_stands_beside_quality_and_the_other_side_of_a_trade_is_told() -> None:
    text = told(
        verdict(
            row(),
            row(
                metric="cost_per_request",
                kind="cost",
                unit="USD",
                base=0.002,
                head=0.001,
                change=-0.5,
                state=State.IMPROVED,
            ),
            row(metric="decode_p95", head=50e6, change=-0.5, state=State.IMPROVED),
            row(
                metric="quality_pass_rate",
                kind="quality",
                unit="share",
                better="higher",
                base=1.0,
                head=0.75,
                change=-0.25,
            ),
        )
    )
    page = Page(text)
    assert "cost beside quality in" in page.prose
    assert "in exchange: `latency.decode_p95` 50 % faster" in text
    assert "in exchange: `latency.cost_per_request`" not in text, "said once"


def test_new_missing_renamed_are_told_and_what_did_not_move_is_folded() -> None:
    gone = row(metric="prompts missing", kind="prompt", base=None, head=2.0, change=None, state=State.MISSING)
    renamed = row(metric="workload", kind="workload", base=None, head=None, change=None, state=State.RENAMED)
    new = row(metric="prompts new", kind="prompt", base=None, head=1.0, change=None, state=State.NEW)
    same = row(metric="steps", head=100e6, change=0.0, state=State.PASS)
    page = Page(told(verdict(row(), gone, renamed, new, same)))
    assert all(word in page.prose for word in ("missing", "renamed", "new", "1 row unchanged"))
    assert page.rows[-1][3] == "same"


def test_the_table_has_no_lines_of_nothing_and_says_below_it_why() -> None:
    alone = row(metric="decode_p95", base=None, change=None, state=State.NOT_COMPARABLE, reason="no baseline")
    within = row(metric="error_rate", base=None, change=None, state=State.PASS)
    text = told(verdict(row(), alone, within))
    page = Page(text)
    assert [cells[0] for cells in page.rows] == [
        "metric", "latency.ttft_p95", "metric", "latency.decode_p95", "latency.error_rate",
    ]  # fmt: skip
    assert "2 rows unchanged, without a rule or without a base" in page.prose
    assert "- not comparable: `latency.decode_p95`: no baseline" in text


def test_a_reason_is_a_sentence_only_where_the_table_does_not_tell_it() -> None:
    slower, broken = (
        row(reason="100 ms -> 150 ms"),
        row(metric="e2e_p95", state=State.INVALID, reason="no clock"),
    )
    text = told(verdict(slower, broken))
    assert "- **invalid** `latency.e2e_p95`: no clock" in text
    assert "100 ms -&#62; 150 ms\n" not in text


def test_the_row_of_the_headline_stands_above_one_that_has_no_relative_change() -> None:
    from_zero = row(metric="logprob_delta", base=0.0, head=4.0, change=None, kind="logprob", unit="nat")
    assert [cells[0] for cells in Page(told(verdict(from_zero, row()))).rows[1:]] == [
        "latency.ttft_p95", "latency.logprob_delta",
    ]  # fmt: skip


def test_conway_600_the_commit_its_base_and_the_machine_are_always_there() -> None:
    for outcome in (verdict(row()), verdict(row(state=State.PASS, change=0.0, head=100e6))):
        text = told(outcome)
        assert "Commit `aaaaaaaaaaaa` against base `bbbbbbbbbbbb`, measured on `amd-epyc-1`" in text
        assert "git fetch origin pull/7/head && git checkout" in text


def test_accepting_is_explained_where_there_is_something_to_accept() -> None:
    assert "servegate baseline update suites/servegate.yaml" in told(verdict(row()))
    passed = verdict(row(state=State.PASS, change=0.0, head=100e6))
    assert "baseline update" not in told(passed)


def test_bencher_956_a_drop_to_zero_is_not_zero_percent() -> None:
    page = Page(
        told(verdict(row(kind="exact", unit="", metric="steps", base=3069448.0, head=0.0, change=-1.0)))
    )
    assert page.rows[1][3] == "100 % fewer"


def test_details_may_quote_a_model_and_stay_out() -> None:
    assert "secret words" not in told(verdict(row(detail=("secret words of the model",))))


def hostile(evil: str) -> str:
    """The evil text at every place that an artifact, a pull request or a checkout can fill."""
    given = verdict(
        row(workload=evil, metric=evil, base=evil, head=evil, change=None, tolerance=evil, reason=evil),
        row(workload=evil, metric="cost", kind="cost", unit=evil),
        row(workload=evil, metric="quality", kind="quality", unit=evil),
        row(metric=evil, state=State.NOT_COMPARABLE, reason=evil),
        row(metric=evil, state=State.NEW, base=None, reason=evil, kind="prompt"),
        row(metric=evil, state=State.IMPROVED, head=1e6, change=-0.9, reason=evil),
        row(metric=evil, state=State.PASS, head=100e6, change=0.0, reason=evil),
        notes=(evil,),
        environment=(EnvironmentChange(group="served", name=evil, base=evil, head=evil),),
    )
    return told(given, suite=evil, hardware=evil, changed=(evil, evil))


def check(text: str) -> None:
    page = Page(text)
    assert set(page.tags) <= OURS
    assert page.links == [RUN]
    assert page.tags.count("h3") == 1
    assert page.tags.count("details") == 3
    assert page.tags.count("table") == 3
    assert {len(cells) for cells in page.rows} == {6, 3}
    assert not page.open
    assert not re.search(r"@\w|#\w|://|www\.|GH-\d", page.prose)
    assert not [line for line in text.splitlines()[1:] if re.match(r"\s*(::|/|<!--|@)", line)]
    assert page.hidden == 1


@pytest.mark.parametrize("evil", EVIL)
def test_hostile_text_makes_no_cell_heading_link_mention_or_tag(evil: str) -> None:
    """fabrik#1141, dependabot-core#427, test-reporter#795, rustc-perf#1837, brakeman#1711."""
    check(hostile(evil))


PIECES = st.sampled_from(
    [*EVIL, "|", "`", "\\", "\n", "\r", "<", "](", "@a", "#1", "\u2028", "*", "_", "::", "/x"]
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(PIECES | st.text(max_size=6), min_size=1, max_size=6).map("".join))
def test_no_text_makes_any(evil: str) -> None:
    check(hostile(evil))


@settings(max_examples=150, deadline=None)
@given(st.lists(PIECES | st.text(max_size=6), min_size=1, max_size=6).map("".join))
def test_runner_807_no_text_begins_or_ends_a_workflow_command(evil: str) -> None:
    said = command("error", evil, evil)
    assert len(said.splitlines()) == 1
    assert re.fullmatch(r"::error title=[^:,\r\n]*::[^\r\n]*", said)


def many(rows: int, **more: Any) -> Verdict:
    failing = [row(metric=f"metric_{index}", change=0.5, **more) for index in range(rows)]
    passing = [row(metric=f"same_{index}", head=100e6, change=0.0, state=State.PASS) for index in range(rows)]
    return verdict(*passing, *failing)


def test_create_or_update_comment_181_three_thousand_metrics_fit() -> None:
    text = told(many(3000))
    assert len(text.encode()) <= MAX_BYTES
    page = Page(text)
    assert not page.open
    assert "Shortened" in text
    assert text.startswith(MARKER)


def test_failing_rows_are_the_last_to_go_and_the_worst_stay() -> None:
    worst = row(metric="worst", change=9.0, head=1e9)
    text = told(verdict(*many(2000).comparison.rows, worst))
    assert "latency.worst" in text
    assert "same_1" not in text
    assert Page(text).rows[1][0] == "latency.worst"


def test_docs_35252_bytes_are_counted() -> None:
    text = told(many(300, tolerance="🚀" * 60, reason="🚀" * 60))
    assert len(text.encode()) <= MAX_BYTES


def test_the_shortest_rung_fits_whatever_there_is() -> None:
    rows = [
        row(metric="|" * 200 + str(i), reason="|" * 400 + str(i), tolerance="|" * 400) for i in range(900)
    ]
    given = verdict(*rows, notes=("|" * 900,) * 200)
    text = render(given, origin(changed=("|" * 900,) * 10), MARKER)
    assert len(text.encode()) <= MAX_BYTES
    assert not Page(text).open
    assert "latency." in text, "even here the worst rows are named"


def test_every_value_of_the_templates_is_escaped() -> None:
    """A template that printed past `finalize` would be the only way around it."""
    from importlib import resources

    for name in ("comment.md.jinja", "comment_table.md.jinja", "markdown.md.jinja"):
        text = resources.files("servegate.render").joinpath(name).read_text()
        assert not re.search(r"\|\s*safe|autoescape|\bcall\b|\bmacro\b", text)


def test_a_regression_of_seventy_nine_rows_is_nine_annotations_and_a_headline() -> None:
    """graphql-inspector#1840, EnricoMi#212, lint-action#1005: GitHub shows ten of a step."""
    rows = [row(metric=f"m{index}", reason=f"reason {index}") for index in range(79)]
    assert len(list(lines(verdict(*rows)))) == 10
    assert list(lines(verdict(row(state=State.PASS, change=0.0, head=100e6)))) == []


def test_no_data_warns_and_does_not_pass() -> None:
    given = verdict()
    assert given.outcome is Outcome.NO_DATA
    assert next(lines(given)).startswith("::warning title=servegate::NO COMPARABLE DATA")
    assert "### ⚠️ NO COMPARABLE DATA" in told(given)
