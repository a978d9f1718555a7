"""The handle on an arm's process: where it runs, what it is asked, how it ends."""

from __future__ import annotations

import json
import os
import select
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from servegate.ab.protocol import PROTOCOL, Failed, Opened, Progressed
from servegate.errors import ExitCode, MeasurementError, NoDataError, ServegateError, UsageError
from servegate.fingerprint import Fingerprint
from servegate.model import Model
from servegate.record import WorkloadRecord
from servegate.targets.base import Progress

M = TypeVar("M", bound=Model)

SILENCE_S: Final = 900.0
"""Without a line for this long an arm counts as hung."""
GRACE_S: Final = 5.0

_ERRORS: Final[dict[int, type[ServegateError]]] = {
    ExitCode.USAGE: UsageError,
    ExitCode.NO_DATA: NoDataError,
}


@dataclass(frozen=True)
class Place:
    """Where an arm's process runs."""

    arm: str
    """``base`` or ``head``, for messages."""
    python: str
    directory: Path
    suite: Path
    pythonpath: tuple[Path, ...] = ()
    """Before everything that is installed: the arm's own commit of a project that is itself the engine."""
    url: str | None = None
    """Of the arm's server, in place of the one in its suite."""

    def environment(self) -> dict[str, str]:
        inherited = os.environ.get("PYTHONPATH")
        path = [*map(str, self.pythonpath), *([inherited] if inherited else [])]
        return {
            **os.environ,
            "PYTHONDONTWRITEBYTECODE": "1",  # the user's checkout is read, never written
            "PYTHONPATH": os.pathsep.join(path),
        }


class WorkerArm:
    """An arm in a process of its own, its suite loaded. Close it; it also ends when this process does."""

    def __init__(self, place: Place, log: Path, progress: Progress) -> None:
        self._place, self._log, self._progress = place, log, progress
        self._unread = b""
        with log.open("wb") as stderr:
            # -P: a folder of the project that is named like a library is not imported in its stead.
            # A session of its own: Ctrl-C reaches this process alone, which then ends the arm in order.
            self._process = _spawn([place.python, "-P", "-m", "servegate.ab.worker"], place, stderr)
        try:
            self.opened = self._open()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def round(self, workload: str) -> WorkloadRecord:
        return self._checked(WorkloadRecord, self._ask("round", workload=workload))

    def warm_up(self, workload: str) -> WorkloadRecord:
        return self._checked(WorkloadRecord, self._ask("warm_up", workload=workload))

    def exact(self, workload: str, forced: dict[str, list[int]]) -> WorkloadRecord:
        return self._checked(WorkloadRecord, self._ask("exact", workload=workload, forced=forced))

    def fingerprint(self) -> Fingerprint:
        return self._checked(Fingerprint, self._ask("fingerprint"))

    def close(self) -> None:
        """Ask it to end by closing its input; then end it. Whatever state it is in, it is gone afterwards."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    continue  # the arm is gone already
        self._process.terminate()
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _open(self) -> Opened:
        answer = self._ask("open", suite=str(self._place.suite), url=self._place.url)
        if not isinstance(answer, dict) or answer.get("protocol") != PROTOCOL:
            raise UsageError(
                f"{self._place.arm}: its servegate speaks another protocol than this one; give both arms a "
                "servegate of about the same age"
            )
        return self._checked(Opened, answer)

    def _ask(self, do: str, **arguments: Any) -> Any:
        if self._process.stdin is None:
            raise self._died()
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise self._died() from None
        while True:
            message = self._message()
            if "progress" in message:
                said = self._checked(Progressed, message["progress"])
                self._progress(f"{self._place.arm}: {said.stage}", said.done, said.total)
            elif "error" in message:
                failed = self._checked(Failed, message)
                kind = _ERRORS.get(failed.exit_code, MeasurementError)
                raise kind("\n".join(f"{self._place.arm}: {line}" for line in failed.error.splitlines()))
            else:
                return message.get("answer")

    def _message(self) -> dict[str, Any]:
        line = self._line()
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise MeasurementError(
                f"{self._place.arm}: its process answered {line[:60]!r}, which is no answer"
            )
        return message

    def _line(self) -> bytes:
        stream = self._process.stdout
        while b"\n" not in self._unread:
            if stream is None:
                raise self._died()
            ready, _, _ = select.select([stream], [], [], SILENCE_S)
            if not ready:
                raise MeasurementError(f"{self._place.arm}: its process said nothing for {SILENCE_S:.0f} s")
            chunk = os.read(stream.fileno(), 1 << 20)
            if not chunk:
                raise self._died()
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _died(self) -> MeasurementError:
        """Why, in the last line that it wrote."""
        code = self._process.wait()
        lines = self._log.read_text(encoding="utf-8", errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "it wrote nothing")
        return MeasurementError(f"{self._place.arm}: its process ended with exit code {code}: {said[:300]}")

    def _checked(self, model: type[M], answer: Any) -> M:
        try:
            return model.model_validate(answer)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise MeasurementError(
                f"{self._place.arm}: its process sent no valid {model.__name__}: {where}: {first['msg']}"
            ) from None


def _spawn(command: list[str], place: Place, stderr: Any) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=place.directory,
            env=place.environment(),
            start_new_session=True,
        )
    except OSError as error:
        raise UsageError(f"{place.arm}: {place.python} cannot be run: {error.strerror or error}") from None
