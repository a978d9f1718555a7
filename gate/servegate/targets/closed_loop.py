"""A closed loop on the embedded engine: client and engine share one thread, and every event is stamped."""

from __future__ import annotations

import dataclasses
import gc
import os
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from servegate.load import system_meter
from servegate.plan import PlannedRequest, WorkloadPlan
from servegate.record import ClientFacts, RequestRecord, RoundRecord, Usage
from servegate.suite.schema import Sampling

if TYPE_CHECKING:
    from servegate_engine.engine import Engine
    from servegate_engine.request import Request, RequestEvent, SamplingParams

NEAR_TIE: Final = 1e-6
"""nat between the best two tokens, below which a flip is not a finding (DESIGN: reference numerics)."""


@dataclass(slots=True)
class _Trace:
    """One request on its way."""

    planned: PlannedRequest
    request: Request
    scheduled_ns: int
    sent_ns: int
    arrivals_ns: list[int] = field(default_factory=list)
    frame_tokens: list[int] = field(default_factory=list)
    text: list[str] = field(default_factory=list)

    def take(self, event: RequestEvent, now_ns: int) -> None:
        if event.token_ids:
            self.arrivals_ns.append(now_ns)
            self.frame_tokens.append(len(event.token_ids))
        if event.text:
            self.text.append(event.text)

    def record(self, ended_ns: int) -> RequestRecord:
        request = self.request
        coalesced = any(count != 1 for count in self.frame_tokens)
        failed = request.finish_reason == "error"
        return RequestRecord(
            id=self.planned.id,
            prompt_id=self.planned.prompt.id,
            prompt_digest=self.planned.prompt.digest,
            scheduled_ns=self.scheduled_ns,
            sent_ns=self.sent_ns,
            arrivals_ns=tuple(self.arrivals_ns),
            frame_tokens=tuple(self.frame_tokens) if coalesced else None,
            ended_ns=ended_ns,
            finish_reason=request.finish_reason,
            error="the model gave non-finite logits" if failed else None,
            token_ids=tuple(request.completion_ids),
            text="".join(self.text),
            logprobs=tuple(token.logprob for token in request.logprobs),
            near_ties=tuple(i for i, token in enumerate(request.logprobs) if token.margin < NEAR_TIE),
            usage=Usage(
                prompt_tokens=request.meter.prompt,
                cached_tokens=request.meter.cached,
                completion_tokens=request.meter.completion,
                recomputed_tokens=request.meter.recomputed,
            ),
        )


class ClosedLoop:
    """A fixed number of clients, each sending its next request when its last one ended."""

    def __init__(self, engine: Engine, workload: WorkloadPlan, prompts: dict[str, tuple[int, ...]]) -> None:
        from servegate_engine.clock import MonotonicClock

        self._engine, self._prompts = engine, prompts
        self._waiting = deque(workload.requests)
        self._free: deque[int] = deque([0] * workload.concurrency)
        """When each idle client became free: its next request's scheduled send."""
        self._live: dict[str, _Trace] = {}
        self.records: list[RequestRecord] = []
        engine.reset_prefix_cache()
        engine.reset_counters()
        self._load = system_meter(os.getpid())
        gc.collect()
        gc.disable()  # a collection in the middle of a step would be measured as the engine's stall
        self._now_ns = MonotonicClock().now_ns
        self._start_ns = self._now_ns()

    def step(self) -> bool:
        """Send what is due, run one engine step, take what it gave. False when all requests have ended."""
        try:
            while self._free and self._waiting:
                self._send(self._waiting.popleft(), self._free.popleft())
            for event in self._engine.step():
                now_ns = event.time_ns - self._start_ns
                trace = self._live[event.request_id]
                trace.take(event, now_ns)
                if event.finish_reason is not None:
                    del self._live[event.request_id]
                    self.records.append(trace.record(now_ns))
                    self._free.append(now_ns)
        except BaseException:
            gc.enable()
            raise
        unfinished = bool(self._waiting or self._live)
        if not unfinished:
            gc.enable()
        return unfinished

    def finished(self) -> RoundRecord:
        lateness = [record.sent_ns - record.scheduled_ns for record in self.records]
        return RoundRecord(
            wall_ns=max(record.ended_ns for record in self.records),
            requests=tuple(self.records),
            counters=dataclasses.asdict(self._engine.counters),
            client=ClientFacts(
                max_lateness_ns=max(lateness), mean_lateness_ns=sum(lateness) // len(lateness)
            ),
            load=self._load(),
        )

    def _send(self, planned: PlannedRequest, scheduled_ns: int) -> None:
        from servegate_engine.errors import RequestError
        from servegate_engine.request import Request

        request = Request(planned.id, self._prompts[planned.prompt.id], _params(planned.sampling))
        sent_ns = self._now_ns() - self._start_ns
        try:
            self._engine.add(request)
        except RequestError as error:
            self.records.append(
                RequestRecord(
                    id=planned.id,
                    prompt_id=planned.prompt.id,
                    prompt_digest=planned.prompt.digest,
                    scheduled_ns=scheduled_ns,
                    sent_ns=sent_ns,
                    ended_ns=sent_ns,
                    error=str(error),
                )
            )
            self._free.append(sent_ns)
            return
        self._live[planned.id] = _Trace(planned, request, scheduled_ns, sent_ns)


def _params(sampling: Sampling) -> SamplingParams:
    from servegate_engine.request import SamplingParams

    return SamplingParams(**sampling.model_dump())
