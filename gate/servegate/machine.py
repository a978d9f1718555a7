"""What machine this is: the facts that decide whether two timings may be compared."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

NONE = "none"
UNKNOWN = "unknown"


def machine_facts() -> dict[str, str]:
    """cpu, cores, memory, os, gpu, driver; ``none`` where there is no such part, ``unknown`` if it hides."""
    return {
        "cpu": _cpu_model(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "memory": _memory(),
        "os": f"{platform.system()} {platform.machine()}",
        **_gpu(),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or UNKNOWN
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or UNKNOWN


def _memory() -> str:
    import psutil

    # Rounded, as the last few MB differ between equal machines.
    return f"{round(psutil.virtual_memory().total / 2**30)} GiB"


def _gpu() -> dict[str, str]:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {"gpu": NONE, "driver": NONE}
    cards = [line.split(", ") for line in answer.strip().splitlines()]
    if not cards or any(len(card) != 2 for card in cards):
        return {"gpu": UNKNOWN, "driver": UNKNOWN}
    names = [name for name, _ in cards]
    return {"gpu": " + ".join(sorted(names)), "driver": cards[0][1]}
