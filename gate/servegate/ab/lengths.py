"""Length before speed: where completions changed their length, times are also judged over those that did not.

A head that answers shorter is faster without being faster. At matched length a time is taken per request over
prompts whose completions have one length in every round of both arms; a rate, over the time that those
requests took, since the wall time of a round holds the others too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from servegate.ab.record import BlockRecord, LaunchRecord
from servegate.metrics.timeline import completion_tokens, failure
from servegate.record import RoundRecord
from servegate.wording import count

FOLLOW_LENGTH: Final = ("e2e_p50", "e2e_p95", "throughput", "request_throughput", "cost_per_request")
"""Timed metrics that move with the length of answers, whatever the engine does."""
AT_MATCHED_LENGTH: Final = "at matched length"


@dataclass(frozen=True)
class Matched:
    prompts: tuple[str, ...]
    """Request ids whose completions kept their length."""
    text: str
    launches: tuple[LaunchRecord, ...]
    """The same blocks with those requests alone."""


def matched(launches: Sequence[LaunchRecord], workload: str) -> Matched | None:
    """None where no length moved: then every time is at matched length already."""
    seen: dict[str, set[int]] = defaultdict(set)
    for block in _blocks(launches, workload):
        for request in block.round.requests:
            if failure(request) is None:
                seen[request.id].add(completion_tokens(request))
    kept = tuple(sorted(name for name, found in seen.items() if len(found) == 1))
    if len(kept) == len(seen):
        return None
    return Matched(
        prompts=kept,
        text=f"over {count(len(kept), 'prompt')} of {len(seen)}: those whose completions kept their length",
        launches=tuple(
            launch.model_copy(update={"blocks": tuple(_only(b, workload, set(kept)) for b in launch.blocks)})
            for launch in launches
        ),
    )


def _blocks(launches: Sequence[LaunchRecord], workload: str) -> list[BlockRecord]:
    return [block for launch in launches for block in launch.blocks if block.workload == workload]


def _only(block: BlockRecord, workload: str, kept: set[str]) -> BlockRecord:
    if block.workload != workload:
        return block
    requests = tuple(r for r in block.round.requests if r.id in kept and failure(r) is None)
    taken = sum(request.ended_ns - request.scheduled_ns for request in requests)
    return block.model_copy(
        update={"round": RoundRecord(wall_ns=taken, requests=requests, client=block.round.client)}
    )
