"""Where both arms come from: what changed around them, which baseline was used and how old it is."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Final

from servegate.baseline import Baseline
from servegate.facts import Facts
from servegate.fingerprint import Fingerprint
from servegate.verdict import EnvironmentChange
from servegate.wording import count

OLD_BASELINE_DAYS: Final = 30


def environment(base: Facts | Baseline, head: Facts) -> Iterator[EnvironmentChange]:
    """Each difference of the fingerprints once. A baseline that holds on every machine is not of any."""
    seen = set()
    for part in parts(base):
        of_a_machine = not isinstance(base, Baseline) or part is base.timing
        for change in _changes(part.fingerprint, head.fingerprint):
            key = (change.group, change.name, change.base)
            if key not in seen and (of_a_machine or change.group != "machine"):
                seen.add(key)
                yield change


def notes(base: Facts | Baseline, head: Facts) -> Iterator[str]:
    """What a reader should know about the arms before reading a row."""
    stored = parts(base)
    if not stored:
        yield "there is no baseline yet; `servegate baseline update` stores this run as one"
    for part in stored:
        yield _provenance(part, head, base)
        if part.suite != head.suite:
            yield f"the base is of suite {part.suite!r}, the head of {head.suite!r}"
        if not part.complete:
            yield "the base's run was interrupted"
    if any(part.suite_digest != head.suite_digest for part in stored):
        yield "the suite itself was edited since the base was recorded"
    if any(part.prompt_set_digest != head.prompt_set_digest for part in stored):
        yield "the prompt set was edited since the base was recorded"
    if not head.complete:
        yield "the head's run was interrupted: what was measured is compared, and it is not a pass"


def parts(base: Facts | Baseline) -> tuple[Facts, ...]:
    return base.parts if isinstance(base, Baseline) else (base,)


def _changes(base: Fingerprint, head: Fingerprint) -> Iterator[EnvironmentChange]:
    for group in ("machine", "software", "served"):
        before, after = getattr(base, group), getattr(head, group)
        for name in sorted({*before, *after}):
            if before.get(name) != after.get(name):
                yield EnvironmentChange(
                    group=group,
                    name=name,
                    base=before.get(name, "absent"),
                    head=after.get(name, "absent"),
                )


def _provenance(part: Facts, head: Facts, base: Facts | Baseline) -> str:
    what = "base"
    if isinstance(base, Baseline):
        what = "behaviour baseline" if part is base.behaviour else f"timing baseline ({base.hardware_key})"
    commit = (
        f" at commit {part.commit.sha[:12]}{' (dirty)' if part.commit.dirty else ''}" if part.commit else ""
    )
    days = _days_between(part.created, head.created)
    age = f", {count(days, 'day')} before the head" if days else ""
    warning = "; it is old, and may hide or invent a change" if days > OLD_BASELINE_DAYS else ""
    return f"{what} recorded {part.created}{commit}{age}{warning}"


def _days_between(earlier: str, later: str) -> int:
    """Whole days; 0 where a date is not one."""
    try:
        return max((dt.datetime.fromisoformat(later) - dt.datetime.fromisoformat(earlier)).days, 0)
    except (ValueError, TypeError):
        return 0
