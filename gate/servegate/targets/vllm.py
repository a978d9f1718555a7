"""A running vLLM server as a target."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from servegate.errors import MeasurementError, UsageError
from servegate.fingerprint import Fingerprint
from servegate.machine import UNKNOWN, machine_facts
from servegate.plan import Plan, WorkloadPlan, offered_load
from servegate.record import ClientFacts, ForcedScore, RequestRecord, RoundRecord, WorkloadRecord
from servegate.targets.base import Progress, rounds_of, usable

try:
    import aiohttp

    from servegate.targets.wire import client, vllm
    from servegate.targets.wire.frames import Answer, read_answer, told_body
except ModuleNotFoundError as error:
    raise UsageError(
        f"a target of kind vllm needs {error.name}, which is not installed: pip install 'servegate[wire]'"
    ) from error

T = TypeVar("T")
Ended = Callable[[int], None]

_HERE: Final = ("localhost", "::1", "0.0.0.0")


class VllmTarget:
    """Sends a plan's workloads to a server that somebody else started.

    Rounds begin with a cold prefix cache, by a salt of their own. What else the server does meanwhile is not
    seen.
    """

    def __init__(self, plan: Plan) -> None:
        if plan.target.kind != "vllm":
            raise ValueError(f"the plan is for a target of kind {plan.target.kind!r}")
        self._settings = plan.target
        self._sampling = plan.workloads[0].requests[0].sampling
        self._key = _api_key(plan.target.api_key_env)
        self._facts: vllm.ServerFacts | None = None
        self._prompt_ids: dict[str, list[int]] = {}
        self._runner = asyncio.Runner()

    def fingerprint(self) -> Fingerprint:
        """What the server tells of itself; ``unknown`` where it does not, or was not reached yet."""
        facts = self._facts or vllm.ServerFacts(UNKNOWN, {"model": self._settings.model})
        sampling = self._sampling.model_dump(mode="json")
        return Fingerprint(
            machine=_machine(self._settings.url, self._settings.machine),
            software={"engine": facts.engine, "torch": UNKNOWN, "cuda": UNKNOWN},
            served={
                **facts.served,
                "model_digest": UNKNOWN,
                "tokenizer_digest": UNKNOWN,
                "dtype": UNKNOWN,
                **{f"sampling.{name}": str(value) for name, value in sampling.items()},
            },
        )

    def measure(self, workload: WorkloadPlan, progress: Progress) -> WorkloadRecord:
        """Run the workload's warm-up, rounds and forced scores.

        Raises:
            UsageError: the server is no vLLM, has no such model, or wants a key.
            MeasurementError: nothing answers at the URL, or every request of a round failed.
        """
        progress(f"{workload.name}: reach {self._settings.url}", 0, 1)
        self._facts = self._facts or self._run(self._look())
        rounds = []
        for stage, measured in rounds_of(workload):
            progress(stage, 0, len(workload.requests))
            record = self._run(self._round(workload, _counted(progress, stage, len(workload.requests))))
            if measured:
                rounds.append(usable(record, workload.name))
        return WorkloadRecord(
            name=workload.name,
            kind=workload.kind,
            numerics=workload.numerics,
            offered=offered_load(workload),
            rounds=tuple(rounds),
            forced=self._run(self._score(workload, rounds[0], progress)),
        )

    def close(self) -> None:
        self._runner.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        url = self._settings.url
        try:
            return self._runner.run(work)
        except (aiohttp.ClientError, TimeoutError) as fault:
            raise MeasurementError(
                f"{url}: no server answers ({client.in_words(fault)}): start it, or correct target.url"
            ) from fault

    async def _look(self) -> vllm.ServerFacts:
        url = self._settings.url
        async with client.session(url, self._key, 1) as opened:
            engine = vllm.version(*await _get(opened, "version"), url)
            served = vllm.served_model(*await _get(opened, "v1/models"), url, self._settings.model)
            return vllm.ServerFacts(engine, {**served, **vllm.cache_settings(await _metrics(opened))})

    async def _round(self, workload: WorkloadPlan, ended: Ended) -> RoundRecord:
        logprobs = workload.numerics == "reference"
        salt = uuid.uuid4().hex
        calls = [
            vllm.call(request, self._settings.model, salt, logprobs=logprobs) for request in workload.requests
        ]
        async with client.session(self._settings.url, self._key, workload.concurrency) as opened:
            before = vllm.preemptions(await _metrics(opened))
            await client.connect(opened, "version", min(workload.concurrency, len(calls)))
            sent = await client.closed_loop(opened, calls, workload.concurrency, ended)
            after = vllm.preemptions(await _metrics(opened))
        counters = {} if before is None or after is None else {"preemptions": max(after - before, 0)}
        return self._read(workload, sent, counters)

    def _read(self, workload: WorkloadPlan, sent: client.Sent, counters: dict[str, int]) -> RoundRecord:
        planned = {request.id: request for request in workload.requests}
        lateness = [exchange.sent_ns - exchange.scheduled_ns for exchange in sent.exchanges]
        requests = []
        for exchange in sent.exchanges:
            answer, prompt = _answer(exchange), planned[exchange.id].prompt
            if answer.prompt_ids:
                self._prompt_ids[prompt.id] = answer.prompt_ids
            requests.append(_record(exchange, answer, prompt.id, prompt.digest))
        return RoundRecord(
            wall_ns=max(exchange.ended_ns for exchange in sent.exchanges),
            requests=tuple(requests),
            counters=counters,
            client=ClientFacts(
                max_lateness_ns=max(lateness),
                mean_lateness_ns=sum(lateness) // len(lateness),
                starved_ns=sent.starved_ns,
            ),
        )

    async def _score(
        self, workload: WorkloadPlan, first: RoundRecord, progress: Progress
    ) -> tuple[ForcedScore, ...]:
        """Logprobs of stored completions, one at a time; of the server's own, where none is stored.

        One that the server does not take is left out.
        """
        completions = {forced.prompt_id: forced.completion_ids for forced in workload.forced}
        if workload.numerics == "reference":
            completions = {**_own_completions(first), **completions}
        if not completions:
            return ()
        found: list[ForcedScore] = []
        async with client.session(self._settings.url, self._key, 1) as opened:
            for number, (name, ids) in enumerate(completions.items()):
                progress(f"{workload.name}: score completions", number, len(completions))
                if name not in self._prompt_ids:
                    continue  # the prompt's own request failed
                scoring = vllm.scoring(name, self._prompt_ids[name], ids, self._settings.model)
                exchange = await client.send(opened, scoring, 0, lambda: 0)
                logprobs = vllm.scores(exchange.content, ids)
                if logprobs is not None:
                    found.append(ForcedScore(prompt_id=name, completion_ids=ids, logprobs=logprobs))
        return tuple(found)


def _own_completions(round_: RoundRecord) -> dict[str, tuple[int, ...]]:
    return {
        request.prompt_id: tuple(request.token_ids)
        for request in round_.requests
        if request.error is None and request.token_ids
    }


def _api_key(name: str | None) -> str | None:
    if name is None:
        return None
    key = os.environ.get(name, "").strip()
    if not key:
        raise UsageError(f"target.api_key_env: the environment has no {name}")
    if not (key.isascii() and key.isprintable()):
        raise UsageError(f"target.api_key_env: what {name} holds cannot be sent in a header")
    return key


def _machine(url: str, named: str | None) -> dict[str, str]:
    """This machine's facts where it serves itself; a name in their place where another one does."""
    host = urlsplit(url).hostname or UNKNOWN
    here = machine_facts()
    if named is None and (host in _HERE or host.startswith("127.")):
        return here
    return {**dict.fromkeys(here, UNKNOWN), "server": named or host}


