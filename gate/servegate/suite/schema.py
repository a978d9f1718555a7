"""What a suite file may say. The types are the schema: `servegate schema` exports them."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)

from servegate.model import Model
from servegate.units import Amount, Share


class EngineSettings(Model):
    """How the embedded engine serves. Every field is sent explicitly and stands in the fingerprint."""

    block_size: int = Field(16, ge=1, le=256, description="tokens in one KV block")
    num_blocks: int = Field(512, ge=1, description="KV blocks in the pool")
    max_num_seqs: int = Field(8, ge=1, description="most requests that run at once")
    max_batched_tokens: int = Field(256, ge=1, description="token budget of one step")
    max_prefill_tokens: int | None = Field(None, ge=1, description="cap on prefill's share of one step")
    max_model_len: int | None = Field(None, ge=1, description="cap on prompt plus completion of a request")
    max_queue: int = Field(1024, ge=1, description="most requests that wait; one more is shed")
    prefix_cache: bool = Field(True, description="reuse the KV blocks of equal prompt beginnings")
    threads: int | None = Field(None, ge=1, description="threads of the tensor library")
    device: Literal["cpu", "cuda"] = Field("cpu", description="cpu, or cuda: the first NVIDIA GPU")


class EmbeddedTarget(Model):
    kind: Literal["embedded"] = Field(description="embedded: the engine that servegate ships")
    model: str = Field(
        min_length=1, description="a known name, a directory, a .gguf file or a Hugging Face id"
    )
    engine: EngineSettings = Field(EngineSettings(), description="how the engine serves")


def _server_url(url: str) -> str:
    """The server's root, whether or not the URL ends in the ``/v1`` that OpenAI's clients are given."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("is no URL such as http://localhost:8000")
    if parts.username is not None or parts.password is not None:
        raise ValueError("holds credentials; name the variable that holds them with api_key_env")
    if parts.query or parts.fragment:
        raise ValueError("is not the root of a server: it has a query or a fragment")
    _ = parts.port  # raises ValueError where it is none
    return url.rstrip("/").removesuffix("/v1")


ServerUrl = Annotated[str, AfterValidator(_server_url)]


class VllmTarget(Model):
    """A server that runs already. What it serves, and how, is read from it."""

    kind: Literal["vllm"] = Field(description="vllm: a running vLLM server, by its URL")
    url: ServerUrl = Field(description="where it listens, such as http://localhost:8000")
    model: str = Field(min_length=1, description="the name that it serves the model under")
    api_key_env: str | None = Field(
        None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="environment variable that holds its API key"
    )
    machine: str | None = Field(
        None,
        min_length=1,
        description="names the hardware that serves, where it is not this machine's: timings of equal names "
        "are compared; default: the URL's host",
    )


Target = Annotated[EmbeddedTarget | VllmTarget, Discriminator("kind")]


class Sampling(Model):
    """Every field is sent explicitly: no target's default can move a result."""

    max_tokens: int = Field(128, ge=1, description="most tokens of a completion; a prompt's own wins")
    temperature: float = Field(0.0, ge=0, description="0 is greedy")
    top_p: float = Field(
        1.0, ge=0, le=1, description="keep the likeliest tokens up to this share; 1 keeps all"
    )
    top_k: int = Field(0, ge=0, description="keep this many likeliest tokens; 0 keeps all")
    min_p: float = Field(0.0, ge=0, le=1, description="drop tokens below this share of the likeliest one")
    repetition_penalty: float = Field(1.0, gt=0, description="1 is none")
    presence_penalty: float = Field(0.0, description="0 is none")
    frequency_penalty: float = Field(0.0, description="0 is none")
    seed: int = Field(0, ge=0, lt=2**63, description="of the noise, where temperature is above 0")
    min_tokens: int = Field(0, ge=0, description="no end of text before this many tokens")
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (), description="texts that end a completion"
    )
    ignore_eos: bool = Field(False, description="go on to max_tokens whatever the model says")

    @model_validator(mode="after")
    def _min_below_max(self) -> Sampling:
        if self.min_tokens > self.max_tokens:
            raise ValueError(f"min_tokens {self.min_tokens} is above max_tokens {self.max_tokens}")
        return self


