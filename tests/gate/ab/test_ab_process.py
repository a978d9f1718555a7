"""The process of an arm: its protocol, and every way in which it can go wrong."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from repositories import PROMPTS, SUITE, FakeTarget

from servegate.ab import worker
from servegate.ab.process import Place, WorkerArm
from servegate.errors import MeasurementError, UsageError
from servegate.plan import WorkloadPlan
from servegate.record import WorkloadRecord
from servegate.targets.base import Progress

OPENED = {
    "answer": {
        "protocol": 2,
        "suite": "s",
        "suite_digest": "d",
        "prompt_set_digest": "p",
        "exact": ["behaviour"],
        "timed": [{"name": "latency", "warmup": 1, "repeat": 3}],
    }
}
Start = Callable[[str], WorkerArm]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Start an arm whose worker is this code: found first on the arm's own path, as a project's own is."""

    def start(code: str, python: str = sys.executable) -> WorkerArm:
        package = tmp_path / "tree" / "servegate" / "ab"
        package.mkdir(parents=True, exist_ok=True)
        (package / "worker.py").write_text(code)
        for folder in (package, package.parent):
            (folder / "__init__.py").touch()
        place = Place("head", python, tmp_path, tmp_path / "suite.yaml", (tmp_path / "tree",))
        return WorkerArm(place, tmp_path / "log", lambda stage, done, total: said.append(stage))

    return start


said: list[str] = []


def answering(*answers: dict[str, Any]) -> str:
    lines = [json.dumps(answer) for answer in answers]
    return f"import sys\nfor line in {lines!r}:\n    print(line, flush=True)\nsys.stdin.read()\n"


def test_an_arm_opens_its_suite_and_ends_with_the_handle(start: Start) -> None:
    arm = start(answering({"progress": {"stage": "load", "done": 0, "total": 1}}, OPENED))
    assert arm.opened.timed[0].repeat == 3
    assert "head: load" in said
    arm.close()
    with pytest.raises(ProcessLookupError):
        os.kill(arm.pid, 0)


def test_an_error_of_the_arm_keeps_its_kind_and_says_which_arm(start: Start) -> None:
    with pytest.raises(UsageError, match=r"^head: suite\.yaml: no such file\nhead: second$"):
        start(answering({"error": "suite.yaml: no such file\nsecond", "exit_code": 2}))
    with pytest.raises(MeasurementError, match="head: every request failed"):
        start(answering({"error": "every request failed", "exit_code": 4}))


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise SystemExit('No module named numpy')", "ended with exit code 1: No module named numpy"),
        ("import os; os.kill(os.getpid(), 9)", "ended with exit code -9: it wrote nothing"),
        ("print('Loading weights', flush=True)", "answered b'Loading weights', which is no answer"),
        (answering({"answer": {**OPENED["answer"], "protocol": 1}}), "speaks another protocol"),
        (answering({"answer": {"protocol": 2}}), "no valid Opened: suite: Field required"),
    ],
)
def test_a_broken_arm_is_one_clear_line(start: Start, code: str, message: str) -> None:
    with pytest.raises((MeasurementError, UsageError)) as caught:
        start(code)
    assert message in str(caught.value)
    assert str(caught.value).startswith("head: ")
    assert "\n" not in str(caught.value)


def test_an_arm_that_dies_between_rounds_is_named(start: Start) -> None:
    arm = start(
        f"import sys\nsys.stdin.readline()\nprint({json.dumps(OPENED)!r}, flush=True)\n"
        "print('oom', file=sys.stderr)"
    )
    with pytest.raises(MeasurementError, match="head: its process ended with exit code 0: oom"):
        arm.round("latency")
    arm.close()


def test_an_interpreter_that_is_not_there_is_a_usage_error(start: Start) -> None:
    with pytest.raises(UsageError, match="head: /no/python cannot be run: No such file"):
        start("", python="/no/python")


def test_the_users_tree_stays_as_it_is(start: Start, tmp_path: Path) -> None:
    start(answering(OPENED)).close()
    assert not list(tmp_path.rglob("__pycache__"))


def test_what_libraries_print_never_reaches_the_protocol(tmp_path: Path) -> None:
    """Through Python and past it: both go to stderr."""
    code = (
        "import os, sys\nfrom servegate.ab import worker\n"
        "def serve(commands, answers):\n"
        "    print('from python', flush=True)\n    os.write(1, b'from C\\n')\n"
        "    answers.write('{}\\n'); answers.flush()\n"
        "worker.serve = serve\nworker.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, input="", check=True)
    assert done.stdout == "{}\n"
    assert done.stderr == "from python\nfrom C\n"


def test_a_warm_up_round_cuts_every_completion_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[list[int]] = []

    class Target(FakeTarget):
        def measure(self, workload: WorkloadPlan, progress: Progress) -> WorkloadRecord:
            lengths.append([request.sampling.max_tokens for request in workload.requests])
            return super().measure(workload, progress)

    monkeypatch.setattr(worker, "open_target", Target)
    (tmp_path / "prompts.yaml").write_text(PROMPTS)
    (tmp_path / "suite.yaml").write_text(SUITE)
    commands = [
        {"do": "open", "suite": str(tmp_path / "suite.yaml"), "url": None},
        {"do": "warm_up", "workload": "latency"},
        {"do": "round", "workload": "latency"},
    ]
    worker.serve(io.StringIO("".join(json.dumps(c) + "\n" for c in commands)), io.StringIO())
    assert lengths == [[8, 8], [128, 128]]


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ({"do": "round", "workload": "latency"}, "the first command must be 'open'"),
        ({"do": "open", "suite": "none.yaml", "url": None}, "none.yaml: no such file"),
        ({"do": "open"}, "KeyError: 'suite'"),
    ],
)
def test_a_command_that_fails_is_answered(command: dict[str, str], error: str) -> None:
    answers = io.StringIO()
    worker.serve(io.StringIO(json.dumps(command) + "\n"), answers)
    assert error in json.loads(answers.getvalue())["error"]