def _counted(progress: Progress, stage: str, total: int) -> Ended:
    return lambda done: progress(stage, done, total)


async def _get(opened: aiohttp.ClientSession, path: str) -> tuple[int, bytes]:
    async with opened.get(path, allow_redirects=False) as response:
        return response.status, await response.read()


async def _metrics(opened: aiohttp.ClientSession) -> str:
    status, body = await _get(opened, "metrics")
    return body.decode("utf-8", errors="replace") if status == 200 else ""


def _answer(exchange: client.Exchange) -> Answer:
    """What the exchange gave, or why it gave nothing."""
    if exchange.error is not None:
        return Answer(error=exchange.error)
    if exchange.status == 200:
        return read_answer(exchange.reads)
    return Answer(error=f"HTTP status {exchange.status}: {told_body(exchange.content)}")


def _record(exchange: client.Exchange, answer: Answer, prompt_id: str, digest: str) -> RequestRecord:
    one_each = all(count == 1 for count in answer.frame_tokens)
    return RequestRecord(
        id=exchange.id,
        prompt_id=prompt_id,
        prompt_digest=digest,
        scheduled_ns=exchange.scheduled_ns,
        sent_ns=exchange.sent_ns,
        arrivals_ns=tuple(answer.arrivals_ns),
        frame_tokens=None if one_each else tuple(answer.frame_tokens),
        ended_ns=exchange.ended_ns,
        finish_reason=answer.finish_reason,
        error=answer.error,
        token_ids=tuple(answer.token_ids),
        text=answer.text,
        logprobs=None if answer.logprobs is None else tuple(answer.logprobs),
        usage=answer.usage,
    )
