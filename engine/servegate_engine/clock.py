"""Time, as an argument: nothing else in the engine reads a clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ns(self) -> int:
        """Nanoseconds since an arbitrary fixed origin; never goes back."""
        ...


class MonotonicClock:
    """Real time, from ``time.perf_counter_ns``."""

    def now_ns(self) -> int:
        return time.perf_counter_ns()


class VirtualClock:
    """Time that moves only when told to: for simulation and tests."""

    def __init__(self, start_ns: int = 0) -> None:
        self._now_ns = start_ns

    def now_ns(self) -> int:
        return self._now_ns

    def advance(self, delta_ns: int) -> None:
        if delta_ns < 0:
            raise ValueError(f"time cannot go back by {-delta_ns} ns")
        self._now_ns += delta_ns
