"""The verdict as JUnit XML, which every CI system reads: one test case for each row that gates.

The shape is that of the schema which Jenkins and pytest share. A row that decides nothing is skipped, unless
it is why the suite does not pass. Details of rows stay out: they may quote what a model wrote.
"""

from __future__ import annotations

import re
from typing import Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from servegate.render import words
from servegate.render.escape import clean
from servegate.render.view import fails, name
from servegate.verdict import DECIDED, Outcome, Row, State, Verdict

_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 forbids. ElementTree writes it all the same, and no parser reads it back."""


def render(verdict: Verdict) -> str:
    suite = Element("testsuite", name=_text(verdict.suite))
    for row in verdict.comparison.rows:
        if row.gating:
            _case(suite, row, verdict)
    if (
        verdict.outcome is not Outcome.PASS
        and suite.find("*/failure") is None
        and suite.find("*/error") is None
    ):
        # Nothing measured, or interrupted: no row says so, and a green file would.
        case = _add(suite, "testcase", classname=verdict.suite, name="verdict", time="0")
        _add(case, "error", message=verdict.headline, type=verdict.outcome.value)
    for total, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(total, str(len(suite.findall(f"*/{tag}"))))
    suite.set("tests", str(len(suite)))
    suite.set("time", "0")
    suites = Element("testsuites", name="servegate")
    suites.append(suite)
    indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(suites, encoding="unicode") + "\n"


def _case(suite: Element, row: Row, verdict: Verdict) -> None:
    """`time` is what strict readers want to see: a row takes none."""
    owner = f"{verdict.suite}.{row.workload}" if row.workload else verdict.suite
    case = _add(suite, "testcase", classname=owner, name=row.metric, time="0")
    if fails(row, verdict.outcome):
        tag = "error" if row.state is State.INVALID else "failure"
        _add(case, tag, message=row.reason, type=row.state.value).text = _text(_in_full(row))
    elif row.state not in DECIDED:
        _add(case, "skipped", message=f"{row.state.value}: {row.reason}")


def _in_full(row: Row) -> str:
    base, head = words.pair(row.base, row.head, row.unit)
    return (
        f"{name(row)}: {row.reason}\n"
        f"base {base} (n {row.n_base:,}), head {head} (n {row.n_head:,}): {words.change(row)}\n"
        f"rule: {row.tolerance}\n"
    )


def _add(parent: Element, tag: str, **attributes: str) -> Element:
    return SubElement(parent, tag, {key: _text(clean(text, 500)) for key, text in attributes.items()})


def _text(text: str) -> str:
    return _NOT_XML.sub("", text)
