"""The PyTorch backend on toy models: pages, chunks and neighbours never reach the numbers."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
import torch
from paged import Driver, Paged
from plain_forward import plain_logprobs
from toy import TOYS, toy_config, toy_weights

from servegate_engine.backends import onednn
from servegate_engine.backends.torch_backend import TorchBackend, compute_dtype
from servegate_engine.batch import SequenceSlice, StepBatch
from servegate_engine.config import EngineConfig, ModelConfig, Numerics
from servegate_engine.errors import ConfigError

IDS = [(7 * i * i + 3 * i) % 96 for i in range(37)]
OTHERS = [IDS[5:], IDS[::-1], [3], IDS[:16]]
NUM_TOKENS = 1024


def make(
    config: ModelConfig, block_size: int = 16, numerics: Numerics = "reference", **changes: Any
) -> tuple[TorchBackend, Driver]:
    engine = EngineConfig(
        block_size=block_size, num_blocks=-(-NUM_TOKENS // block_size), numerics=numerics, **changes
    )
    backend = TorchBackend(config, toy_weights(config, compute_dtype(numerics)), engine)
    return backend, Driver(backend, block_size, engine.num_blocks)


@lru_cache
def plain(name: str) -> torch.Tensor:
    return plain_logprobs(TOYS[name], toy_weights(TOYS[name]), IDS)


def worst(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b.double()).abs().max())


@pytest.mark.parametrize("name", TOYS)
def test_reference_equals_a_plain_forward(name: str) -> None:
    config = TOYS[name]
    _, driver = make(config)
    # Two layers of float64: a few dozen roundings of 1e-16 on values of order 10.
    assert worst(driver.run(IDS), plain(name)) < 1e-12


@pytest.mark.parametrize("block_size", [1, 2, 3, 5, 16, 37, 64, 256])
@pytest.mark.parametrize("chunk", [None, 1, 5, 16])
def test_reference_does_not_depend_on_pages_or_chunks(block_size: int, chunk: int | None) -> None:
    config = TOYS["qwen3"]
    _, driver = make(config, block_size)
    assert worst(driver.run(IDS, chunk), plain("qwen3")) < 1e-12


def test_reference_does_not_depend_on_neighbours() -> None:
    """engines.md 14 (pegainfer#414): batch-mates changed the first token at a near-tie."""
    config = TOYS["llama"]
    _, driver = make(config, 3)
    alone = [driver.run(ids) for ids in (IDS, *OTHERS)]
    for seed in range(5):
        for a, b in zip(alone, driver.run_together([IDS, *OTHERS], seed), strict=True):
            assert worst(a, b) < 1e-12


def test_same_prompt_eight_times_gives_one_answer() -> None:
    """engines.md 17 (llama.cpp#7052): eight slots with one prompt gave five completions."""
    _, driver = make(TOYS["llama"], 4)
    results = driver.run_together([IDS] * 8)
    assert all(worst(results[0], result) < 1e-12 for result in results)


@pytest.mark.parametrize("numerics", ["reference", "native"])
def test_unused_slots_are_never_read(numerics: Numerics) -> None:
    """engines.md 62 (vllm#641): NaN in an unused V slot, times a weight of zero, is NaN."""
    _, driver = make(TOYS["llama"], 16, numerics)
    expected = driver.run_together([IDS, *OTHERS])
    poisoned, driver = make(TOYS["llama"], 16, numerics)
    poisoned.kv.fill_(torch.nan)
    for a, b in zip(expected, driver.run_together([IDS, *OTHERS]), strict=True):
        assert torch.equal(a, b)


def test_the_poison_would_be_seen() -> None:
    """The inverse: a context that covers a slot nobody wrote does give NaN."""
    backend, _ = make(TOYS["llama"])
    backend.kv.fill_(torch.nan)
    batch = StepBatch((5,), (3,), (3,), (SequenceSlice(0, 1, 4, (0,)),), (0,))
    assert backend.forward(batch).isnan().any()


def test_a_broken_neighbour_does_not_spread() -> None:
    """One sequence's NaN pages stay its own, padded decode batch included."""
    backend, driver = make(TOYS["llama"], 4, "native")
    short, long = Paged(IDS[:9]), Paged(IDS)
    driver.step([(short, 8), (long, 36)])
    for block in long.table[:-1]:
        backend.kv[:, block * 4 : block * 4 + 4] = torch.nan
    driver.step([(short, 1), (long, 1)])
    assert short.logprobs[-1].isfinite().all()
    assert long.logprobs[-1].isnan().all()


def test_logits_come_for_the_wanted_rows_only() -> None:
    backend, _ = make(TOYS["llama"])
    slots = tuple(range(16, 22))
    sequence = SequenceSlice(0, 6, 6, (1,))
    every = backend.forward(StepBatch(tuple(IDS[:6]), tuple(range(6)), slots, (sequence,), tuple(range(6))))
    some = backend.forward(StepBatch(tuple(IDS[:6]), tuple(range(6)), slots, (sequence,), (1, 5)))
    assert every.shape == (6, 96)
    assert worst(some, every[[1, 5]]) < 1e-12


@pytest.mark.parametrize("numerics", ["reference", "native"])
def test_a_step_may_want_no_logits(numerics: Numerics) -> None:
    """Every request of the step is in the middle of its prompt."""
    backend, _ = make(TOYS["llama"], numerics=numerics)
    batch = StepBatch((5, 6), (0, 1), (0, 1), (SequenceSlice(0, 2, 2, (0,)),), ())
    assert backend.forward(batch).shape == (0, 96)


@pytest.mark.parametrize("name", TOYS)
def test_native_is_close_to_reference_and_not_equal(name: str) -> None:
    """Native float32 moves where reference does not: the inverse of the invariance tests."""
    config = TOYS[name]
    weights = toy_weights(config)
    engine = EngineConfig(block_size=16, num_blocks=64, numerics="native")
    native = Driver(TorchBackend(config, weights, engine), 16, 64)
    whole, single = native.run(IDS), native.run(IDS, 1)
    # float32 carries 24 bits: some 1e-6 on values of order 10. bfloat16 would be 1e-2.
    assert 1e-9 < worst(whole, plain(name)) < 1e-4
    assert 1e-9 < worst(single, plain(name)) < 1e-4
    assert worst(whole, single) > 1e-9


def test_native_bfloat16_batches_agree_within_its_rounding() -> None:
    config = TOYS["llama"]
    engine = EngineConfig(block_size=8, num_blocks=128, numerics="native")
    driver = Driver(TorchBackend(config, toy_weights(config, torch.bfloat16), engine), 8, 128)
    results = driver.run_together([IDS, *OTHERS])
    assert results[0].dtype == torch.float32
    # bfloat16 has 8 bits: 4e-3 relative, some forty roundings deep, on logits of order 5.
    assert worst(results[0], plain("llama")) < 0.5
    assert worst(driver.run(IDS), plain("llama")) < 0.5


def test_positions_beyond_the_pool_or_the_model_cost_no_memory() -> None:
    """A file that claims a context of 2**40 tokens gets rotary tables no longer than the pool."""
    config = replace(toy_config(), max_position=2**40)
    backend, driver = make(config)
    assert backend._cos.shape == (NUM_TOKENS, config.head_dim)
    assert driver.run(IDS).isfinite().all()


def test_a_pool_that_does_not_fit_is_one_line() -> None:
    config = toy_config()
    with pytest.raises(ConfigError, match=r"1099511627776 blocks of 16 tokens need .* GiB"):
        TorchBackend(config, toy_weights(config), EngineConfig(num_blocks=2**40))


def test_threads_are_honoured_and_described() -> None:
    before = torch.get_num_threads()
    try:
        backend, driver = make(TOYS["llama"], threads=2)
        assert torch.get_num_threads() == 2
        two = driver.run(IDS)
        described = backend.describe()
        assert (described["threads"], described["dtype"], described["products"]) == ("2", "float64", "plain")
        _, driver = make(TOYS["llama"], threads=1)
        assert torch.get_num_threads() == 1
        assert worst(driver.run(IDS), two) < 1e-12
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("fast", [True, False])
def test_native_uses_bfloat16_where_the_cpu_is_fast_at_it(
    fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onednn, "fast_bfloat16", lambda: fast)
    assert compute_dtype("native") == (torch.bfloat16 if fast else torch.float32)
    assert compute_dtype("reference") == torch.float64


def test_bfloat16_is_told_from_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for capabilities, fast in (({}, False), ({"avx512_bf16": True}, True), ({"amx_bf16": True}, True)):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda found=capabilities: found)
        assert onednn.fast_bfloat16() is fast


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packed_products_equal_plain_ones(dtype: torch.dtype) -> None:
    weight = toy_weights(TOYS["qwen2"], dtype)["layers.0.qkv"]
    bias = toy_weights(TOYS["qwen2"], dtype)["layers.0.qkv_bias"]
    x = toy_weights(TOYS["qwen2"], dtype, seed=2)["embed"]
    packed = onednn.pack_products({"embed": weight, "layers.0.qkv": weight})["layers.0.qkv"]
    exact = torch.nn.functional.linear(x.double(), weight.double(), bias.double())
    assert worst(onednn.linear(x, packed, bias), exact) < (1e-5 if dtype == torch.float32 else 0.02)


def test_without_the_packed_operators_plain_products_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "_can_pack", lambda weight: False)
    backend, driver = make(TOYS["llama"], numerics="native")
    assert backend.describe()["products"] == "plain"
    assert driver.run(IDS).isfinite().all()
