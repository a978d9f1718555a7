"""The embedded engine as a target. With its closed loop, the one place where the gate touches the engine."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

from servegate import __version__
from servegate.errors import UsageError
from servegate.fingerprint import Fingerprint
from servegate.machine import NONE, UNKNOWN, machine_facts
from servegate.plan import (
    ForcedCompletion,
    Plan,
    PlannedPrompt,
    WorkloadPlan,
    offered_load,
)
from servegate.record import ForcedScore, RoundRecord, WorkloadRecord
from servegate.targets.base import Progress, rounds_of, usable
from servegate.targets.closed_loop import ClosedLoop

if TYPE_CHECKING:
    from servegate_engine.engine import Engine
    from servegate_engine.loading import LoadedModel

Numerics = Literal["reference", "native"]


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
        if plan.target.kind != "embedded":
            raise ValueError(f"the plan is for a target of kind {plan.target.kind!r}")
        self._plan, self._settings = plan, plan.target
        self._loaded: LoadedModel | None = None
        self._loaded_numerics: Numerics | None = None
        self._described: dict[Numerics, dict[str, str]] = {}
        self._digests: dict[str, str] = {}

    def fingerprint(self) -> Fingerprint:
        """Of what was measured so far; complete once every workload has run."""
        import numpy

        described = next(iter(self._described.values()), {})
        absent = NONE if described else UNKNOWN
        settings = self._settings.engine.model_dump(exclude={"threads"})
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
                "model": self._settings.model,
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
            for stage, measured in rounds_of(workload):
                done = 0
                progress(stage, done, total)
                loop = ClosedLoop(engine, workload, prompts)
                while loop.step():
                    if len(loop.records) != done:
                        done = len(loop.records)
                        progress(stage, done, total)
                if measured:
                    rounds.append(usable(loop.finished(), workload.name))
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

        target = self._settings
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
