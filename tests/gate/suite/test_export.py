"""What `servegate schema` prints and `servegate init` writes."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import get_args

import jsonschema
import pytest
import yaml
from suites import FULL

from servegate.errors import UsageError
from servegate.plan import make_plan
from servegate.suite.export import Kind, init_files, schema, schema_text
from servegate.suite.loading import load_suite
from servegate.suite.yaml_reader import read_yaml


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_format_has_a_valid_schema(kind: Kind) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(kind))


def test_the_committed_schema_is_what_the_types_say() -> None:
    committed = resources.files("servegate.suite") / "servegate.schema.json"
    assert committed.read_text(encoding="utf-8") == schema_text("suite"), (
        "regenerate it: servegate schema > gate/servegate/suite/servegate.schema.json"
    )


def test_an_editor_that_follows_the_schema_accepts_what_the_gate_accepts(tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text(FULL)
    jsonschema.validate(read_yaml(tmp_path / "suite.yaml").data, schema("suite"))


@pytest.mark.parametrize("rule", [{"change": "5 percent"}, {"change": 5}, {"max": "fast"}, {"max": -1}])
def test_an_editor_marks_a_quantity_that_the_gate_refuses(rule: dict[str, object]) -> None:
    suite = {**yaml.safe_load(FULL), "policy": {"ttft_p95": rule}}
    with pytest.raises(jsonschema.ValidationError, match="not valid under any of the given schemas"):
        jsonschema.validate(suite, schema("suite"))


def test_every_key_of_a_suite_is_described() -> None:
    exported = schema("suite")
    for name, part in {"Suite": exported, **exported["$defs"]}.items():
        undescribed = [key for key, value in part.get("properties", {}).items() if "description" not in value]
        assert not undescribed, (name, undescribed)


def test_init_gives_a_suite_that_runs_as_it_stands(tmp_path: Path) -> None:
    files = init_files(tmp_path)
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    plan = make_plan(load_suite(tmp_path / "servegate.yaml"))
    assert [workload.numerics for workload in plan.workloads] == ["reference", "native"]
    assert len(plan.workloads[0].requests) == 5
    assert json.loads(files[tmp_path / "servegate.schema.json"]) == schema("suite")
    assert files[tmp_path / "servegate.yaml"].startswith(
        "# yaml-language-server: $schema=./servegate.schema.json\n"
    )


@pytest.mark.parametrize("taken", ["servegate.yaml", "prompts.yaml"])
def test_init_overwrites_nothing(tmp_path: Path, taken: str) -> None:
    (tmp_path / taken).write_text("mine")
    with pytest.raises(UsageError, match=rf"has {taken} already; nothing is overwritten"):
        init_files(tmp_path)


def test_init_does_not_follow_a_dangling_link(tmp_path: Path) -> None:
    (tmp_path / "prompts.yaml").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match=r"has prompts.yaml already"):
        init_files(tmp_path)


@pytest.mark.parametrize(
    ("folder", "name"), [("support-chat", "support-chat"), ("My Suite (2)", "my-suite-2"), ("_", "starter")]
)
def test_a_suite_to_start_from_is_named_after_its_folder(tmp_path: Path, folder: str, name: str) -> None:
    """Two of one name in a repository would overwrite each other's baselines."""
    files = init_files(tmp_path / folder)
    (tmp_path / folder).mkdir()
    for path, text in files.items():
        path.write_text(text)
    assert load_suite(tmp_path / folder / "servegate.yaml").suite.name == name
