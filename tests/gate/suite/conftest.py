"""A folder to write suites into."""

from __future__ import annotations

from pathlib import Path

import pytest
from suites import PROMPTS, SUITE, Write


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """``write(suite, prompts, files)`` -> the suite's path, relative, as a person would type it."""
    monkeypatch.chdir(tmp_path)

    def write(suite: str = SUITE, prompts: str = PROMPTS, files: dict[str, str] | None = None) -> Path:
        for name, text in {"suite.yaml": suite, "prompts.yaml": prompts, **(files or {})}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return Path("suite.yaml")

    return write
