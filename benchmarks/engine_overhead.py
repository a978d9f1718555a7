"""What the engine costs beside the model: microseconds per decode step, with the model stubbed.

    python benchmarks/engine_overhead.py [--vocab 49152] [--steps 200]

Prints a Markdown table. *scheduler* is ``Scheduler.schedule``; *batch* builds the flat step batch; *sampler*
is ``sample`` on rows of random logits, greedy; *rest* is all else in ``Engine.step``: meters, block
bookkeeping, stop checks, events. Each figure is the median over the steps of CPU time on one thread, so that
a busy machine does not show.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from servegate_engine import engine as engine_module
from servegate_engine import sampling
from servegate_engine.batch import StepBatch
from servegate_engine.config import EngineConfig
from servegate_engine.engine import Engine
from servegate_engine.request import Request, SamplingParams, TokenLogprob
from servegate_engine.sampling import SampleRow

PROMPT_TOKENS = 100


class StubModel:
    """Logits from a table: no model at all."""

    def __init__(self, vocab_size: int, rows: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.logits = torch.rand(rows, vocab_size, generator=generator)

    def forward(self, batch: StepBatch) -> torch.Tensor:
        return self.logits[: len(batch.logit_rows)]

    def sample(self, logits: torch.Tensor, rows: Sequence[SampleRow]) -> list[TokenLogprob | None]:
        return sampling.sample(logits, rows)

    def describe(self) -> dict[str, str]:
        return {"device": "stub"}


class Timed:
    """Wraps a function and keeps the CPU time of its last call, in nanoseconds."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.last_ns = 0

    def __call__(self, *args: Any) -> Any:
        start = time.thread_time_ns()
        result = self.function(*args)
        self.last_ns = time.thread_time_ns() - start
        return result


def measure(num_running: int, vocab_size: int, steps: int) -> dict[str, float]:
    """Median microseconds of each part of a step that decodes ``num_running`` requests."""
    blocks_each = (PROMPT_TOKENS + steps) // 16 + 2
    config = EngineConfig(
        num_blocks=num_running * blocks_each,
        max_num_seqs=num_running,
        max_batched_tokens=num_running * PROMPT_TOKENS,
        max_queue=num_running,
    )
    model = StubModel(vocab_size, num_running)
    engine = Engine(model, config, vocab_size=vocab_size, max_position=100_000)
    for i in range(num_running):
        prompt = tuple((i + 31 * j) % vocab_size for j in range(PROMPT_TOKENS))
        engine.add(Request(f"r{i}", prompt, SamplingParams(max_tokens=100_000)))
    while engine._scheduler.waiting or any(r.num_uncomputed > 1 for r in engine._scheduler.running):
        engine.step()

    parts = {
        "scheduler": Timed(engine._scheduler.schedule),
        "batch": Timed(engine_module.build_batch),
        "sampler": Timed(model.sample),
    }
    engine._scheduler.schedule = parts["scheduler"]  # type: ignore[method-assign]
    engine_module.build_batch = parts["batch"]
    model.sample = parts["sampler"]  # type: ignore[method-assign]
    step = Timed(engine.step)
    samples: dict[str, list[int]] = {name: [] for name in (*parts, "rest", "step")}
    for _ in range(steps):
        step()
        for name, part in parts.items():
            samples[name].append(part.last_ns)
        samples["rest"].append(step.last_ns - sum(part.last_ns for part in parts.values()))
        samples["step"].append(step.last_ns)
    engine_module.build_batch = parts["batch"].function
    return {name: statistics.median(values) / 1000 for name, values in samples.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--vocab", type=int, default=49152, help="vocabulary size (default: SmolLM2's 49152)")
    parser.add_argument("--steps", type=int, default=200, help="decode steps per row of the table")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print("| running | scheduler us | batch us | rest us | all but sampler, us per request | sampler us |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for num_running in (1, 16, 256):
        us = measure(num_running, args.vocab, args.steps)
        each = (us["scheduler"] + us["batch"] + us["rest"]) / num_running
        print(
            f"| {num_running} | {us['scheduler']:.1f} | {us['batch']:.1f} | {us['rest']:.1f} "
            f"| {each:.2f} | {us['sampler']:.0f} |"
        )


if __name__ == "__main__":
    main()
