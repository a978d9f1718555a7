"""Report -> one HTML page. What is shown and in which order; the template says how."""

from __future__ import annotations

import unicodedata
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from servegate.facts import Facts
from servegate.history import Course
from servegate.render import commands, words
from servegate.render.html.answers import Answer, lengths_chart, logprob_charts, trade_charts
from servegate.render.html.changes import changes_chart
from servegate.render.html.data import Report, Workload
from servegate.render.html.figure import Chart, Sheet, sheet
from servegate.render.html.past import past
from servegate.render.html.timing import timing_charts
from servegate.render.view import allowed, folded_in_words, judged, name, view
from servegate.verdict import Outcome, Row, State
from servegate.wording import count, percent

MOST_WORKLOADS: Final = 8
"""Workloads that are drawn; the tables hold all of them. With it the page stays under 2 MB."""
MOST_ROWS: Final = 1000
MOST_ANSWERS: Final = 20
MOST_CHARACTERS: Final = 2000
"""Of an answer."""
_HIDDEN: Final = {"Cc", "Cf", "Cs", "Co", "Cn"}
"""Controls, bidi and zero-width characters, surrogates: what could make text look like other text."""


@dataclass(frozen=True)
class Counter:
    """Of one round; where rounds differ, their mean. A stored baseline may lack some."""

    name: str
    base: str
    head: str
    moved: bool


@dataclass(frozen=True)
class Section:
    """What is drawn of one workload."""

    name: str
    numerics: str
    base_note: str
    """What of the base can be drawn."""
    timing: tuple[Chart, ...]
    lengths: Chart | None
    logprobs: tuple[Chart, ...]
    logprobs_in_words: str
    counters: tuple[Counter, ...]
    answers: tuple[Answer, ...]
    answered: int


def render(report: Report, history: Sequence[Course] | None = None) -> str:
    """``history``: what earlier commits measured; without it nothing is said of them."""
    with sheet() as drawn:
        return _page(report, history, drawn)


def _page(report: Report, history: Sequence[Course] | None, drawn: Sheet) -> str:
    verdict = report.verdict
    prices = report.suite.prices
    rows = verdict.comparison.rows
    return (
        _environment()
        .get_template("report.html.jinja")
        .render(
            style_digest=_style_digest(),
            report=report,
            verdict=verdict,
            kind={Outcome.PASS: "good", Outcome.REGRESSED: "bad", Outcome.FAILED: "bad"}.get(
                verdict.outcome, "warn"
            ),
            seen=view(verdict),
            rows=sorted(rows, key=lambda row: not row.gating)[:MOST_ROWS],
            left_out=max(len(rows) - MOST_ROWS, 0),
            changes=changes_chart(verdict, report.suite.policy, drawn),
            trade=trade_charts(report.workloads[:MOST_WORKLOADS], prices.currency if prices else "", drawn),
            sections=[_section(workload, drawn) for workload in report.workloads[:MOST_WORKLOADS]],
            not_drawn=[workload.name for workload in report.workloads[MOST_WORKLOADS:]],
            evidence=[row for row in rows if row.evidence is not None][:MOST_ROWS],
            past=past(history, verdict, report.head.fingerprint.hardware_key, drawn)
            if history is not None
            else None,
            reasons=sorted({facts.reason for facts in report.base if facts.reason}),
            steps=_next_steps(report),
            history_command=commands.history(report.suite_path),
            name=name,
            pair=words.pair,
            change=_change,
            interval=_interval,
            share=_share,
            judged=judged,
            allowed=allowed,
            folded=folded_in_words,
            count=count,
            state_kind=_state_kind,
            where=_where,
        )
    )


def _section(workload: Workload, drawn: Sheet) -> Section:
    logprobs, in_words = logprob_charts(workload, drawn)
    answers = [request for request in workload.head.requests if request.text]
    return Section(
        name=workload.name,
        numerics=workload.head.facts.numerics,
        base_note=_base_note(workload),
        timing=timing_charts(workload, drawn),
        lengths=lengths_chart(workload, drawn),
        logprobs=logprobs,
        logprobs_in_words=in_words,
        counters=tuple(_counters(workload)),
        answers=tuple(
            _answer(request.id, request.finish_reason, request.text or "")
            for request in answers[:MOST_ANSWERS]
        ),
        answered=len(answers),
    )


