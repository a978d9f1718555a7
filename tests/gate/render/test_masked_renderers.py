"""A verdict that was masked shows no secret, however a renderer cuts, wraps or escapes its texts."""

from __future__ import annotations

import html
import json
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servegate.github import annotations
from servegate.github.status import description
from servegate.masking import Secrets, masked
from servegate.render import comment, junit, markdown, terminal
from servegate.render import json as as_json
from servegate.render.comment import Origin
from servegate.render.terminal import Style
from servegate.verdict import Comparison, EnvironmentChange, Outcome, Row, State, Verdict

letters = string.ascii_letters + string.digits + "+/=_-.<&|`"
secrets = st.text(st.sampled_from(letters), min_size=8, max_size=60).filter(
    lambda text: any(c.isdigit() for c in text) and any(c.isalpha() for c in text)
)
around = st.sampled_from(["", " ", "x", "é", "\n", "::", "a very long text " * 30])


def _verdict(text: str) -> Verdict:
    row: dict[str, Any] = {
        "workload": text,
        "metric": text,
        "kind": "exact",
        "unit": text,
        "better": "lower",
        "base": text,
        "head": text + "!",
        "tolerance": text,
        "reason": text,
        "detail": (text, text),
    }
    rows = [Row(**row, gating=gating, state=state) for gating in (True, False) for state in State]
    change = EnvironmentChange(group="software", name=text, base=text, head=text)
    compared = Comparison(suite=text, rows=tuple(rows), environment=(change,), notes=(text,))
    return Verdict(
        suite=text,
        outcome=Outcome.REGRESSED,
        exit_code=1,
        headline=f"FAIL: {text}",
        comparison=compared,
        inputs={text: text},
    )


def _origin(text: str) -> Origin:
    return Origin(
        "a" * 40, "b" * 40, "https://example.org", "run 1", "s.yaml", 7, hardware=text, changed=(text,)
    )


@settings(max_examples=40, deadline=None)
@given(secrets, around, around, st.sampled_from([60, 120]))
def test_no_channel_shows_a_known_secret(secret: str, before: str, after: str, width: int) -> None:
    known = Secrets.of({"MY_TOKEN": secret})
    text = f"{before}{secret}{after}"
    verdict, origin = masked(_verdict(text), known), masked(_origin(text), known)
    told = {
        "terminal": terminal.render(verdict, Style(width), everything=True),
        "markdown": markdown.render(verdict, everything=True),
        "comment": comment.render(verdict, origin),
        "short comment": comment.render(verdict, origin, limit=2000),
        "junit": junit.render(verdict),
        "json": as_json.render(verdict),
        "annotations": "\n".join(annotations.lines(verdict)),
        "status": description(verdict.headline),
    }
    for channel, shown in told.items():
        plain = html.unescape(shown)
        joined = "".join(line.strip() for line in plain.split("\n"))  # a word that a table folds
        for seen in (shown, plain, joined):
            assert secret not in seen, channel
    assert "***" in json.loads(told["json"])["headline"]


@pytest.mark.parametrize("token", ["ghp_" + "a1B2" * 9, "sk-proj-" + "a1B2_-" * 8])
def test_no_cut_leaves_the_half_of_a_token(token: str) -> None:
    """Cut first and masked then, the part that is left would be no token any more."""
    verdict = masked(_verdict("x" * 20 + " " + token), Secrets())
    for shown in (terminal.render(verdict, Style(60)), markdown.render(verdict), junit.render(verdict)):
        assert token[:16] not in shown
