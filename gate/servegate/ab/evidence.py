"""What a timed row was decided on, in numbers and in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from servegate.ab.record import LaunchRecord
from servegate.ab.schedule import Role
from servegate.ab.series import Series
from servegate.load import STARVED, starved_share
from servegate.stats.aa import NoiseFloor
from servegate.stats.diagnose import diagnose, disagreement
from servegate.stats.paired import Decision
from servegate.verdict import Evidence, Row
from servegate.wording import amount, count, percent

MOST_LATENESS: Final = 0.05
"""Share of the time to first token that was the client's own lateness, above which times are the client's."""


def described(found: Decision, floor: NoiseFloor) -> Evidence:
    return Evidence(
        interval=found.interval,
        blocks=found.blocks,
        launches=found.launches,
        noise_floor=floor.largest,
        smallest_detectable=found.smallest_detectable,
        blocks_needed=found.blocks_needed,
    )


def all_rounds(row: Row) -> tuple[str, ...]:
    """What each arm's rounds give when they are thrown together: shown, and not judged."""
    if not isinstance(row.base, float) or not isinstance(row.head, float):
        return ()
    return (f"all rounds together: base {amount(row.base, row.unit)}, head {amount(row.head, row.unit)}",)


def in_detail(found: Decision, floor: NoiseFloor, series: Series) -> tuple[str, ...]:
    """The evidence as sentences: first what was seen, then how far it can be trusted."""
    return tuple(_sentences(found, floor, series))


def late_client(launches: Sequence[LaunchRecord], workload: str) -> str | None:
    """Why the timed rows of the workload say nothing of the engine, or None.

    Lateness is actual minus scheduled send, summed over all requests of an arm and held against the sum of
    their times to first token. A client beside a server is also late in reading, where it waits for a CPU.
    """
    for role in ("base", "head"):
        late, waited = _lateness(launches, workload, role)
        if waited > 0 and late > MOST_LATENESS * waited:
            return (
                f"client too slow: {amount(late / waited, 'share')} of the time to first token on {role} is "
                "its own"
            )
        rounds = [block.round for launch in launches for block in launch.rounds(role, workload)]
        starved = starved_share(rounds)
        if starved > STARVED:
            return f"client too slow: on {role} it waited for a CPU {amount(starved, 'share')} of the time"
    return None


def _lateness(launches: Sequence[LaunchRecord], workload: str, role: Role) -> tuple[int, int]:
    late = waited = 0
    for launch in launches:
        for block in launch.rounds(role, workload):
            for request in block.round.requests:
                if request.arrivals_ns:
                    late += request.sent_ns - request.scheduled_ns
                    waited += request.arrivals_ns[0] - request.scheduled_ns
    return late, waited


def _sentences(found: Decision, floor: NoiseFloor, series: Series) -> Iterator[str]:
    launches = "1 launch" if found.launches == 1 else f"{found.launches} launches"
    pairs = f"{count(found.blocks, 'block pair')} in {launches}"
    if found.interval is None:
        yield f"no interval from {pairs}"
    else:
        low, high = found.interval
        yield f"change {percent(found.estimate)}, between {percent(low)} and {percent(high)}, from {pairs}"
    if floor.largest is not None:
        yield f"noise floor: base against base shows up to {percent(floor.largest)}"
    if found.smallest_detectable is not None:
        yield f"smallest change that would have been found: {percent(found.smallest_detectable)}"
    if found.blocks_needed is not None:
        yield f"about {count(found.blocks_needed, 'block pair')} in all would decide: a larger --budget"
    if found.contended:
        used = "left out" if found.contended_left_out else "kept, since leaving them out would not be fair"
        yield f"{count(found.contended, 'block pair')} ran while others held the machine: {used}"
    yield from _noise(series)


def _noise(series: Series) -> Iterator[str]:
    """Named causes of noise, of each arm and of the change; they explain a row and never decide it."""
    for role in ("base", "head"):
        for finding in diagnose(series.values[role]):
            yield f"{finding.kind} on {role}: {finding.text}"
    apart = disagreement(series.pairs)
    if apart is not None:
        yield apart.text