def _scalar(value: object) -> object:
    # Told before the union is tried: one fault instead of one for each of its members.
    if not isinstance(value, (str, int, float, bool)):
        raise ValueError("expected text, a number, or true or false")
    return value


Variables = dict[str, Annotated[str | int | float | bool, BeforeValidator(_scalar)]]


class Prompts(Model):
    """Which prompts, and how each becomes what is sent."""

    set: str = Field(min_length=1, description="prompt set file (YAML or JSONL), relative to the suite")
    template: str | None = Field(
        None,
        min_length=1,
        description="Jinja2 file, relative to the suite, that renders `text` and the variables",
    )
    variables: Variables = Field({}, description="for the template; a prompt's own win")
    chat: bool = Field(True, description="send as chat messages through the model's own chat template")
    system: str | None = Field(
        None, min_length=1, description="system message of every prompt that brings none; sent as it stands"
    )

    @model_validator(mode="after")
    def _nothing_ignored(self) -> Prompts:
        if self.variables and self.template is None:
            raise ValueError("'variables' need a 'template'; without one, prompts are sent as they stand")
        if self.system is not None and not self.chat:
            raise ValueError("'system' needs 'chat: true'; write it into the template otherwise")
        return self


class ClosedWorkload(Model):
    """A fixed number of clients, each sending its next request when its last one ended."""

    kind: Literal["closed"] = Field(description="closed: a fixed number of clients")
    concurrency: int = Field(4, ge=1, description="clients; more than there are prompts is allowed")
    numerics: Literal["reference", "native"] = Field(
        "reference",
        description="reference: what answers are compared on, float64 on the embedded engine and exact on "
        "every machine; native: what latency is measured on",
    )
    repeat: int = Field(1, ge=1, description="measured rounds over the prompt set")
    warmup: int | None = Field(
        None, ge=0, description="rounds thrown away first; default 0 reference, 1 native"
    )
    max_tokens: int | None = Field(
        None, ge=1, description="cuts this workload's completions short, where less time tells as much"
    )


Workload = ClosedWorkload
WorkloadName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
"""No dots: ``latency.ttft_p95`` names a metric of a workload."""


class TokenPrices(Model):
    per: int = Field(1_000_000, ge=1, description="the prices are for this many tokens")
    prompt: float = Field(ge=0, description="of prompt tokens that had to be computed")
    cached: float = Field(ge=0, description="of prompt tokens served from the prefix cache")
    completion: float = Field(ge=0, description="of completion tokens")
    currency: str = Field(min_length=1, description="such as USD")
    source: str = Field(min_length=1, description="where the prices come from")
    date: dt.date = Field(description="when they were read there")


class MachinePrices(Model):
    machine_hour: float = Field(gt=0, description="price of the machine for one hour")
    currency: str = Field(min_length=1, description="such as USD")
    source: str = Field(min_length=1, description="where the price comes from")
    date: dt.date = Field(description="when it was read there")


def _prices_kind(value: object) -> str:
    is_machine = isinstance(value, MachinePrices) or (isinstance(value, dict) and "machine_hour" in value)
    return "machine" if is_machine else "tokens"


# Told apart by hand, so that a fault is reported against the kind that was meant and not against both.
Prices = Annotated[
    Annotated[TokenPrices, Tag("tokens")] | Annotated[MachinePrices, Tag("machine")],
    Discriminator(_prices_kind),
]


