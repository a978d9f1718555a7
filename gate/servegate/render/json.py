"""The verdict for programs: the schema of `servegate schema`, and nothing else on the stream."""

from __future__ import annotations

from servegate.verdict import Verdict


def render(verdict: Verdict) -> str:
    return verdict.model_dump_json(indent=2) + "\n"
