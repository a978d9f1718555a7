"""Proves and measures the CUDA kernels on the GPU at hand, in under six minutes on an H200.

    python benchmarks/device_check.py --out device.json [--compute-sanitizer PATH]

In order: the kernel tests on the device and the engine's against the PyTorch backend, invariance of bits at
serving sizes, times by CUDA events with a cold L2 cache, the engine, and with the time that is left
compute-sanitizer's memcheck and racecheck on a few tests. The table comes last. ``--dry-run`` walks through
the measuring code on the host shim with tiny shapes: it shows that the script works, and its figures mean
nothing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import device_engine
import torch

from servegate_engine import sampling
from servegate_engine.backends import cuda_sampling
from servegate_engine.request import SamplingParams
from servegate_engine.sampling import SampleRow
from servegate_kernels import resources
from servegate_kernels.launcher import Launcher
from servegate_kernels.loader import DeviceError, DeviceLauncher
from servegate_kernels.ops import AttentionPlan, Kernels
from servegate_kernels.plan import plan_rows
from servegate_kernels.shim import HostLauncher

TESTS = Path(__file__).parents[1] / "tests" / "kernels"
FILES = [f"test_kernel_{name}.py" for name in ("attention", "matmul", "rows", "sampling")]
ENGINE_TESTS = (
    "test_sampling_on_shim.py",
    "test_engine_on_shim.py::test_the_whole_engine_gives_the_torch_backends_tokens_and_logprobs",
)
"""Of the engine, those that hold the device to the host."""
HEADS, KV_HEADS, HEAD_SIZE = 32, 8, 128


@dataclass
class Check:
    """One run: the device, the deadline and what was found."""

    launcher: Launcher
    dry: bool
    deadline: float
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kernels = Kernels(self.launcher)
        self.device = self.launcher.device
        flush_bytes = 1 << (10 if self.dry else 28)  # several times any L2 cache
        self.flush = torch.empty(flush_bytes, dtype=torch.uint8, device=self.device)

    def add(self, what: str, value: float | str, unit: str = "", target: str = "", **details: Any) -> None:
        self.rows.append({"what": what, "value": value, "unit": unit, "target": target, **details})
        print(f"  {what}: {value if isinstance(value, str) else f'{value:.4g}'} {unit}", flush=True)

    def random(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        generator = torch.Generator(self.device).manual_seed(sum(shape))
        return torch.randn(shape, generator=generator, device=self.device, dtype=torch.float32).to(dtype)

    def seconds(self, call: Callable[[], object], repeats: int = 30) -> float:
        """Median of ``repeats`` timed calls after three unmeasured ones, by events on the current stream.

        Before each the L2 cache is overwritten; while the device is busy with that, the host runs ahead.
        """
        if self.dry:
            start = time.perf_counter()
            call()
            return time.perf_counter() - start
        for _ in range(3):
            call()
        event: Callable[..., Any] = torch.cuda.Event
        events = [(event(enable_timing=True), event(enable_timing=True)) for _ in range(repeats)]
        for start_event, end_event in events:
            self.flush.zero_()
            start_event.record()
            call()
            end_event.record()
        torch.cuda.synchronize()
        times = sorted(start_event.elapsed_time(end_event) for start_event, end_event in events)
        return float(times[repeats // 2]) / 1e3

    def graphed(self, call: Callable[[], object]) -> Callable[[], object]:
        """``call`` captured in a CUDA graph: its time without the host's share of launching."""
        if self.dry:
            return call
        call()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        return graph.replay


def pytest_command(*selection: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow",
        *selection,
    ]


def run_tests(check: Check) -> None:
    """The tests of tests/kernels that take a device, on it."""
    tests = [str(TESTS / name) for name in (*FILES, *ENGINE_TESTS)]
    run_command(check, "tests", pytest_command(*tests, "-k", "not beyond_32_bits"))


