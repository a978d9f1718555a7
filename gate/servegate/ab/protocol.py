"""The lines between `servegate ab` and the process of an arm: one JSON object a line, each way.

::

    -> {"do": "open", "suite": "a/servegate.yaml", "url": null}      a URL in place of the suite's own
    <- {"answer": {"protocol": 2, ...}}
    -> {"do": "exact", "workload": "behaviour", "forced": {"refund": [5, 7, ...]}}
    <- {"progress": {"stage": ..., "done": 3, "total": 8}}          any number of these, then
    <- {"answer": <WorkloadRecord>}
    -> {"do": "warm_up", "workload": "latency"}                     and likewise
    -> {"do": "round", "workload": "latency"}
    <- {"answer": <WorkloadRecord of one round>}
    -> {"do": "fingerprint"}
    <- {"error": "one line", "exit_code": 2}                        in place of any answer

The two ends may be of different versions, since an arm runs its own commit's code: ``protocol`` is raised
when one end would misread the other.
"""

from __future__ import annotations

from typing import Final, Literal

from servegate.model import Model

PROTOCOL: Final = 2


class TimedWorkload(Model):
    """What the runner needs to know of a workload with native numerics."""

    name: str
    warmup: int
    repeat: int


class Opened(Model):
    """The arm's suite, read and planned."""

    protocol: Literal[2]
    suite: str
    suite_digest: str
    prompt_set_digest: str
    exact: tuple[str, ...]
    """Workloads with reference numerics."""
    timed: tuple[TimedWorkload, ...]


class Progressed(Model):
    stage: str
    done: int
    total: int


class Failed(Model):
    error: str
    exit_code: int
