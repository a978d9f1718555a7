"""Cut what the tests need out of GitHub's own descriptions: paths in use, with all that they refer to.

npm pack @octokit/openapi @octokit/webhooks-examples @octokit/webhooks-schemas    (and unpack each)
python make_slice.py OPENAPI_FOLDER EXAMPLES_FOLDER SCHEMAS_FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

OPERATIONS = {
    "/repos/{owner}/{repo}/pulls": ("get",),
    "/repos/{owner}/{repo}/pulls/{pull_number}": ("get",),
    "/repos/{owner}/{repo}/pulls/{pull_number}/files": ("get",),
    "/repos/{owner}/{repo}/issues/{issue_number}/comments": ("get", "post"),
    "/repos/{owner}/{repo}/issues/comments/{comment_id}": ("patch", "delete"),
    "/repos/{owner}/{repo}/statuses/{sha}": ("post",),
    "/repos/{owner}/{repo}/commits/{ref}": ("get",),
    "/repos/{owner}/{repo}/commits/{ref}/statuses": ("get",),
    "/repos/{owner}/{repo}/actions/runs/{run_id}/artifacts": ("get",),
    "/repos/{owner}/{repo}/actions/artifacts/{artifact_id}/{archive_format}": ("get",),
}
EVENTS = ("pull_request", "push", "workflow_run", "merge_group", "workflow_dispatch")
SCHEMAS = {
    "pull_request": "pull_request$opened",
    "push": "push$event",
    "workflow_run": "workflow_run$completed",
    "merge_group": "merge_group$checks_requested",
    "workflow_dispatch": "workflow_dispatch$event",
}
_PROSE = {"externalDocs", "x-github", "summary", "tags", "x-github-breaking-changes"}


def main(openapi: Path, examples: Path, schemas: Path) -> None:
    description = json.loads((openapi / "generated/api.github.com.json").read_text())
    _write(HERE / "openapi.json", _slice(description))
    names = json.loads((examples / "api.github.com/index.json").read_text())
    events = {entry["name"]: entry["examples"] for entry in names if entry["name"] in EVENTS}
    wanted = {"pull_request": "opened", "workflow_run": "completed"}
    _write(
        HERE / "events.json",
        {
            name: next(e for e in found if e.get("action") == wanted.get(name, e.get("action")))
            for name, found in events.items()
        },
    )
    schema = json.loads((schemas / "schema.json").read_text())
    roots = {name: {"$ref": f"#/definitions/{key}"} for name, key in SCHEMAS.items()}
    _write(HERE / "events.schema.json", {"events": roots} | _closure({}, schema, list(roots.values())))


def _slice(description: dict[str, Any]) -> dict[str, Any]:
    paths = {}
    for path, verbs in OPERATIONS.items():
        item = description["paths"][path]
        paths[path] = {verb: _without_prose(item[verb]) for verb in verbs}
    kept = _closure({}, description, [paths])
    return {
        "openapi": description["openapi"],
        "info": {"title": description["info"]["title"], "version": description["info"]["version"]},
        "servers": [{"url": "http://localhost"}],
        "paths": paths,
        **kept,
    }


def _closure(kept: dict[str, Any], whole: dict[str, Any], nodes: list[Any]) -> dict[str, Any]:
    """Everything that ``nodes`` refer to, and what that refers to, at its own place."""
    queue = [reference for node in nodes for reference in _references(node)]
    while queue:
        keys = queue.pop().removeprefix("#/").split("/")
        source, target = whole, kept
        for key in keys[:-1]:
            source, target = source[key], target.setdefault(key, {})
        if keys[-1] not in target:
            target[keys[-1]] = _without_prose(source[keys[-1]])
            queue += _references(target[keys[-1]])
    return kept


def _references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [ref for value in node.values() for ref in _references(value)]
    return [ref for value in node for ref in _references(value)] if isinstance(node, list) else []


def _without_prose(node: Any, *, names: bool = False) -> Any:
    """``names``: the keys are names of properties or examples, one of which may be called "description"."""
    if isinstance(node, list):
        return [_without_prose(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {
        key: value
        if key in ("example", "enum", "value")
        else _without_prose(value, names=key == "properties")
        for key, value in node.items()
        if names or key not in _PROSE
    }
    if not names and isinstance(kept.get("description"), str):
        kept["description"] = ""  # a response must have one
    return kept


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, separators=(",", ":"), sort_keys=True) + "\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
