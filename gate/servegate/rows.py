"""Rows that no metric gives: prompts and workloads that came, went or changed."""

from __future__ import annotations

from collections.abc import Iterator

from servegate.facts import WorkloadFacts
from servegate.metrics.finding import shortened
from servegate.metrics.matching import Matching
from servegate.verdict import Row, State
from servegate.wording import count


def prompt_rows(workload: str, new: WorkloadFacts, matching: Matching) -> Iterator[Row]:
    failed = [i for i in matching.missing if i in new.failed]
    gone = [i for i in matching.missing if i not in new.failed]
    renames = [f"{base_id} -> {head_id}" for base_id, head_id in matching.renamed]
    for what, ids, state, reason in (
        ("failed", [f"{i}: {new.failed[i]}" for i in failed], State.MISSING, "gave no answer on the head"),
        ("missing", gone, State.MISSING, "of the base are not in the head"),
        ("new", matching.new, State.NEW, "are not in the base"),
        ("renamed", renames, State.RENAMED, "have another id and the same content: compared under both"),
        (
            "changed",
            matching.changed,
            State.PASS,
            "changed their text or template: their answers are compared",
        ),
    ):
        if ids:
            yield Row(
                workload=workload,
                metric=f"prompts {what}",
                kind="prompt",
                unit="prompts",
                better="equal",
                gating=state is State.MISSING,
                base=None,
                head=float(len(ids)),
                tolerance="none may be missing" if state is State.MISSING else "shown only",
                state=state,
                reason=f"{count(len(ids), 'prompt')} {reason}",
                n_head=len(ids),
                detail=shortened(ids),
            )


def workload_row(name: str, state: State, reason: str) -> Row:
    return Row(
        workload=name,
        metric="workload",
        kind="workload",
        unit="",
        better="equal",
        gating=state is State.MISSING,
        base=None,
        head=None,
        tolerance="may not be missing" if state is State.MISSING else "shown only",
        state=state,
        reason=reason,
    )
