"""What a suite file may say. The types are the schema: `servegate schema` exports them."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

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
    prefix_cache: bool = True
    threads: int | None = Field(None, ge=1, description="threads of the tensor library")


class EmbeddedTarget(Model):
    kind: Literal["embedded"]
    model: str = Field(description="a known name, a directory, a .gguf file or a Hugging Face id")
    engine: EngineSettings = EngineSettings()


Target = EmbeddedTarget
"""Becomes a union, told apart by ``kind``, with the second serving engine."""


class Sampling(Model):
    """Every field is sent explicitly: no target's default can move a result."""

    max_tokens: int = Field(128, ge=1)
    temperature: float = Field(0.0, ge=0)
    top_p: float = Field(1.0, ge=0, le=1)
    top_k: int = Field(0, ge=0, description="0 keeps all")
    min_p: float = Field(0.0, ge=0, le=1)
    repetition_penalty: float = Field(1.0, gt=0)
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = Field(0, ge=0, lt=2**63)
    min_tokens: int = Field(0, ge=0)
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False


class Prompts(Model):
    """Which prompts, and how each becomes what is sent."""

    set: str = Field(description="prompt set file (YAML), relative to the suite")
    template: str | None = Field(None, description="Jinja2 file that renders `text` and the variables")
    variables: dict[str, str | int | float | bool] = Field(
        {}, description="for the template; a prompt's own win"
    )
    chat: bool = Field(True, description="send as chat messages through the model's own chat template")
    system: str | None = Field(None, description="system message of every chat prompt")


class ClosedWorkload(Model):
    """A fixed number of clients, each sending its next request when its last one ended."""

    kind: Literal["closed"]
    concurrency: int = Field(4, ge=1)
    numerics: Literal["reference", "native"] = Field(
        "reference",
        description="reference: float64, exact on every machine; native: what latency is measured on",
    )
    repeat: int = Field(1, ge=1, description="measured rounds over the prompt set")
    warmup: int | None = Field(
        None, ge=0, description="rounds thrown away first; default 0 reference, 1 native"
    )


Workload = ClosedWorkload


class TokenPrices(Model):
    per: int = Field(1_000_000, ge=1, description="the prices are for this many tokens")
    prompt: float = Field(ge=0)
    cached: float = Field(ge=0)
    completion: float = Field(ge=0)
    currency: str
    source: str = Field(min_length=1, description="where the prices come from")
    date: dt.date = Field(description="when they were read there")


class MachinePrices(Model):
    machine_hour: float = Field(gt=0)
    currency: str
    source: str = Field(min_length=1)
    date: dt.date


class QualityCheck(Model):
    """Exactly one of the checks, on one prompt's answer (``*``: on every prompt's)."""

    prompt: str
    contains: str | None = None
    regex: str | None = None
    exact: str | None = None
    json_schema: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _one_check(self) -> QualityCheck:
        given = [n for n in ("contains", "regex", "exact", "json_schema") if getattr(self, n) is not None]
        if len(given) != 1:
            raise ValueError("give exactly one of contains, regex, exact, json_schema")
        return self


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

    inconclusive: Literal["pass", "fail"] = "pass"
    not_comparable: Literal["pass", "fail"] = "pass"
    missing: Literal["pass", "fail"] = "fail"

    @property
    def rules(self) -> dict[str, Rule]:
        return dict(self.__pydantic_extra__)


class Suite(Model):
    version: Literal[1]
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")
    target: Target
    sampling: Sampling = Sampling()
    prompts: Prompts
    workloads: Annotated[dict[str, Workload], Field(min_length=1)]
    prices: TokenPrices | MachinePrices | None = None
    quality: tuple[QualityCheck, ...] = ()
    policy: Policy
    pins: dict[str, str] = Field(
        {}, description="expected versions: engine, torch, cuda, driver, model_digest, ..."
    )
