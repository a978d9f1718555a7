"""What else the machine did while a round or block ran: CPU time of others, stolen and idle time, from /proc.

A mark must come from outside what is measured: a block is contended because something else held the machine,
never because it was slow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from servegate.record import MachineLoad, RoundRecord

if TYPE_CHECKING:
    import psutil

STOLEN: Final = 0.02
"""Share of the machine's CPUs taken by the hypervisor above which a block is contended."""
OTHERS: Final = 0.1
"""Share used by other processes above which it is, where no CPU was left idle."""
IDLE: Final = 0.1

STARVED: Final = 0.05
"""Share of the time that a client of a server waited for a CPU, above which its stamps are late."""

Meter = Callable[[int], Callable[[], MachineLoad]]
"""``finish = meter(pid)`` before a block of that process, ``finish()`` after it."""


def is_contended(load: MachineLoad) -> bool:
    """Did something outside the arm take CPU time that the arm could have used?"""
    if load.stolen > STOLEN * load.cpus:
        return True
    return load.others > OTHERS * load.cpus and load.idle < IDLE * load.cpus


def starved_share(rounds: Sequence[RoundRecord]) -> float:
    """Of the rounds' wall time, how much their client was ready to run and had no CPU."""
    wall = sum(round_.wall_ns for round_ in rounds)
    return sum(round_.client.starved_ns for round_ in rounds) / wall if wall > 0 else 0.0


def in_words(load: MachineLoad) -> str:
    """``others held 0.9 of 2 CPUs``."""
    return f"others held {load.others + load.stolen:.1f} of {load.cpus} CPUs"


def system_meter(pid: int) -> Callable[[], MachineLoad]:
    """Reads the CPU clocks of the process and of the CPUs it may run on now and at the end; 10 ms a tick.

    Work on other CPUs, of a container's host or beside a pinned process, takes nothing that it could use.
    """
    import psutil

    process = psutil.Process(pid)
    mine = _cpus_of(process)
    began, system, own = time.perf_counter(), _clocks(mine), process.cpu_times()

    def finish() -> MachineLoad:
        wall = max(time.perf_counter() - began, 1e-3)
        after, own_after = _clocks(mine), process.cpu_times()
        used = {name: max(0.0, seconds - system[name]) / wall for name, seconds in after.items()}
        arm = max(0.0, own_after.user + own_after.system - own.user - own.system) / wall
        busy = sum(used.get(name, 0.0) for name in ("user", "nice", "system", "irq", "softirq"))
        return MachineLoad(
            cpus=len(mine),
            arm=round(arm, 4),
            others=round(max(0.0, busy - arm), 4),
            stolen=round(used.get("steal", 0.0), 4),
            idle=round(used.get("idle", 0.0) + used.get("iowait", 0.0), 4),
        )

    return finish


def _cpus_of(process: psutil.Process) -> list[int]:
    """The numbers of the CPUs that it may run on; all where the system does not say, or numbers others."""
    import psutil

    every = list(range(len(psutil.cpu_times(percpu=True))))
    mine = process.cpu_affinity() if hasattr(process, "cpu_affinity") else every
    return mine if set(mine) <= set(every) else every


def _clocks(cpus: Sequence[int]) -> dict[str, float]:
    """Seconds by state, summed over these CPUs."""
    import psutil

    each = psutil.cpu_times(percpu=True)
    return {name: sum(getattr(each[cpu], name) for cpu in cpus) for name in each[0]._fields}