def run_sanitizer(check: Check, sanitizer: str | None) -> None:
    """A few of them under compute-sanitizer: some of each kernel file."""
    few = "rms_norm or write_kv or (matches_float64 and 64-torch.bfloat16) or silu_mul or nothing_to_draw"
    for tool in ("memcheck", "racecheck"):
        what = f"compute-sanitizer {tool}"
        if sanitizer is None:
            check.add(what, "not run: not found")
            continue
        options = ["--tool", tool, "--error-exitcode", "9", "--target-processes", "all"]
        tests = pytest_command(*(str(TESTS / name) for name in FILES), "-k", few)
        run_command(check, what, [sanitizer, *options, *tests])


def run_command(check: Check, what: str, command: list[str]) -> None:
    environment = {**os.environ, "SERVEGATE_KERNEL_TESTS": "cuda"}
    left = check.deadline - time.monotonic()
    if left <= 0:
        check.add(what, "not run: out of time")
        return
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=min(120, left), check=False
        )
    except subprocess.TimeoutExpired:
        check.add(what, "FAILED: out of time")
        return
    lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
    verdict = "passed" if done.returncode == 0 else "FAILED"
    check.add(what, verdict, log=lines[-40:] if done.returncode else lines[-1:])


def attention_case(
    check: Check, batch: int, length: int, block_size: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, AttentionPlan]:
    """Decode of ``batch`` sequences of ``length`` tokens on random pages: queries, pools, plan."""
    blocks = -(-length // block_size)
    generator = torch.Generator().manual_seed(0)
    tables = torch.randperm(batch * blocks, generator=generator).view(batch, blocks).to(check.device)
    pools = [check.random(batch * blocks * block_size, KV_HEADS, HEAD_SIZE) for _ in range(2)]
    plan = plan_rows([(1, length)] * batch, group_size=HEADS // KV_HEADS, element="bf16", head_size=HEAD_SIZE)
    queries = check.random(batch, HEADS, HEAD_SIZE)
    return queries, pools[0], pools[1], AttentionPlan.of(plan, tables, block_size)


def measure_copy(check: Check) -> float:
    """Bytes a second of a device copy, read and written: the ceiling for everything bound by memory."""
    source = torch.empty(1 << (20 if check.dry else 30), dtype=torch.uint8, device=check.device)
    target = torch.empty_like(source)
    rate = 2 * source.numel() / check.seconds(lambda: target.copy_(source))
    check.add("device copy", rate / 1e9, "GB/s")
    return rate


def measure_attention(check: Check, copy_rate: float) -> None:
    grid = itertools.product((1, 8, 64), (512, 2048, 8192))
    shapes = [(1, 40)] if check.dry else list(grid)
    scale = HEAD_SIZE**-0.5
    for batch, length in shapes:
        for block_size in (16, 64):
            queries, key_pool, value_pool, plan = attention_case(check, batch, length, block_size)

            def run(
                q: torch.Tensor = queries, k: Any = key_pool, v: Any = value_pool, p: Any = plan
            ) -> object:
                return check.kernels.attention(q, k, v, p, scale)

            taken = check.seconds(check.graphed(run))
            moved = 2 * batch * length * KV_HEADS * HEAD_SIZE * 2
            target = "0.85" if batch * length >= 65536 else ""
            name = f"attention B={batch} L={length} block {block_size}, of copy"
            check.add(name, moved / taken / copy_rate, target=target, microseconds=taken * 1e6)
        keys, values = (check.random(batch, KV_HEADS, length, HEAD_SIZE) for _ in range(2))
        query = queries.unsqueeze(2)

        def library(q: torch.Tensor = query, k: torch.Tensor = keys, v: torch.Tensor = values) -> object:
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)

        other = check.seconds(check.graphed(library))
        check.add(f"attention B={batch} L={length}, torch SDPA's time / ours", other / taken, target="1.0")
    queries, key_pool, value_pool, plan = attention_case(check, 1, 40 if check.dry else 512, 16)
    ids = torch.zeros(1, dtype=torch.int64, device=check.device)
    table = check.random(8, 64)
    ours = check.seconds(
        check.graphed(lambda: check.kernels.attention(queries, key_pool, value_pool, plan, scale))
    )
    launch = check.seconds(check.graphed(lambda: check.kernels.embedding(table, ids)))
    check.add("attention B=1 L=512, in graph launches", ours / launch, target="<= 1.5")


def measure_small(check: Check, copy_rate: float) -> None:
    rows, hidden, vocabulary = (2, 64, 500) if check.dry else (4096, 4096, 128256)
    k, x = check.kernels, check.random(rows, hidden)
    weight = check.random(hidden)
    taken = check.seconds(lambda: k.add_rms_norm(x, x, weight, 1e-5))
    check.add("add_rms_norm 4096 x 4096, of copy", 4 * x.numel() * 2 / taken / copy_rate)
    keys = check.random(rows, KV_HEADS, HEAD_SIZE)
    pools = [torch.empty_like(keys) for _ in range(2)]
    slots = torch.randperm(rows, device=check.device)
    taken = check.seconds(lambda: k.write_kv(keys, keys, pools[0], pools[1], slots))
    check.add("write_kv 4096 rows, of copy", 4 * keys.numel() * 2 / taken / copy_rate)
    batch = 1 if check.dry else 64
    logits = check.random(batch, vocabulary, dtype=torch.float32)

    def per_row(value: float, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        return torch.full((batch,), value, dtype=dtype, device=check.device)

    integers = [per_row(value, torch.int64) for value in (50, 1, 7)]
    for name, top_p in (("temperature", 1.0), ("top-k 50, top-p 0.9", 0.9)):
        top_k = integers[0] if top_p < 1.0 else torch.zeros_like(integers[0])

        def draw(top_k: torch.Tensor = top_k, top_p: float = top_p) -> object:
            return k.sample(
                logits, per_row(0.7), top_k, per_row(top_p), per_row(-math.inf), integers[1], integers[2]
            )

        check.add(f"sample 64 rows of 128k, {name}", check.seconds(draw, 5) * 1e6, "us")
    check.add(
        "log_softmax 64 rows of 128k, top 5",
        check.seconds(lambda: k.log_softmax(logits, integers[1], 5)) * 1e6,
        "us",
    )


def measure_matmul(check: Check) -> None:
    shapes = [(64, 32)] if check.dry else [(4096, 4096), (4096, 14336)]
    for k, n in shapes:
        weight = check.random(n, k)
        for m in (1, 20) if check.dry else (1, 16, 64, 256, 2048):
            x = check.random(m, k)
            ours = check.seconds(check.graphed(lambda x=x, w=weight: check.kernels.matmul(x, w)))  # type: ignore[misc]
            vendor = check.seconds(check.graphed(lambda x=x, w=weight: x @ w.T))  # type: ignore[misc]
            target = "0.8" if m >= 64 else ""
            name = f"matmul m={m} n={n} k={k}, vendor's time / ours"
            check.add(name, vendor / ours, target=target, tflops=2 * m * n * k / ours / 1e12)


def check_invariance(check: Check) -> None:
    """Bits at serving sizes: alone = batched = other pages = other tile shapes."""
    batch, length = (3, 40) if check.dry else (16, 3000)
    queries, key_pool, value_pool, plan = attention_case(check, batch, length, 16)
    together = check.kernels.attention(queries, key_pool, value_pool, plan, 0.1)
    same = True
    for i in range(batch):
        rows = plan_rows([(1, length)], group_size=HEADS // KV_HEADS, element="bf16", head_size=HEAD_SIZE)
        alone = AttentionPlan.of(rows, plan.tables[i : i + 1].contiguous(), 16)
        out = check.kernels.attention(queries[i : i + 1], key_pool, value_pool, alone, 0.1)
        same &= torch.equal(out[0], together[i])
        token = torch.arange(length, device=check.device)
        order = plan.tables[i, token // 16] * 16 + token % 16
        moved = AttentionPlan.of(rows, torch.zeros(1, 1, dtype=torch.int64, device=check.device), length)
        out = check.kernels.attention(
            queries[i : i + 1], key_pool[order].contiguous(), value_pool[order].contiguous(), moved, 0.1
        )
        same &= torch.equal(out[0], together[i])
    check.add("attention: alone = batched = one large page", "equal" if same else "FAILED", target="equal")
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        m, n, k = (20, 40, 64) if check.dry else (2048, 4096, 4096)
        x, weight = check.random(m, k, dtype=dtype), check.random(n, k, dtype=dtype)
        whole = check.kernels.matmul(x, weight)
        parts = [(0, 1), (m - 1, m), (3, 19), *(() if check.dry else ((100, 200), (5, 1000)))]
        same = all(
            torch.equal(check.kernels.matmul(x[a:b].contiguous(), weight), whole[a:b]) for a, b in parts
        )
        name = f"matmul {str(dtype)[6:]}: rows alone = in any batch"
        check.add(name, "equal" if same else "FAILED", target="equal")


def check_sampling(check: Check) -> None:
    """Tokens and logprobs: a row alone = the row in a batch."""
    rows, vocabulary = (2, 500) if check.dry else (16, 128256)
    logits = 4 * check.random(rows, vocabulary, dtype=torch.float32)
    params = [
        SamplingParams(temperature=1.0, top_k=50, top_p=0.9, seed=i, top_logprobs=5) for i in range(rows)
    ]
    wanted = [SampleRow(own, (1,), ()) for own in params]
    together = cuda_sampling.sample(check.kernels, logits, wanted)
    alone = [
        cuda_sampling.sample(check.kernels, logits[i : i + 1], wanted[i : i + 1])[0] for i in range(rows)
    ]
    check.add("sampling: alone = batched", "equal" if alone == together else "FAILED", target="equal")
    other = sampling.sample(logits.cpu(), wanted)
    same = [None if x is None else x.token_id for x in together] == [x and x.token_id for x in other]
    check.add("sampling: tokens of the host's sampler", "equal" if same else "FAILED", target="equal")


def measure_engine(check: Check) -> None:
    for what, value, unit, target in device_engine.measure(check.launcher, check.dry):
        check.add(what, value, unit, target)


def describe(check: Check) -> dict[str, str]:
    facts = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "kernels": resources.digest()}
    if check.dry:
        return facts | {"card": "none: dry run on the host shim"}
    import cupy

    driver = cupy.cuda.runtime.driverGetVersion()
    return facts | {
        "card": torch.cuda.get_device_name(check.device),
        "driver": f"CUDA {driver // 1000}.{driver % 1000 // 10}",
        "cupy": str(cupy.__version__),
        "torch": str(torch.__version__),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("device.json"), help="where the full results go")
    parser.add_argument("--compute-sanitizer", default=shutil.which("compute-sanitizer"), help="its path")
    parser.add_argument("--seconds", type=float, default=350, help="no section starts after this long")
    parser.add_argument("--dry-run", action="store_true", help="tiny shapes on the host shim")
    options = parser.parse_args()
    try:
        launcher: Launcher = HostLauncher() if options.dry_run else DeviceLauncher()
    except DeviceError as error:
        print(f"device_check: {error}", file=sys.stderr)
        return 2
    start = time.monotonic()
    check = Check(launcher, options.dry_run, start + options.seconds)
    copy_rate = measure_copy(check)
    sections: list[tuple[str, Callable[[], None]]] = [
        ("invariance", lambda: check_invariance(check)),
        ("sampling", lambda: check_sampling(check)),
        ("attention", lambda: measure_attention(check, copy_rate)),
        ("matrix product", lambda: measure_matmul(check)),
        ("small kernels", lambda: measure_small(check, copy_rate)),
        ("engine", lambda: measure_engine(check)),
    ]
    if not options.dry_run:
        sections.insert(0, ("tests", lambda: run_tests(check)))
        sections.append(("sanitizer", lambda: run_sanitizer(check, options.compute_sanitizer)))
    for name, section in sections:
        if time.monotonic() > check.deadline:
            check.add(name, "not run: out of time")
            continue
        print(f"{name} ({time.monotonic() - start:.0f} s)", flush=True)
        try:
            section()
        except Exception as error:  # the other sections are still worth having
            check.add(name, f"FAILED: {type(error).__name__}: {error}")
    report = {**describe(check), "seconds": round(time.monotonic() - start, 1), "results": check.rows}
    options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"\n{report['card']}, {report['date']}, {report['seconds']} s")
    for row in check.rows:
        value = row["value"] if isinstance(row["value"], str) else f"{row['value']:.4g}"
        print(f"{row['what']:<66} {value:>12} {row['unit']:<9} {row['target']}")
    return int(any("FAILED" in str(row["value"]) for row in check.rows))


if __name__ == "__main__":
    sys.exit(main())
