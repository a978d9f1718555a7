"""What counts as others' work: CPU time on the CPUs that the measured process may use."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import psutil
import pytest

from servegate.load import is_contended, system_meter


class Clocks(NamedTuple):
    user: float
    idle: float
    steal: float


class Own(NamedTuple):
    user: float
    system: float


def meter(
    monkeypatch: pytest.MonkeyPatch, affinity: list[int] | None, before: list[Clocks], after: list[Clocks]
) -> Any:
    """One second on a machine with these clocks, half of it used by the measured process."""
    readings = {"system": before, "own": Own(0.0, 0.0), "now": 100.0}
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: readings["system"])
    monkeypatch.setattr(psutil.Process, "cpu_times", lambda self: readings["own"])
    monkeypatch.setattr("servegate.load.time.perf_counter", lambda: readings["now"])
    if affinity is None:
        monkeypatch.delattr(psutil.Process, "cpu_affinity", raising=False)
    else:
        monkeypatch.setattr(psutil.Process, "cpu_affinity", lambda self: affinity, raising=False)
    finish = system_meter(os.getpid())
    readings.update(system=after, own=Own(0.4, 0.1), now=101.0)
    return finish()


IDLE = [Clocks(0, 0, 0), Clocks(0, 0, 0)]


def test_work_on_other_cpus_takes_nothing_from_a_pinned_process(monkeypatch: pytest.MonkeyPatch) -> None:
    load = meter(monkeypatch, [0], IDLE, [Clocks(0.5, 0.5, 0), Clocks(1, 0, 0)])
    assert (load.cpus, load.arm, load.others, load.idle) == (1, 0.5, 0.0, 0.5)
    assert not is_contended(load)


def test_work_on_the_process_own_cpu_does(monkeypatch: pytest.MonkeyPatch) -> None:
    load = meter(monkeypatch, [0], IDLE, [Clocks(1, 0, 0), Clocks(0, 1, 0)])
    assert (load.others, load.idle) == (0.5, 0.0)
    assert is_contended(load)


def test_stolen_time_counts_where_the_process_may_run(monkeypatch: pytest.MonkeyPatch) -> None:
    after = [Clocks(0.5, 0.5, 0), Clocks(0.5, 0.1, 0.4)]
    assert not is_contended(meter(monkeypatch, [0], IDLE, after))
    assert is_contended(meter(monkeypatch, [0, 1], IDLE, after))


@pytest.mark.parametrize("affinity", [None, [0, 7]])
def test_without_known_cpus_the_whole_machine_counts(
    affinity: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = meter(monkeypatch, affinity, IDLE, [Clocks(0.5, 0.5, 0), Clocks(1, 0, 0)])
    assert (load.cpus, load.others) == (2, 1.0)
