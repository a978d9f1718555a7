"""The HTML report as text: what is on it, that nothing from outside becomes markup, and how large it gets."""

import re
import tempfile
from base64 import b64encode
from dataclasses import replace
from functools import cache
from hashlib import sha256
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest
from bundles import SUITE, bundle, paired_bundle
from hypothesis import given, settings
from hypothesis import strategies as st

from servegate.cli.main import exit_code
from servegate.errors import UsageError
from servegate.history import Course, Point, append
from servegate.render.html import data, page
from servegate.render.html.data import Report
from servegate.verdict import EnvironmentChange, Evidence, Outcome, State

HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' onmouseover='alert(1)",
    "</title></style></svg><script>alert(1)</script>",
    "{{ 7 * 7 }}{% raw %}{# x #}",
    "<!-- --> ]]> <![CDATA[",
    "javascript:alert(1)",
    "\ud83d\x00\x1b[31m\u202eevil\u2066",
    "url(https://evil.example/x.png)",
]
ATTRIBUTES = {
    "aria-label", "charset", "class", "colspan", "content", "d", "fill", "font-size", "height", "href",
    "http-equiv", "id", "lang", "name", "role", "scope", "stroke", "stroke-dasharray", "stroke-linejoin",
    "stroke-width", "text-anchor", "transform", "viewbox", "width", "x", "y",
}  # fmt: skip
TAGS = {
    "body", "caption", "code", "defs", "desc", "details", "div", "figcaption", "figure", "h1", "h2", "h3",
    "head", "html", "li", "main", "meta", "p", "path", "pre", "span", "strong", "style", "summary", "svg",
    "table", "tbody", "td", "text", "th", "thead", "title", "tr", "ul", "use",
}  # fmt: skip


class Page(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.text = ""
        self.shown = ""
        """Outside of every `<details>`."""
        self.declarations: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if "details" not in self.open:
            self.shown += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data!r}")

    def handle_decl(self, decl: str) -> None:
        self.declarations.append(decl)


@cache
def example() -> Report:
    with tempfile.TemporaryDirectory() as folder:
        return data.read(bundle(Path(folder)))


@cache
def example_page() -> str:
    return page.render(example())


@cache
def example_seen() -> Page:
    return Page(example_page())


@pytest.fixture
def report() -> Report:
    return example()


@pytest.fixture
def verdict_alone() -> Report:
    """Nothing of the workloads is drawn."""
    return replace(example(), workloads=())


def with_mark(report: Report, mark: str) -> Report:
    """Every word of the verdict is ``mark``."""
    evidence = Evidence(
        interval=(-0.1, 0.2),
        blocks=8,
        launches=4,
        noise_floor=0.1,
        smallest_detectable=0.2,
        blocks_needed=None,
    )
    rows = [
        row.model_copy(
            update={
                "workload": mark,
                "metric": mark,
                "unit": mark,
                "tolerance": mark,
                "reason": mark,
                "detail": (mark, mark),
                "base": mark if row.kind == "exact" else row.base,
                "head": mark if row.kind == "exact" else row.head,
                "change": row.change,
                "evidence": evidence,
            }
        )
        for row in report.verdict.comparison.rows
    ]
    comparison = report.verdict.comparison.model_copy(
        update={
            "rows": tuple(rows),
            "notes": (mark,),
            "environment": (EnvironmentChange(group="served", name=mark, base=mark, head=mark),),
        }
    )
    verdict = report.verdict.model_copy(
        update={"headline": mark, "suite": mark, "comparison": comparison},
    )
    base = tuple(part.model_copy(update={"reason": mark, "created": mark}) for part in report.base)
    return replace(report, verdict=verdict, base=base)


def with_rows(report: Report, most: int) -> Report:
    """Less to draw: a few rows of the verdict, none of the workloads."""
    comparison = report.verdict.comparison.model_copy(update={"rows": report.verdict.comparison.rows[:most]})
    return replace(report, workloads=(), verdict=report.verdict.model_copy(update={"comparison": comparison}))


