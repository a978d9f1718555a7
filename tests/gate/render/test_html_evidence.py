"""What a timed row of the HTML report rests on: block pairs, or the rounds of two runs that were stored."""

from __future__ import annotations

from pathlib import Path

import pytest
from bundles import bundle, paired_bundle

from servegate.cli.main import exit_code


@pytest.mark.parametrize(
    ("paired", "said"),
    [(True, "block pairs</td>"), (False, "too few rounds</td>")],
    ids=["in turn", "stored"],
)
def test_the_kind_of_evidence_is_named(tmp_path: Path, paired: bool, said: str) -> None:
    out = paired_bundle(tmp_path) if paired else bundle(tmp_path)
    html = tmp_path / "report.html"
    assert exit_code(["report", str(out), "--html", str(html)]) == 0
    assert said in html.read_text(encoding="utf-8")
