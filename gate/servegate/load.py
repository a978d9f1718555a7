"""What else the machine did while a round or block ran: CPU time of others, stolen and idle time, from /proc.

A mark must come from outside what is measured: a block is contended because something else held the machine,
never because it was slow.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from servegate.record import MachineLoad

STOLEN: Final = 0.02
"""Share of the machine's CPUs taken by the hypervisor above which a block is contended."""
OTHERS: Final = 0.1
"""Share used by other processes above which it is, where no CPU was left idle."""
IDLE: Final = 0.1

Meter = Callable[[int], Callable[[], MachineLoad]]
"""``finish = meter(pid)`` before a block of that process, ``finish()`` after it."""


def is_contended(load: MachineLoad) -> bool:
    """Did something outside the arm take CPU time that the arm could have used?"""
    if load.stolen > STOLEN * load.cpus:
        return True
    return load.others > OTHERS * load.cpus and load.idle < IDLE * load.cpus


def in_words(load: MachineLoad) -> str:
    """``others held 0.9 of 2 CPUs``."""
    return f"others held {load.others + load.stolen:.1f} of {load.cpus} CPUs"


def system_meter(pid: int) -> Callable[[], MachineLoad]:
    """Reads the system's and the process's CPU clocks, which tick every 10 ms, now and at the end."""
    import psutil

    process = psutil.Process(pid)
    began, system, own = time.perf_counter(), psutil.cpu_times(), process.cpu_times()

    def finish() -> MachineLoad:
        wall = max(time.perf_counter() - began, 1e-3)
        after, own_after = psutil.cpu_times(), process.cpu_times()

        def used(field: str) -> float:
            return max(0.0, getattr(after, field, 0.0) - getattr(system, field, 0.0)) / wall

        arm = max(0.0, own_after.user + own_after.system - own.user - own.system) / wall
        busy = sum(used(field) for field in ("user", "nice", "system", "irq", "softirq"))
        return MachineLoad(
            cpus=psutil.cpu_count() or 1,
            arm=round(arm, 4),
            others=round(max(0.0, busy - arm), 4),
            stolen=round(used("steal"), 4),
            idle=round(used("idle") + used("iowait"), 4),
        )

    return finish
