"""How a run ends that is told to: SIGTERM and a closed terminal as Ctrl-C does, and clean-up undisturbed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP raise KeyboardInterrupt. For the main thread only."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def held() -> Iterator[None]:
    """Inside, Ctrl-C, SIGTERM and SIGHUP wait: half of a clean-up would leave the other half behind."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, *_ENDING))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