class QualityCheck(Model):
    """Exactly one of the checks, on one prompt's answer (``*``: on every prompt's)."""

    prompt: str = Field(description="id of a prompt, or * for every one")
    contains: str | None = Field(None, min_length=1, description="the answer holds this text")
    regex: str | None = Field(
        None, min_length=1, description="this Python regular expression is found in the answer"
    )
    exact: str | None = Field(None, description="the answer is this text")
    json_schema: dict[str, Any] | None = Field(
        None, description="the answer is JSON that this JSON Schema (2020-12) accepts"
    )

    @field_validator("regex")
    @classmethod
    def _compiles(cls, regex: str | None) -> str | None:
        try:
            re.compile(regex or "")
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"is not a regular expression: {error}") from None
        return regex

    @field_validator("json_schema")
    @classmethod
    def _is_a_schema(cls, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        if schema is not None:
            _check_json_schema(schema)
        return schema

    @model_validator(mode="after")
    def _one_check(self) -> QualityCheck:
        given = [n for n in ("contains", "regex", "exact", "json_schema") if getattr(self, n) is not None]
        if len(given) != 1:
            raise ValueError("give exactly one of contains, regex, exact, json_schema")
        return self


def _check_json_schema(schema: dict[str, Any]) -> None:
    import jsonschema

    for reference in _references(schema):
        if not reference.startswith("#"):  # a validator would go and fetch it
            raise ValueError(
                f"$ref {reference!r} leaves the schema; only references that start with # are followed"
            )
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        where = "/".join(map(str, error.absolute_path))
        raise ValueError(
            f"is not a JSON Schema: {where + ': ' if where else ''}{error.message[:200]!s}"
        ) from None


def _references(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        for name, value in node.items():
            if name in ("$ref", "$dynamicRef") and isinstance(value, str):
                yield value
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


class Rule(Model):
    """When a metric's change is a regression. With both ``change`` and ``floor``, both must be exceeded."""

    change: Share | None = Field(None, description="relative tolerance, such as 5%")
    floor: Amount | None = Field(
        None, description="absolute change below which nothing is a regression: 20ms"
    )
    max: Amount | None = Field(None, description="the head's value may not be above this")
    min: Amount | None = Field(None, description="the head's value may not be below this")
    equal: Literal[True] | None = Field(None, description="must be equal to the base")

    @model_validator(mode="after")
    def _says_something(self) -> Rule:
        if self.equal and (self.change, self.floor) != (None, None):
            raise ValueError("'equal' leaves no room for 'change' or 'floor'")
        if self.floor is not None and self.change is None:
            raise ValueError("'floor' needs 'change'")
        if not any((self.change is not None, self.max is not None, self.min is not None, self.equal)):
            raise ValueError("give at least one of change, max, min, equal")
        return self


class Policy(Model):
    """Metric (or ``workload.metric``) to rule. Metrics without a rule are shown and never fail the suite."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Rule] = Field(init=False)

    inconclusive: Literal["pass", "fail"] = Field(
        "pass", description="what a row with a rule does to the suite when the evidence does not decide"
    )
    not_comparable: Literal["pass", "fail"] = Field(
        "pass", description="the same when base and head ran on different machines"
    )
    missing: Literal["pass", "fail"] = Field(
        "fail", description="the same when the head no longer has what the base has"
    )

    @property
    def rules(self) -> dict[str, Rule]:
        return dict(self.__pydantic_extra__)


class Suite(Model):
    """One file that says everything: what is measured, with what, when, and what counts as a regression."""

    version: Literal[1] = Field(description="of this file's form")
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$", description="names the baselines' directory")
    target: Target = Field(description="what is measured")
    sampling: Sampling = Field(Sampling(), description="sent with every request")
    prompts: Prompts = Field(description="what is sent")
    workloads: dict[WorkloadName, Workload] = Field(min_length=1, description="when it is sent, by name")
    prices: Prices | None = Field(None, description="what tokens or the machine cost, for cost_per_request")
    quality: tuple[QualityCheck, ...] = Field((), description="what the answers must hold")
    policy: Policy = Field(description="what counts as a regression")
    pins: dict[str, str] = Field(
        {}, description="expected versions: engine, torch, cuda, driver, model_digest, ..."
    )
