"""The embedded engine as a target. The one file of the gate that touches the engine."""

from __future__ import annotations

import dataclasses
import gc
import math
import os
import platform
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

from servegate import __version__
from servegate.errors import MeasurementError, UsageError
from servegate.fingerprint import Fingerprint
from servegate.load import system_meter
from servegate.machine import NONE, UNKNOWN, machine_facts
from servegate.plan import (
    ForcedCompletion,
    Plan,
    PlannedPrompt,
    PlannedRequest,
    WorkloadPlan,
    offered_load,
)
from servegate.record import ClientFacts, ForcedScore, RequestRecord, RoundRecord, Usage, WorkloadRecord
from servegate.suite.schema import Sampling
from servegate.targets.base import Progress

if TYPE_CHECKING:
    from servegate_engine.engine import Engine
    from servegate_engine.loading import LoadedModel
    from servegate_engine.request import Request, RequestEvent, SamplingParams

Numerics = Literal["reference", "native"]

NEAR_TIE = 1e-6
"""nat between the best two tokens, below which a flip is not a finding (DESIGN: reference numerics)."""


def fetch_model(name: str) -> Path:
    """Download a known model into the cache, or find it there."""
    with _engine_errors():
        from servegate_engine import model_store

        return model_store.fetch(name)


def known_models() -> dict[str, Path | None]:
    """Name -> where it is cached, or None."""
    with _engine_errors():
        from servegate_engine import model_store

        return {model.name: model_store.cached_path(model.name) for model in model_store.known_models()}


def cuda_problems() -> list[tuple[str, str | None]] | None:
    """What keeps the engine off the GPU, each with the command for it; None where no engine can be loaded."""
    try:
        from servegate_engine.backends import cuda_backend
    except (ImportError, OSError):  # the latter where a library of torch is broken
        return None
    return [(problem.what, problem.fix) for problem in cuda_backend.problems()]