def _base_note(workload: Workload) -> str:
    if workload.base is None:
        return "No base to draw."
    if workload.base.times or workload.head.facts.numerics == "reference":
        return ""
    return (
        "The base is a stored baseline, which keeps no request: each of its rounds is a tick at the "
        "height of its percentile."
    )


def _answer(prompt: str, finish_reason: str | None, text: str) -> Answer:
    cut = max(len(text) - MOST_CHARACTERS, 0)
    return Answer(prompt, finish_reason or "unknown", text[:MOST_CHARACTERS], cut)


def _counters(workload: Workload) -> Iterator[Counter]:
    head = workload.head.counters
    for counter in sorted({key for round_ in head for key in round_}):
        old = _mean([r[counter] for r in workload.base.counters if counter in r]) if workload.base else None
        if old is None and workload.base is not None:
            sample = workload.base.facts.metrics.get(counter)
            old = sample.value if sample is not None else None
        new = _mean([round_[counter] for round_ in head if counter in round_])
        yield Counter(counter, *words.pair(old, new, ""), moved=old is not None and old != new)


def _mean(values: Sequence[int]) -> float | None:
    return sum(values) / len(values) if values else None


def _change(row: Row) -> str:
    between = "" if row.state in (State.INVALID, State.NOT_COMPARABLE) else _interval(row)
    return f"{words.change(row)} ({between})" if between else words.change(row)


def _interval(row: Row) -> str:
    """Where paired arms gave one."""
    interval = row.evidence.interval if row.evidence is not None else None
    return f"{percent(interval[0])} to {percent(interval[1])}" if interval is not None else ""


def _share(share: float | None) -> str:
    return words.ABSENT if share is None else words.percent(share)


def _state_kind(row: Row) -> str:
    if not row.gating or row.state is State.PASS:
        return "plain"
    if row.state in (State.REGRESSED, State.INVALID, State.MISSING):
        return "bad"
    return "good" if row.state is State.IMPROVED else "warn"


def _where(facts: Facts) -> str:
    """Commit and hardware of an arm."""
    commit = facts.commit
    at = f"commit {commit.sha[:12]}{' with changes' if commit.dirty else ''}" if commit else "no commit"
    return f"{at}, recorded {facts.created}, on {facts.fingerprint.hardware_key}"


def _next_steps(report: Report) -> list[tuple[str, str]]:
    """(why, command to type)."""
    commit = report.head.commit
    steps = [("Measure this commit", f"git checkout {commit.sha}")] if commit else []
    if report.paired:
        base = report.base[0].commit
        steps.append(("Measure both arms again", commands.ab(report.suite_path, base.sha if base else "REF")))
    else:
        steps.append(("Measure and judge again", commands.check(report.suite_path)))
    steps.append(("Compute this verdict from its files", "servegate explain OUT/verdict.json"))
    if report.verdict.outcome in (Outcome.REGRESSED, Outcome.NO_DATA) and not report.paired:
        steps.append(("Accept it, if it is meant", commands.accept(report.suite_path)))
    return steps


@cache
def _style_digest() -> str:
    """By which the page's policy knows its one style sheet; no other style applies, wherever it came from."""
    text = _environment().get_template("report.css").render()
    return b64encode(sha256(text.encode()).digest()).decode()


@cache
def _environment() -> Environment:
    """Autoescape is on whatever a template is called; what is printed is stripped, then escaped."""
    return Environment(
        loader=PackageLoader("servegate.render", "html"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _visible(value: Any) -> Any:
    """Text from outside without invisible characters; line breaks stay."""
    if type(value) is not str:
        return value
    return "".join(c for c in value if c in "\n\t" or unicodedata.category(c) not in _HIDDEN)
