"""Every workflow, the project's and the examples, by the linters and by the rules of docs/github.md."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from action_steps import ACTION, ROOT

EXAMPLES = sorted((ROOT / "examples/workflows").glob("*.yml"))
OWN = sorted((ROOT / ".github/workflows").glob("*.yml"))
DOCS = ROOT / "docs/github.md"


def lint(*command: str) -> str:
    """What a linter has to say; empty where it has nothing."""
    done = subprocess.run(
        [str(Path(sys.executable).parent / command[0]), *command[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_zizmor_pedantic_has_nothing_to_say() -> None:
    files = map(str, [*OWN, *EXAMPLES, ACTION])
    assert lint("zizmor", "--offline", "--pedantic", "--no-progress", *files) == ""


def test_actionlint_has_nothing_to_say() -> None:
    assert lint("actionlint", *map(str, [*OWN, *EXAMPLES])) == ""


def workflow(path: Path) -> dict[Any, Any]:
    return dict(yaml.safe_load(path.read_text()))


def triggers(path: Path) -> set[str]:
    return set(workflow(path)[True])  # YAML reads the key `on` as a truth value


@pytest.mark.parametrize("path", [*OWN, *EXAMPLES], ids=lambda path: path.name)
def test_permissions_are_given_job_by_job(path: Path) -> None:
    assert workflow(path)["permissions"] == {}
    for name, job in workflow(path)["jobs"].items():
        assert job["permissions"], name
        if "pull_request" in triggers(path) and name != "post":
            assert job["permissions"] == {"contents": "read"}


def test_llama_cpp_6393_nothing_shows_pull_request_target() -> None:
    for path in [*OWN, *EXAMPLES]:
        assert "pull_request_target" not in triggers(path)
    for snippet in re.findall(r"```ya?ml\n(.*?)```", DOCS.read_text(), re.DOTALL):
        assert "pull_request_target" not in snippet


def test_semantic_router_2628_feast_6624_no_recipe_checks_out_a_forks_code_with_a_token_that_writes() -> None:
    for path in [*OWN, *EXAMPLES]:
        text = path.read_text()
        assert "allow-unsafe-pr-checkout" not in text
        assert not re.search(r"ref:.*(head|pull)", text)
        assert text.count("actions/checkout@") == text.count("persist-credentials: false")


def test_cnspec_1725_no_baseline_comes_from_a_cache() -> None:
    assert not [path for path in [*OWN, *EXAMPLES, ACTION] if "actions/cache" in path.read_text()]


def test_vllm_plugin_fl_275_the_gpu_host_is_behind_an_environment_and_closed_to_forks() -> None:
    job = workflow(ROOT / "examples/workflows/self-hosted-gpu.yml")["jobs"]["measure"]
    assert job["environment"] == "gpu"
    assert job["if"] == "github.event.pull_request.head.repo.full_name == github.repository"


def test_action_semantic_pull_request_236_the_merge_queue_has_its_event() -> None:
    assert triggers(ROOT / "examples/workflows/merge-queue.yml") == {"pull_request", "merge_group"}


def test_one_job_posts_for_a_whole_matrix() -> None:
    jobs = workflow(ROOT / "examples/workflows/matrix.yml")["jobs"]
    assert "strategy" not in jobs["post"]
    steps = jobs["post"]["steps"]
    assert len({step["with"]["id"] for step in steps}) == len(steps) == 2
    assert all(step["if"] == "${{ !cancelled() }}" for step in steps)


def test_khive_2807_the_job_that_posts_runs_though_measuring_failed() -> None:
    """A skipped job counts as a success: the one that sets the status decides inside."""
    for name in ("same-repository.yml", "merge-queue.yml", "monorepo.yml", "matrix.yml"):
        assert workflow(ROOT / "examples/workflows" / name)["jobs"]["post"]["if"] == "${{ !cancelled() }}"


def test_every_example_is_explained_and_every_permission_too() -> None:
    text = DOCS.read_text()
    for path in EXAMPLES:
        assert f"examples/workflows/{path.name}" in text
        for job in workflow(path)["jobs"].values():
            for permission, level in job["permissions"].items():
                assert f"`{permission}: {level}`" in text