class EmbeddedTarget:
    """Runs a plan's workloads on an engine in this process, one model at a time.

    The client and the engine share one thread: a step is run, its events are stamped by the engine's clock,
    and freed clients send before the next step. So a closed loop gives the same schedule, and the same
    counters, on every machine.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._loaded: LoadedModel | None = None
        self._loaded_numerics: Numerics | None = None
        self._described: dict[Numerics, dict[str, str]] = {}
        self._digests: dict[str, str] = {}

    def fingerprint(self) -> Fingerprint:
        """Of what was measured so far; complete once every workload has run."""
        import numpy

        described = next(iter(self._described.values()), {})
        absent = NONE if described else UNKNOWN
        settings = self._plan.target.engine.model_dump(exclude={"threads"})
        sampling = self._plan.workloads[0].requests[0].sampling.model_dump(mode="json")
        return Fingerprint(
            machine={
                **machine_facts(),
                **{name: described.get(name, absent) for name in ("device", "threads", "cpu_capability")},
            },
            software={
                "engine": f"servegate {__version__}",
                "python": platform.python_version(),
                "numpy": numpy.__version__,
                **{name: described.get(name, absent) for name in ("torch", "cuda", "cupy", "kernels")},
            },
            served={
                "model": self._plan.target.model,
                **self._digests,
                **{f"dtype.{numerics}": facts["dtype"] for numerics, facts in self._described.items()},
                "backend": described.get("backend", absent),
                **{f"engine.{name}": str(value) for name, value in settings.items()},
                **{f"sampling.{name}": str(value) for name, value in sampling.items()},
            },
        )

    def measure(self, workload: WorkloadPlan, progress: Progress) -> WorkloadRecord:
        """Run the workload's warm-up, rounds and forced scores.

        Raises:
            UsageError: the model cannot be loaded, or a prompt cannot fit context or block pool.
            MeasurementError: every request of a round failed.
        """
        with _engine_errors():
            progress(f"{workload.name}: load the model", 0, 1)
            engine, prompts = self._prepare(workload)
            total = len(workload.requests)
            rounds: list[RoundRecord] = []
            for index in range(workload.warmup + workload.repeat):
                warming = index < workload.warmup
                number = index + 1 - (0 if warming else workload.warmup)
                of = workload.warmup if warming else workload.repeat
                stage = f"{workload.name}: {'warm-up' if warming else 'round'} {number} of {of}"
                done = 0
                progress(stage, done, total)
                loop = _ClosedLoop(engine, workload, prompts)
                while loop.step():
                    if len(loop.records) != done:
                        done = len(loop.records)
                        progress(stage, done, total)
                if not warming:
                    rounds.append(_usable(loop.finished(), workload.name))
            return WorkloadRecord(
                name=workload.name,
                kind=workload.kind,
                numerics=workload.numerics,
                offered=offered_load(workload),
                rounds=tuple(rounds),
                forced=self._score(engine, workload, prompts, progress),
            )

    def close(self) -> None:
        self._loaded = None

    def _prepare(self, workload: WorkloadPlan) -> tuple[Engine, dict[str, tuple[int, ...]]]:
        """A fresh engine, and the token ids of each prompt."""
        from servegate_engine.config import EngineConfig
        from servegate_engine.engine import Engine
        from servegate_engine.loading import load_model

        target = self._plan.target
        config = EngineConfig(numerics=workload.numerics, **target.engine.model_dump())
        if self._loaded is None or self._loaded_numerics != workload.numerics:
            self._loaded = None  # free the other precision's weights first
            self._loaded = load_model(target.model, config)
            self._loaded_numerics = workload.numerics
        loaded = self._loaded
        self._described[workload.numerics] = loaded.backend.describe()
        self._digests = {"model_digest": loaded.model_digest, "tokenizer_digest": loaded.tokenizer_digest}
        engine = Engine(
            loaded.backend,
            config,
            vocab_size=loaded.config.vocab_size,
            max_position=loaded.config.max_position,
            eos_token_ids=loaded.config.eos_token_ids,
            tokenizer=loaded.tokenizer,
        )
        context = config.max_model_len or loaded.config.max_position
        prompts = {}
        for request in workload.requests:
            ids = _encode(loaded, request.prompt)
            _must_fit(request.prompt.id, len(ids), context, config.block_size, config.num_blocks)
            prompts[request.prompt.id] = ids
        return engine, prompts

    def _score(
        self,
        engine: Engine,
        workload: WorkloadPlan,
        prompts: dict[str, tuple[int, ...]],
        progress: Progress,
    ) -> tuple[ForcedScore, ...]:
        """Teacher forcing: logprobs of stored completions. One that this model cannot take is left out."""
        from servegate_engine.errors import RequestError
        from servegate_engine.request import Request, SamplingParams

        stage = f"{workload.name}: score the base's completions"
        requests: list[tuple[ForcedCompletion, Request]] = []
        for forced in workload.forced:
            request = Request(
                id=forced.prompt_id,
                prompt_ids=prompts[forced.prompt_id],
                params=SamplingParams(max_tokens=0),
                score_ids=forced.completion_ids,
            )
            try:
                engine.add(request)
            except RequestError:
                continue
            requests.append((forced, request))
            while engine.has_work:
                engine.step()
            progress(stage, len(requests), len(workload.forced))
        return tuple(
            ForcedScore(
                prompt_id=forced.prompt_id,
                completion_ids=forced.completion_ids,
                logprobs=tuple(token.logprob for token in request.logprobs),
            )
            for forced, request in requests
            if len(request.logprobs) == len(forced.completion_ids)
            and all(math.isfinite(token.logprob) for token in request.logprobs)
        )


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


class _ClosedLoop:
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


def _encode(loaded: LoadedModel, prompt: PlannedPrompt) -> tuple[int, ...]:
    if prompt.messages is None:
        return tuple(loaded.tokenizer.encode(prompt.text or "", add_special=True))
    if loaded.chat_template is None:
        raise UsageError(
            f"{loaded.path}: the model has no chat template; set prompts.chat: false in the suite to send "
            "plain text"
        )
    text = loaded.chat_template.render([message.model_dump() for message in prompt.messages])
    return tuple(loaded.tokenizer.encode(text, add_special=False))


def _must_fit(prompt_id: str, length: int, context: int, block_size: int, num_blocks: int) -> None:
    """Raise UsageError where a prompt could not give even one token."""
    if length >= context:
        raise UsageError(
            f"prompt {prompt_id!r} has {length} tokens and the context cap is {context}: shorten it, or "
            "raise target.engine.max_model_len as far as the model allows"
        )
    needed = -(-(length + 1) // block_size)
    if needed > num_blocks:
        raise UsageError(
            f"prompt {prompt_id!r} needs {needed} KV blocks of {block_size} tokens and the pool has "
            f"{num_blocks}: raise target.engine.num_blocks"
        )


def _usable(record: RoundRecord, workload: str) -> RoundRecord:
    errors: Sequence[str] = [request.error for request in record.requests if request.error]
    if len(errors) == len(record.requests):
        raise MeasurementError(f"workload {workload!r}: every request failed; the first: {errors[0]}")
    return record


@contextmanager
def _engine_errors() -> Iterator[None]:
    """The engine's own errors, as the gate's; a missing extra, as the command that installs it."""
    try:
        from servegate_engine.errors import EngineError
    except ImportError as error:
        _missing_extra(error)
    try:
        yield
    except EngineError as error:
        raise UsageError(str(error)) from error
    except ModuleNotFoundError as error:
        _missing_extra(error)


def _missing_extra(error: ImportError) -> NoReturn:
    raise UsageError(
        f"the embedded engine needs {error.name or 'a package'} that is not installed: "
        "pip install 'servegate[engine]'"
    ) from error
