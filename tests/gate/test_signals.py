"""SIGTERM ends a run as Ctrl-C does, and waits while something has to be finished."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import pytest

from servegate.signals import ending_in_order, held

ENDING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_is_an_interrupt(number: signal.Signals) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), ending_in_order():
        signal.raise_signal(number)
    assert signal.getsignal(signal.SIGTERM) is before


def _from_main(number: signal.Signals) -> None:
    signal.raise_signal(number)


def _from_a_thread(number: signal.Signals) -> None:
    """As the system does where this thread blocks the signal and another one, of a math library, does not."""

    def receive() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        signal.pthread_kill(threading.get_ident(), number)

    thread = threading.Thread(target=receive)
    thread.start()
    thread.join()


@pytest.mark.parametrize("number", ENDING)
@pytest.mark.parametrize("arrive", [_from_main, _from_a_thread])
def test_what_was_begun_is_finished_before_a_signal_counts(
    arrive: Callable[[signal.Signals], None], number: signal.Signals
) -> None:
    done: list[str] = []

    def work() -> None:
        with ending_in_order(), held():
            arrive(number)
            done.append("finished")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["finished"]


def test_nothing_is_left_of_a_wait_without_a_signal() -> None:
    before = [signal.getsignal(number) for number in ENDING], signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with held():
        pass
    assert before == (
        [signal.getsignal(number) for number in ENDING],
        signal.pthread_sigmask(signal.SIG_BLOCK, ()),
    )


def test_any_thread_may_wait() -> None:
    faults: list[BaseException] = []

    def work() -> None:
        try:
            with held():
                pass
        except BaseException as fault:
            faults.append(fault)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert faults == []
