"""Quality checks on answers: contains, regex, exact, json_schema."""

from __future__ import annotations

import json
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from servegate.errors import UsageError
from servegate.facts import QualityFact, Sample
from servegate.metrics.context import Context, stable
from servegate.metrics.timeline import failure
from servegate.record import RequestRecord, WorkloadRecord
from servegate.suite.schema import QualityCheck

MAX_CHARACTERS: Final = 1_000_000
"""Longer answers fail their pattern and schema checks unread."""
MAX_SECONDS: Final = 2.0
"""Processor time for one pattern or schema on one answer."""


class _TooSlowError(Exception):
    pass


def check_answers(workload: WorkloadRecord, checks: Sequence[QualityCheck]) -> tuple[QualityFact, ...]:
    """One fact for each check and prompt, in that order; it passes where all of the prompt's answers do."""
    by_prompt: dict[str, list[RequestRecord]] = {}
    for round_ in workload.rounds:
        for request in round_.requests:
            by_prompt.setdefault(request.prompt_id, []).append(request)
    return tuple(
        _fact(prompt_id, check, by_prompt.get(prompt_id, []))
        for check in checks
        for prompt_id in (sorted(by_prompt) if check.prompt == "*" else [check.prompt])
    )


def quality_pass_rate(workload: WorkloadRecord, context: Context) -> Sample | None:
    """Checks that passed / all checks; of several answers to a prompt, the share that passed."""
    facts = context.quality
    if not facts:
        return None
    passed = sum(sum(fact.passes) / len(fact.passes) if fact.passes else fact.passed for fact in facts)
    return Sample(value=stable(passed / len(facts)), n=len(facts))


def in_words(check: QualityCheck) -> str:
    """``contains "30 days"``."""
    if check.contains is not None:
        return f"contains {_quoted(check.contains)}"
    if check.regex is not None:
        return f"regex {_quoted(check.regex)}"
    if check.exact is not None:
        return f"exact {_quoted(check.exact)}"
    return f"json_schema {_quoted(json.dumps(check.json_schema, sort_keys=True))}"


def _quoted(text: str) -> str:
    shown = json.dumps(text, ensure_ascii=False)
    return shown if len(shown) <= 60 else shown[:57] + '..."'


def _fact(prompt_id: str, check: QualityCheck, requests: Sequence[RequestRecord]) -> QualityFact:
    test = _test(check)
    words = in_words(check)
    if not requests:
        return QualityFact(prompt_id=prompt_id, check=words, passed=False, detail="the prompt was not sent")
    faults = [_fault(request, test) for request in requests]
    return QualityFact(
        prompt_id=prompt_id,
        check=words,
        passed=not any(faults),
        detail=next(filter(None, faults), ""),
        passes=tuple(fault is None for fault in faults) if len(faults) > 1 else (),
    )


def _fault(request: RequestRecord, test: Callable[[str], str | None]) -> str | None:
    error = failure(request)
    if error is not None:
        return f"no answer: {error}"
    if request.text is None:
        return "the answer's text is not in the record"
    return test(request.text)


def _test(check: QualityCheck) -> Callable[[str], str | None]:
    """A function from an answer to why it fails, or None."""
    if check.contains is not None:
        wanted = check.contains
        return lambda text: None if wanted in text else f"{_quoted(wanted)} is not in the answer"
    if check.exact is not None:
        exact = check.exact
        return lambda text: None if text == exact else f"the answer is {_quoted(text)}"
    if check.regex is not None:
        pattern = re.compile(check.regex)
        return _guarded(lambda text: None if pattern.search(text) else "the pattern is not in the answer")
    schema = check.json_schema
    return _guarded(lambda text: _against_schema(text, schema or {}))


def _against_schema(text: str, schema: dict[str, Any]) -> str | None:
    import jsonschema
    import referencing

    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as fault:
        return f"not JSON: {fault}"
    # An empty registry: a schema is never fetched from anywhere.
    registry: referencing.Registry[Any] = referencing.Registry()
    try:
        error = next(jsonschema.Draft202012Validator(schema, registry=registry).iter_errors(value), None)
    except (referencing.exceptions.Unresolvable, RecursionError) as fault:
        return f"the schema cannot be applied: {fault}"
    if error is None:
        return None
    where = "/".join(map(str, error.absolute_path)) or "the answer"
    return f"{where}: {error.message[:200]}"


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _guarded(test: Callable[[str], str | None]) -> Callable[[str], str | None]:
    """``test`` with limits on length and time: answers are hostile, and patterns backtrack without end."""

    def guarded(text: str) -> str | None:
        if len(text) > MAX_CHARACTERS:
            return f"{len(text)} characters are too many to check (limit {MAX_CHARACTERS})"
        try:
            with _time_limit():
                return test(text)
        except _TooSlowError:
            return f"the check took over {MAX_SECONDS:g} s of processor time"

    return guarded


@contextmanager
def _time_limit() -> Iterator[None]:
    """Raise _TooSlowError in the body after MAX_SECONDS of processor time.

    `re` looks for signals while it matches, so an interval timer ends it. SIGVTALRM, since SIGALRM belongs to
    whoever runs the tests. Python runs handlers in the main thread alone.
    """
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("quality checks with a pattern or a schema are made in the main thread only")

    def expire(signum: int, frame: FrameType | None) -> None:
        raise _TooSlowError

    previous = signal.signal(signal.SIGVTALRM, expire)
    signal.setitimer(signal.ITIMER_VIRTUAL, MAX_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)
