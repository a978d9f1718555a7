"""The figures of the HTML report: matplotlib's drawing, in the page's colours and under the page's policy."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.resources import files
from itertools import pairwise
from xml.etree import ElementTree as ET

import matplotlib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servegate.render.html.axis import ends, evenly, ticks
from servegate.render.html.figure import COLOURS, Chart, Sheet, sheet
from servegate.render.html.svg import inline


def drawn(sheet: Sheet, text: str = "a name") -> Chart:
    """A bit of everything."""
    plot = sheet.plot(200)
    plot.span_x([1.0, 3.0], text)
    plot.rows([text, "other"])
    plot.line([1, 2, 3], [0, 1, 0], "base", dashed=True, tip=text)
    plot.sticks([1, 2], 0, 1, "head")
    plot.dots([1, 2, 3], [0, 1, 1], "head", ["one", "two", text])
    plot.dots([3], [0], "faint", ["left"], marker="<")
    plot.mark(2, text, "bad", text)
    plot.say(text, (1, 1), (5, 5))
    plot.key({"base": "curve", "head": "tick"})
    return plot.chart(text, text)


def tree(chart: Chart) -> ET.Element:
    return ET.fromstring(chart.svg)


def test_colours_are_the_pages_own_in_light_and_its_variables_in_the_picture() -> None:
    css = (files("servegate.render.html") / "report.css").read_text()
    light = dict(re.findall(r"--(\w+): (#\w{6});", css.split("}")[0]))
    assert dict(COLOURS) == {role: light[role] for role in COLOURS}
    with sheet() as page:
        svg = drawn(page).svg
    assert not re.search(r"#[0-9a-f]{6}\b(?!-)", svg)
    used = set(re.findall(r'(?:fill|stroke)="([^"]*)"', svg))
    assert {"var(--base)", "var(--head)", "var(--bad)", "var(--text)", "var(--rule)"} <= used
    assert used <= {"none", *(f"var(--{role})" for role in COLOURS)}


def test_nothing_of_the_file_is_left_but_marks() -> None:
    with sheet() as page:
        svg = drawn(page).svg
    assert not re.search(r"style|xmlns|url\(|metadata|clip|<g\b|https?:|DejaVu|Matplotlib", svg)


def test_figures_of_a_page_share_no_id_and_point_at_their_own() -> None:
    with sheet() as page:
        charts = [tree(drawn(page)) for _ in range(3)]
    ids = [mark.attrib["id"] for chart in charts for mark in chart.iter() if "id" in mark.attrib]
    assert len(set(ids)) == len(ids) > 3
    for chart in charts:
        own = {mark.attrib.get("id") for mark in chart.iter()}
        assert {use.attrib["href"].removeprefix("#") for use in chart.iter("use")} <= own


def settings_of_matplotlib() -> dict[str, object]:
    """All but the backend, which is chosen where it is first asked for."""
    return {name: matplotlib.rcParams[name] for name in matplotlib.rcParams if name != "backend"}


def test_the_same_is_drawn_every_time_and_matplotlib_stays_as_it_was() -> None:
    before = settings_of_matplotlib()
    with sheet() as page:
        first = drawn(page)
    theirs = {"font.size": 30, "text.usetex": True, "axes.facecolor": "red"}
    with matplotlib.rc_context(theirs), sheet() as page:
        second = drawn(page)
    assert first == second
    assert settings_of_matplotlib() == before


@settings(deadline=None, max_examples=15)
@given(
    st.one_of(
        st.sampled_from(["$x^2$", r"\frac{1}{2}", "a\nb", "<b>&amp;", "", "日本 ไทย"]), st.text(max_size=30)
    )
)
def test_a_text_is_a_line_of_its_own_and_nothing_else(text: str) -> None:
    with sheet() as page:
        seen, plain = tree(drawn(page, text)), tree(drawn(page))
    assert [mark.tag for mark in seen.iter()] == [mark.tag for mark in plain.iter()]
    assert all("\n" not in (mark.text or "") for mark in seen.iter())


def test_a_text_is_never_a_formula() -> None:
    with sheet() as page:
        svg = drawn(page, r"pays $5 or $6_1$").svg
    assert svg.count(">pays $5 or $6_1$</text>") == 4


def test_dots_say_what_they_are() -> None:
    with sheet() as page:
        uses = [use.findtext("title") for use in tree(drawn(page)).iter("use")]
    assert [tip for tip in uses if tip] == ["one", "two", "a name", "left"]


def inlined(file: str, **tips: list[str]) -> str:
    variables = {"#1c2128": "var(--text)"}
    return inline(file, name="c1", title="t", says="s", variables=variables, tips=tips)


def test_what_is_not_known_to_be_harmless_is_left_out() -> None:
    svg = inlined(
        '<svg viewBox="0 0 1 1"><script>alert(1)</script><style>*{}</style><image href="x"/><a href="x"/>'
        '<path onclick="x" d="M 0.123456 1.0 \nL 2 3" '
        'style="fill: none; stroke: #1c2128; clip-path: url(#a)"/>'
        "<text x='1' y='2' style='font: 9px serif' transform='rotate(-0 1 2)'>&lt;i&gt;</text></svg>"
    )
    assert svg.endswith(
        '<path d="M 0.12 1 L 2 3" fill="none" stroke="var(--text)" />'
        '<text x="1" y="2" font-size="9">&lt;i&gt;</text></svg>'
    )


def test_a_colour_without_a_variable_or_a_tip_too_many_is_a_fault() -> None:
    with pytest.raises(KeyError):
        inlined('<svg><path d="M 0 0" style="fill: #ff0000"/></svg>')
    with pytest.raises(ValueError, match="zip"):
        inlined('<svg><g id="dots"><path d="M 0 0"/></g></svg>', dots=["one", "two"])


@given(
    st.lists(st.floats(-1e12, 1e12).map(lambda value: round(value, 12)), min_size=1, max_size=8),
    st.floats(0.01, 0.5),
    st.booleans(),
)
def test_an_axis_holds_its_values_and_names_few_of_them(values: list[float], air: float, zero: bool) -> None:
    low, high, log = ends(values, air, zero)
    assert low <= min(values)
    assert max(values) <= high
    assert low < high
    named = ticks(low, high, log, 5)
    assert 1 <= len(named) <= 12
    assert all(low <= tick <= high for tick in named)
    assert all(before < after for before, after in pairwise(named))


def test_ticks_are_round() -> None:
    assert ticks(0, 97, False, 5) == [0, 20, 40, 60, 80]
    assert ticks(1, 1e6, True, 5) == [1, 100, 1e4, 1e6]
    assert ticks(1, 100, True, 5) == [1, 3, 10, 30, 100]


def test_a_wide_range_of_positive_values_is_drawn_on_a_log_axis() -> None:
    assert ends([1, 100], 0.5) == (0.1, 1000, True)
    assert not ends([0, 100], 0.1)[2]
    assert ends([40, 100], 0.1, zero=True)[0] == 0


def test_evenly_keeps_both_ends() -> None:
    assert evenly(3, 5) == [0, 1, 2]
    assert evenly(10, 4) == [0, 3, 6, 9]


def test_only_the_page_loads_matplotlib_and_never_its_global_figures() -> None:
    program = (
        "import sys, servegate.render.terminal, servegate.render.markdown, servegate.render.junit\n"
        "before = 'matplotlib' in sys.modules\n"
        "import servegate.render.html.page\n"
        "print(before, 'matplotlib.figure' in sys.modules, 'matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "False"]
