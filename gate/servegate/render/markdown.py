"""The verdict as GitHub Markdown. Details of rows stay out: they may quote what a model wrote."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from servegate.render import commands, words
from servegate.render.escape import Markdown, code, prose
from servegate.render.view import Group, allowed, folded_in_words, judged, name, view
from servegate.verdict import Outcome, Verdict
from servegate.wording import count

MARKS = {Outcome.PASS: "✅", Outcome.INCONCLUSIVE: "⚠️", Outcome.NO_DATA: "⚠️"}


def render(verdict: Verdict, *, suite: str | None = None, everything: bool = False) -> str:
    text = (
        environment()
        .get_template("markdown.md.jinja")
        .render(
            verdict=verdict,
            seen=view(verdict, everything),
            mark=Markdown(MARKS.get(verdict.outcome, "❌")),
            accept=commands.accept(suite) if suite and verdict.outcome is not Outcome.PASS else "",
            name=name,
            names=names,
            pair=words.pair,
            change=words.change,
            judged=judged,
            allowed=allowed,
            folded=folded_in_words,
            count=count,
        )
    )
    return text.strip() + "\n"


def names(group: Group) -> Markdown:
    more = f" and {group.unnamed} more" if group.unnamed else ""
    return Markdown(", ".join(code(name(row)) for row in group.named) + more)


def _escaped(value: Any) -> Any:
    """What no filter has made Markdown is prose from outside."""
    return value if isinstance(value, Markdown) else prose(str(value))


@cache
def environment() -> Environment:
    """Every template's: what is printed is escaped, whether or not the template thinks of it."""
    made = Environment(
        loader=PackageLoader("servegate", "render"),
        undefined=StrictUndefined,
        finalize=_escaped,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(code=code, prose=prose)
    return made
