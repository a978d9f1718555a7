"""What `servegate schema` prints and `servegate init` writes."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from servegate.errors import UsageError
from servegate.model import Model

Kind = Literal["suite", "prompts", "record", "facts", "verdict"]

_STARTER = ("servegate.yaml", "prompts.yaml", "prompt.jinja")


def schema(kind: Kind = "suite") -> dict[str, Any]:
    """JSON Schema (2020-12) of a file format, as the types say it. A stored baseline is a ``facts`` file."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_model(kind).model_json_schema()}


def schema_text(kind: Kind = "suite") -> str:
    return json.dumps(schema(kind), indent=2, ensure_ascii=False) + "\n"


def _model(kind: Kind) -> type[Model]:
    from servegate.facts import Facts
    from servegate.record import RunRecord
    from servegate.suite.prompt_set import PromptSet
    from servegate.suite.schema import Suite
    from servegate.verdict import Verdict

    models: dict[Kind, type[Model]] = {
        "suite": Suite,
        "prompts": PromptSet,
        "record": RunRecord,
        "facts": Facts,
        "verdict": Verdict,
    }
    return models[kind]


def init_files(directory: Path) -> dict[Path, str]:
    """A small suite that runs as it stands, named after its folder: what to write, and where.

    UsageError where one of the files exists: a suite to start from never replaces anything.
    """
    folder = resources.files("servegate.suite") / "starter"
    # Baselines are kept by the suite's name: two suites of one repository must not start with the same one.
    named = f"name: {_suite_name(directory)}"
    files = {
        directory / name: (folder / name).read_text(encoding="utf-8").replace("name: starter", named, 1)
        for name in _STARTER
    }
    files[directory / "servegate.schema.json"] = schema_text("suite")
    # A dangling link counts: writing would follow it.
    taken = [path.name for path in files if path.exists() or path.is_symlink()]
    if taken:
        raise UsageError(
            f"{directory}: has {', '.join(taken)} already; nothing is overwritten; choose another directory"
        )
    return files


def _suite_name(directory: Path) -> str:
    """The folder's name, as far as a suite's name can hold it."""
    slug = re.sub(r"[^a-z0-9._-]+", "-", directory.resolve().name.lower()).strip("._-")[:64]
    return slug or "starter"
