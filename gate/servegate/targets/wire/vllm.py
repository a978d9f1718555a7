"""What is asked of a vLLM server and how its answers read. Pure.

Field by field as its OpenAI-compatible server defines them, in `vllm/entrypoints/openai`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from servegate.errors import MeasurementError, UsageError
from servegate.machine import UNKNOWN
from servegate.plan import PlannedRequest
from servegate.targets.wire.client import Call
from servegate.targets.wire.frames import NO_VALUE

COMPLETIONS: Final = "v1/completions"
CHAT: Final = "v1/chat/completions"

MOST: Final = 2**40
"""Of a counter: above this, or NaN, it counts nothing that could be kept."""

_CACHE: Final = {
    "block_size": "block_size",
    "num_gpu_blocks": "num_blocks",
    "enable_prefix_caching": "prefix_cache",
    "cache_dtype": "cache_dtype",
}
"""Labels of `vllm:cache_config_info`, and the engine settings of a fingerprint that they are."""


def call(request: PlannedRequest, model: str, salt: str, *, logprobs: bool) -> Call:
    """The request with every sampling field, so that no default of the model's or the server's counts.

    ``salt`` parts the prefix cache: requests share what others with the same salt left in it.
    """
    fields: dict[str, Any] = {
        **request.sampling.model_dump(mode="json"),
        "model": model,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        "cache_salt": salt,
    }
    if request.prompt.messages is None:
        asked = {"logprobs": 0} if logprobs else {}
        return Call(request.id, COMPLETIONS, _json({**fields, **asked, "prompt": request.prompt.text}))
    asked = {"logprobs": True, "top_logprobs": 0} if logprobs else {}
    messages = [message.model_dump() for message in request.prompt.messages]
    return Call(request.id, CHAT, _json({**fields, **asked, "messages": messages}))


def scoring(id: str, prompt_ids: Sequence[int], completion_ids: Sequence[int], model: str) -> Call:
    """Teacher forcing: the completion as a part of the prompt, whose logprobs the server gives."""
    fields = {
        "model": model,
        "prompt": [*prompt_ids, *completion_ids],
        "max_tokens": 1,
        "temperature": 0,
        "prompt_logprobs": 0,
    }
    return Call(id, COMPLETIONS, _json(fields))


def scores(body: bytes, completion_ids: Sequence[int]) -> tuple[float, ...] | None:
    """The logprob of each token of the completion; None where the server does not give all of them."""
    try:
        positions = json.loads(body)["choices"][0]["prompt_logprobs"]
        given = positions[len(positions) - len(completion_ids) :]
        found = [at[str(token)]["logprob"] for at, token in zip(given, completion_ids, strict=True)]
    except (ValueError, KeyError, IndexError, TypeError):
        return None
    numbers = all(isinstance(value, float | int) and isfinite(value) for value in found)
    return tuple(found) if numbers and min(found) > NO_VALUE else None


@dataclass(frozen=True)
class ServerFacts:
    """What a server tells of itself. Names and values are those of a fingerprint."""

    engine: str
    """``vllm 0.32.0``."""
    served: dict[str, str]


def version(status: int, body: bytes, url: str) -> str:
    """Of `GET /version`. UsageError where it is no vLLM that answers."""
    try:
        found = json.loads(body)["version"] if status == 200 else None
    except (ValueError, KeyError, TypeError):
        found = None
    if not isinstance(found, str):
        raise UsageError(f"{url}: is no vLLM server: GET /version gave HTTP status {status} and no version")
    return f"vllm {found}"


def served_model(status: int, body: bytes, url: str, model: str) -> dict[str, str]:
    """Of `GET /v1/models`. UsageError where the server has no such model."""
    if status in (401, 403):
        raise UsageError(f"{url}: asks for an API key (HTTP status {status}): set target.api_key_env")
    try:
        models = {str(entry["id"]): entry for entry in json.loads(body)["data"]}
    except (ValueError, KeyError, TypeError):
        raise MeasurementError(f"{url}: GET /v1/models gave HTTP status {status} and no list") from None
    if model not in models:
        raise UsageError(f"{url}: serves {', '.join(sorted(models)) or 'no model'}, and not {model!r}")
    return {"model": model, "engine.max_model_len": str(models[model].get("max_model_len", UNKNOWN))}


def cache_settings(metrics: str) -> dict[str, str]:
    """Size and settings of the KV cache, from `GET /metrics`."""
    labels = next((labels for name, labels, _ in _samples(metrics) if name == "vllm:cache_config_info"), {})
    return {f"engine.{ours}": labels.get(theirs, UNKNOWN) for theirs, ours in _CACHE.items()}


def preemptions(metrics: str) -> int | None:
    """Since the server started, over all of its engines; None where it does not count them."""
    found = [value for name, _, value in _samples(metrics) if name == "vllm:num_preemptions_total"]
    return int(sum(found)) if found and 0 <= sum(found) <= MOST else None


def _samples(metrics: str) -> Iterator[tuple[str, dict[str, str], float]]:
    from prometheus_client.parser import text_string_to_metric_families

    try:
        for family in text_string_to_metric_families(metrics):
            for sample in family.samples:
                yield sample.name, sample.labels, sample.value
    except ValueError:
        return  # a page that is no metrics: nothing is known


def _json(body: dict[str, Any]) -> bytes:
    return json.dumps(body).encode()
