"""How a run ends that is told to: SIGTERM and a closed terminal as Ctrl-C does, and clean-up undisturbed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
_ALL: Final = (signal.SIGINT, *_ENDING)


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
    """Inside, Ctrl-C, SIGTERM and SIGHUP wait: half of a clean-up would leave the other half behind.

    Blocked, so that a process started inside is spared a Ctrl-C too; and noted, since the system hands a
    signal that this thread blocks to any other one, such as those of a math library.
    """
    waiting: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        waiting.append(number)

    in_main = threading.current_thread() is threading.main_thread()  # where alone Python runs handlers
    before = {number: signal.signal(number, note) for number in _ALL if in_main}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ALL)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
        if waiting:
            signal.raise_signal(waiting[0])
