"""Length before speed: where completions changed their length, times are also judged over those that did not.

A head that answers shorter is faster without being faster. At matched length a time is taken per request over
prompts whose completions have one length in every round of both arms; a rate, over the time that those
requests took, since the wall time of a round holds the others too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Final

from servegate.ab.record import BlockRecord, LaunchRecord
from servegate.metrics.timeline import completion_tokens, failure
from servegate.record import RoundRecord
from servegate.verdict import Row, State
from servegate.wording import count

FOLLOW_LENGTH: Final = ("e2e_p50", "e2e_p95", "throughput", "request_throughput", "cost_per_request")
"""Timed metrics that move with the length of answers, whatever the engine does."""
AT_MATCHED_LENGTH: Final = "at matched length"


@dataclass(frozen=True)
class Kept:
    """The requests that every round answered, each at one length."""

    ids: frozenset[str]
    text: str


@dataclass(frozen=True)
class Matched:
    prompts: frozenset[str]
    """Request ids whose completions kept their length."""
    text: str
    launches: tuple[LaunchRecord, ...]
    """The same blocks with those requests alone."""


def kept_lengths(rounds: Sequence[RoundRecord]) -> Kept | None:
    """None where no length moved: then everything is at matched length already."""
    seen: dict[str, set[int | None]] = defaultdict(set)
    for round_ in rounds:
        for request in round_.requests:
            seen[request.id].add(completion_tokens(request) if failure(request) is None else None)
    if not any(len(found - {None}) > 1 for found in seen.values()):
        return None
    everywhere = set.intersection(*({request.id for request in round_.requests} for round_ in rounds))
    ids = frozenset(name for name in everywhere if len(seen[name]) == 1 and None not in seen[name])
    return Kept(
        ids, f"over {count(len(ids), 'prompt')} of {len(seen)}: those whose completions kept their length"
    )


def matched(launches: Sequence[LaunchRecord], workload: str) -> Matched | None:
    """None where no length moved."""
    blocks = [block for launch in launches for block in launch.blocks if block.workload == workload]
    kept = kept_lengths([block.round for block in blocks])
    if kept is None:
        return None
    return Matched(
        prompts=kept.ids,
        text=kept.text,
        launches=tuple(
            launch.model_copy(update={"blocks": tuple(_only(b, workload, kept.ids) for b in launch.blocks)})
            for launch in launches
        ),
    )


def only(round_: RoundRecord, ids: Set[str]) -> RoundRecord:
    """The round as if those requests had been alone in it, one after the other."""
    requests = tuple(request for request in round_.requests if request.id in ids)
    taken = sum(request.ended_ns - request.scheduled_ns for request in requests)
    return RoundRecord(wall_ns=taken, requests=requests, client=round_.client)


def at_matched_length(row: Row, text: str) -> Row:
    """The row under its second name, its values still to be filled in."""
    return row.model_copy(
        update={
            "metric": f"{row.metric} {AT_MATCHED_LENGTH}",
            "base": None,
            "head": None,
            "detail": (text,),
        }
    )


def untold(row: Row) -> Row:
    """The row where no completion kept its length."""
    what = "cost" if row.metric.startswith("cost") else "speed"
    reason = f"every completion changed its length, so {what} cannot be told from length"
    return row.model_copy(update={"state": State.INCONCLUSIVE, "change": None, "reason": reason})


def _only(block: BlockRecord, workload: str, ids: Set[str]) -> BlockRecord:
    if block.workload != workload:
        return block
    return block.model_copy(update={"round": only(block.round, ids)})
