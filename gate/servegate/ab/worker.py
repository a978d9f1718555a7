"""The process of one arm: ``python -P -m servegate.ab.worker``, driven by lines on stdin.

It ends when stdin does, so that it never outlives the run that started it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TextIO

from servegate.ab.protocol import PROTOCOL, Failed, Opened, TimedWorkload
from servegate.errors import ExitCode, ServegateError, UsageError
from servegate.fingerprint import Fingerprint
from servegate.plan import ForcedCompletion, WorkloadPlan, at_url, cut, make_plan
from servegate.record import WorkloadRecord
from servegate.series import PACK
from servegate.suite.loading import LoadedSuite, load_suite
from servegate.targets.base import Progress, Target, open_target

PROGRESS_EVERY_S: Final = 1.0
WARM_UP_TOKENS: Final = 8
"""Of each completion in a warm-up round."""


class Arm:
    """One suite on one target, ready to run a round of any of its workloads."""

    def __init__(self, suite: Path, url: str | None, progress: Progress) -> None:
        self._loaded: LoadedSuite = load_suite(suite)
        self._plan = make_plan(self._loaded)
        if url is not None:
            self._plan = at_url(self._plan, url)
        self._target: Target = open_target(self._plan)
        self._progress = progress

    def opened(self) -> Opened:
        workloads = self._plan.workloads
        return Opened(
            protocol=PROTOCOL,
            suite=self._plan.suite,
            suite_digest=self._plan.suite_digest,
            prompt_set_digest=self._plan.prompt_set_digest,
            exact=tuple(w.name for w in workloads if w.numerics == "reference"),
            timed=tuple(
                TimedWorkload(name=w.name, warmup=w.warmup, repeat=w.repeat)
                for w in workloads
                if w.numerics == "native"
            ),
        )

    def exact(self, workload: str, forced: Mapping[str, list[int]]) -> WorkloadRecord:
        """Every round of the workload, and the scores of the base's completions."""
        completions = {
            name: ForcedCompletion(prompt_id=name, completion_ids=tuple(ids)) for name, ids in forced.items()
        }
        planned = _named(make_plan(self._loaded, completions).workloads, workload)
        return self._target.measure(planned, self._progress)

    def round(self, workload: str) -> WorkloadRecord:
        """One round, with nothing said meanwhile: a line written would be measured."""
        planned = _named(self._plan.workloads, workload)
        return self._target.measure(planned.model_copy(update={"warmup": 0, "repeat": 1}), _silent)

    def warm_up(self, workload: str) -> WorkloadRecord:
        """A round with its completions cut short: every prompt and the decode path, for little time."""
        planned = _named(self._plan.workloads, workload)
        short = {
            "warmup": 0,
            "repeat": 1,
            "requests": tuple(cut(r, WARM_UP_TOKENS) for r in planned.requests),
        }
        return self._target.measure(planned.model_copy(update=short), _silent)

    def fingerprint(self) -> Fingerprint:
        return self._target.fingerprint()


def serve(commands: TextIO, answers: TextIO) -> None:
    """Answer each command until there are no more. A command that fails is answered, and ends nothing."""

    def send(**message: Any) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    arm: Arm | None = None
    for line in commands:
        command = json.loads(line)
        do = command["do"]
        try:
            if do == "open":
                arm = Arm(Path(command["suite"]), command["url"], _every_second(send))
                answer: Any = arm.opened()
            elif arm is None:
                raise UsageError("the first command must be 'open'")
            elif do == "warm_up":
                answer = arm.warm_up(command["workload"])
            elif do == "round":
                answer = arm.round(command["workload"])
            elif do == "exact":
                answer = arm.exact(command["workload"], command["forced"])
            elif do == "fingerprint":
                answer = arm.fingerprint()
            else:
                raise UsageError(f"no such command: {do!r}")
        except ServegateError as error:
            send(**Failed(error=str(error), exit_code=error.exit_code).model_dump())
        except Exception as error:
            what = f"{type(error).__name__}: {' '.join(str(error).split())}"
            send(**Failed(error=what, exit_code=ExitCode.MEASUREMENT_FAILED).model_dump())
        else:
            send(answer=answer.model_dump(mode="json", context=PACK))


def main() -> None:
    """Keep stdout for the protocol: what libraries print goes to stderr, whichever way they print it."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.stdin, answers)


def _named(workloads: tuple[WorkloadPlan, ...], name: str) -> WorkloadPlan:
    for workload in workloads:
        if workload.name == name:
            return workload
    raise UsageError(f"this arm's suite has no workload {name!r}")


def _silent(stage: str, done: int, total: int) -> None:
    """Progress that nobody hears."""


def _every_second(send: Callable[..., None]) -> Progress:
    last = 0.0

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PROGRESS_EVERY_S:
            last = now
            send(progress={"stage": stage, "done": done, "total": total})

    return progress


if __name__ == "__main__":
    main()