def course(
    workload: str = "behaviour",
    metric: str = "completion_tokens",
    machine: str | None = None,
    *,
    at: str = "2026-11-02",
    runs: int = 20,
) -> Course:
    """A level, then another one from the middle on; the last run was accepted."""
    points = [
        Point(at, at, i % 2 == 1, 159.0 if i < runs // 2 else 175.0, at if i == runs - 1 else None)
        for i in range(runs)
    ]
    return Course(workload, metric, machine, tuple(points))


def test_page_says_the_verdict_and_holds_every_part(report: Report) -> None:
    seen = example_seen()
    assert report.verdict.headline in seen.shown
    for heading in (
        "Rows", "Changes", "Quality against length and cost", "Engine counters",
        "Where the numbers come from", "Environment, base against head",
        "Logprobs on the base's completions", "Next",
    ):  # fmt: skip
        assert heading in seen.shown
    for chart in (
        "ttft: time to first token", "decode: gaps between tokens", "Change of every row",
        "throughput: completion tokens per second", "Tokens of each request, first round",
        "Completion length by prompt", "Quality checks passed over cost",
        "p0: head - base logprob, nat",
    ):  # fmt: skip
        assert chart in seen.shown
    assert "parts at 12: end → 12" in seen.shown
    assert "The base is a stored baseline, which keeps no request" in seen.shown
    assert "servegate baseline update SUITE" in seen.shown
    assert "the base was accepted because: first baseline" in seen.shown


def test_page_needs_nothing_and_allows_nothing() -> None:
    html, seen = example_page(), example_seen()
    assert seen.declarations == ["doctype html"]
    assert set(seen.tags) <= TAGS
    assert {name for name, _ in seen.attributes} <= ATTRIBUTES
    (style,) = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert ("content", policy) in seen.attributes
    assert not re.search(r"https?:|//\w|url\(|@import|javascript:", html)


def test_charts_can_be_read_out_and_tables_have_headers() -> None:
    html = example_page()
    charts = re.findall(r'<svg role="img".*?</svg>', html, re.DOTALL)
    assert len(charts) > 10
    for chart in charts:
        assert re.match(
            r'<svg role="img" viewBox="[\d .]+" aria-label="[^"]+"[^>]*><title>.+?</title><desc>.+?</desc>',
            chart,
        )
    assert html.count("<svg") == len(charts)
    assert html.count("<table>") == html.count("<thead>")
    assert all('scope="' in cell for cell in re.findall(r"<th\b[^>]*>", html))


def test_model_output_is_only_inside_closed_details(tmp_path: Path) -> None:
    seen = Page(page.render(data.read(bundle(tmp_path, said="secret words"))))
    assert "secret words" in seen.text
    assert "secret words" not in seen.shown
    assert "open" not in {name for name, _ in seen.attributes}


@settings(deadline=None, max_examples=15)
@given(st.one_of(st.sampled_from(HOSTILE), st.text(min_size=1, max_size=60)))
def test_no_text_of_a_verdict_or_history_becomes_markup(mark: str) -> None:
    short = with_rows(example(), 10)
    seen, plain = (
        Page(page.render(with_mark(short, text), [course(text, text, text, at=text)])) for text in (mark, "x")
    )
    assert seen.tags.count("svg") == 2
    assert seen.tags == plain.tags
    assert [name for name, _ in seen.attributes] == [name for name, _ in plain.attributes]
    assert not seen.open
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", seen.text)


@pytest.mark.parametrize("mark", [text for text in HOSTILE if "\ud83d" not in text])
def test_no_text_of_a_record_becomes_markup(tmp_path: Path, mark: str) -> None:
    """Ids, answers, counters, finish reasons, fingerprints."""
    seen = Page(page.render(data.read(bundle(tmp_path, mark=mark))))
    assert seen.tags == example_seen().tags
    assert {name for name, _ in seen.attributes} <= ATTRIBUTES


def test_templates_never_mark_a_text_as_safe() -> None:
    folder = files("servegate.render.html")
    sources = [item.read_text() for item in folder.iterdir() if item.name.endswith((".jinja", ".py"))]
    assert len(sources) > 5
    assert not [text for text in sources if re.search(r"\|\s*safe|autoescape false", text)]
    marking = [item.name for item in folder.iterdir() if item.is_file() and "Markup(" in item.read_text()]
    assert marking == ["svg.py"]  # what it makes is serialized from a tree, whose words are escaped there


def test_attributes_are_quoted() -> None:
    folder = files("servegate.render.html")
    for item in folder.iterdir():
        if item.name.endswith(".jinja"):
            assert not re.findall(r"=\{\{", item.read_text())


@pytest.mark.slow
def test_ten_thousand_requests_stay_under_two_megabytes(tmp_path: Path) -> None:
    report = data.read(bundle(tmp_path, requests=10_000, tokens=64))
    html = page.render(report)
    assert len(html.encode()) < 2_000_000
    assert "32 of 10,000 requests" in html
    assert "200 points of" in html
    assert "30 of 10,000 prompts" in html
    many = replace(report, workloads=tuple(replace(report.workloads[1], name=f"w{n}") for n in range(40)))
    html = page.render(many)
    assert len(html.encode()) < 2_000_000
    assert "Not drawn, to keep this page small: w8, w9" in html


def test_paired_arms_are_drawn_side_by_side_with_their_evidence(tmp_path: Path) -> None:
    report = data.read(paired_bundle(tmp_path))
    html = page.render(report)
    seen = Page(html)
    assert report.paired
    assert "stored baseline, which" not in seen.shown
    assert "How far timed rows can be trusted" in seen.shown
    for arm in ("base", "head"):
        assert html.count(f">{arm} p95 ") > 5  # the dot on each curve
        assert html.count(f"<title>{arm} p0: first token ") == 2  # the wait and the tokens
    assert "servegate ab SUITE --base REF" in seen.shown


def test_without_a_base_the_head_is_still_drawn(report: Report) -> None:
    alone = replace(report, base=(), workloads=tuple(replace(w, base=None) for w in report.workloads))
    seen = Page(page.render(alone))
    assert "No base to draw." in seen.shown
    assert "ttft: time to first token" in seen.shown


def test_only_what_was_compared_with_a_stored_baseline_can_be_accepted(verdict_alone: Report) -> None:
    report = verdict_alone
    failed = report.verdict.model_copy(update={"outcome": Outcome.FAILED})
    for other in (replace(report, verdict=failed), replace(report, paired=True)):
        assert "servegate baseline update" not in Page(page.render(other)).shown
    assert "servegate ab SUITE --base REF" in Page(page.render(replace(report, paired=True))).shown


def test_nothing_measured_is_a_page_all_the_same(report: Report) -> None:
    empty = replace(with_rows(report, 0), base=())
    assert Page(page.render(empty)).tags.count("h1") == 1


def test_colours_have_contrast_in_both_schemes() -> None:
    """WCAG 2: 4.5 to 1 for text."""
    css = (files("servegate.render.html") / "report.css").read_text()
    schemes = [
        dict(re.findall(r"--(\w+): (#\w{6});", block)) for block in re.findall(r":root \{([^}]*)\}", css)
    ]
    assert len(schemes) == 3
    for colours in schemes:
        for text in ("text", "faint", "base", "head", "bad", "good", "warn"):
            for ground in ("page", "panel"):
                assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_history_is_drawn_where_it_is_given_and_says_that_it_does_not_judge(verdict_alone: Report) -> None:
    report = verdict_alone
    gating = next(row for row in report.verdict.comparison.rows if row.metric == "completion_tokens")
    plain, html = page.render(report), page.render(report, [course(gating.workload), course("x", "y")])
    seen = Page(html)
    assert "<h2>History</h2>" not in plain
    assert "<h2>History</h2>" in html
    assert "Not part of the verdict" in seen.shown
    assert html.count('<svg role="img"') == plain.count('<svg role="img"') + 1
    assert html.count(">+10 %</text>") == plain.count(">+10 %</text>") + 1
    assert "moved 159 tokens -> 175 tokens (+10 %)" in seen.text
    assert seen.text.count("accepted: 2026-11-02") == 3  # in the chart's words, at the dot, in the table
    assert html.count('<th scope="col">what happened</th>') == 1
    assert "The file holds no run of them yet." in Page(page.render(report, [])).shown


def test_history_is_of_this_machine_first_and_stays_small(verdict_alone: Report) -> None:
    report = verdict_alone
    row = next(row for row in report.verdict.comparison.rows if row.gating and row.kind == "timed")
    here = report.head.fingerprint.hardware_key
    many = [course(row.workload, row.metric, machine, runs=200) for machine in [*map(str, range(30)), here]]
    html = page.render(report, many)
    assert len(html) - len(page.render(report)) < 500_000
    machines = re.findall('<p class="note">on ([^<]*)</p>', html)
    assert len(machines) == 16
    assert machines[0] == here
    assert "15 more lines not drawn" in html
    assert html.count("newest 60 of 200 runs") == 16
    assert html.count("1 earlier change not shown") == 16


@pytest.mark.parametrize("values", [[0.0], [0.0, 0.0], [1e-9, 1e9], [0.0] * 8 + [5.0] * 8])
def test_history_of_any_values_is_drawn(verdict_alone: Report, values: list[float]) -> None:
    report = verdict_alone
    row = next(row for row in report.verdict.comparison.rows if row.gating)
    points = tuple(Point("2026-11-02", None, False, value, None) for value in values)
    html = page.render(report, [Course(row.workload, row.metric, None, points)])
    assert html.count("no commit") >= len(values)
    assert not re.search(r'(?:x|y|d|transform)="[^"]*(?:nan|inf)', html)


def test_command_writes_what_was_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = bundle(tmp_path)
    assert exit_code(["report", str(out)]) == 0
    assert "<h1" in (out / "report.html").read_text(encoding="utf-8")
    (out / "report.html").unlink()
    assert exit_code(["report", str(out), "--junit", str(tmp_path / "j.xml")]) == 0
    assert not (out / "report.html").exists()
    assert "<testsuites" in (tmp_path / "j.xml").read_text(encoding="utf-8")
    assert "wrote" in capsys.readouterr().err


def test_command_draws_a_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, file = bundle(tmp_path), tmp_path / "history.sqlite"
    append(file, data.read(out).head)
    before = (out / "verdict.json").read_bytes()
    assert exit_code(["report", str(out), "--history", str(file)]) == 0
    text = (out / "report.html").read_text(encoding="utf-8").split("<h2>History</h2>")[1]
    assert "completion_tokens" in text
    assert (out / "verdict.json").read_bytes() == before
    assert exit_code(["report", str(out), "--history", str(tmp_path / "none")]) == 2
    junit = ["--junit", str(tmp_path / "j.xml")]
    assert exit_code(["report", str(out), *junit, "--history", str(file)]) == 2
    assert "give --html FILE too" in capsys.readouterr().err


def test_files_that_do_not_give_the_verdict_are_said_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = bundle(tmp_path)
    text = (out / "verdict.json").read_text(encoding="utf-8")
    (out / "verdict.json").write_text(text.replace("FAIL: ", "PASS: "), encoding="utf-8")
    assert exit_code(["report", str(out)]) == 4
    assert "Not to be trusted" in (out / "report.html").read_text(encoding="utf-8")
    assert "do not give the verdict" in capsys.readouterr().err


def test_no_folder_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        data.read(tmp_path / "nowhere")


def test_the_suite_of_these_tests_fails_as_meant(report: Report) -> None:
    states = {row.metric: row.state for row in report.verdict.comparison.rows if row.gating}
    assert states["completion_tokens"] is State.REGRESSED
    assert report.suite == SUITE
