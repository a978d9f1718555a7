"""GGUF: what is read is what was written, and a broken or hostile file is one clear line."""

from __future__ import annotations

import contextlib
import random
import struct
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from toy import TOYS, toy_config, toy_weights, write_gguf

from servegate_engine.config import EngineConfig
from servegate_engine.errors import ModelFileError
from servegate_engine.gguf_file import GgufFile, GgufModel
from servegate_engine.loading import load_model, load_weights


@pytest.mark.parametrize("name", TOYS)
def test_round_trip(name: str, tmp_path: Path) -> None:
    """Configuration, fused weights, and Llama's interleaved q and k rows put back."""
    expected = TOYS[name]
    path = write_gguf(tmp_path / "toy.gguf", expected, toy_weights(expected))
    config, weights = load_weights(path, torch.float32)
    assert config == replace(
        expected, rms_norm_eps=float(np.float32(1e-6)), rope_theta=float(np.float32(expected.rope_theta))
    )
    assert weights.keys() == toy_weights(expected).keys()
    for key, weight in toy_weights(expected).items():
        assert torch.equal(weights[key], weight), key


@pytest.mark.parametrize("kind", [Kind.F16, Kind.BF16, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0])
def test_quantised_weights(kind: Kind, tmp_path: Path) -> None:
    config = TOYS["qwen2"]
    path = write_gguf(tmp_path / "toy.gguf", config, toy_weights(config), kind)
    _, weights = load_weights(path, torch.float64)
    exact = toy_weights(config)["layers.1.down"].numpy()
    expected = gguf.quants.dequantize(gguf.quants.quantize(exact, kind), kind)
    assert np.array_equal(weights["layers.1.down"].numpy(), expected.astype(np.float64))
    # Four bits resolve 1/15 of a block's range of at most 0.5; the others are finer.
    assert np.abs(expected - exact).max() < 0.04


@pytest.mark.parametrize("kind", [Kind.Q2_K, Kind.Q3_K, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K])
def test_k_quants(kind: Kind, tmp_path: Path) -> None:
    """The library cannot write these: blocks of known bytes, read as the library reads them."""
    block_size, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = np.frombuffer(random.Random(1).randbytes(3 * block_bytes), np.uint8).reshape(3, -1).copy()
    blocks[:, :] &= 0x3B  # keeps every float16 scale finite, wherever the format has it
    writer = gguf.GGUFWriter(tmp_path / "k.gguf", "llama")
    writer.add_tensor("x", blocks, raw_dtype=kind)
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file):
        step()
    writer.close()
    tensor = GgufFile(tmp_path / "k.gguf").tensor("x")
    assert tensor.shape == (3, block_size)
    assert np.array_equal(tensor.numpy(), gguf.quants.dequantize(blocks, kind))


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    config = toy_config(num_layers=1)
    path = write_gguf(tmp_path_factory.mktemp("gguf") / "toy.gguf", config, toy_weights(config), Kind.Q8_0)
    return path.read_bytes()


def load_bytes(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    load_model(path, EngineConfig(numerics="reference", num_blocks=4))


def refuse(content: bytes, path: Path, reason: str) -> None:
    with pytest.raises(ModelFileError, match=reason) as caught:
        load_bytes(content, path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_the_good_file_loads(good: bytes, tmp_path: Path) -> None:
    load_bytes(good, tmp_path / "a.gguf")


def test_truncation_anywhere(good: bytes, tmp_path: Path) -> None:
    chance = random.Random(2)
    sizes = [*range(0, 64), *(chance.randrange(len(good)) for _ in range(150)), len(good) - 1]
    for size in sizes:
        refuse(good[:size], tmp_path / "a.gguf", "truncated|empty|magic|cannot fit|missing|broken|not")


def test_flipped_header_bytes(good: bytes, tmp_path: Path) -> None:
    """Any byte of the header, any value: a clear refusal or a model, and never much memory."""
    header = good.index(b"blk.0.ffn_down.weight") + 400
    chance = random.Random(3)
    tracemalloc.start()
    for _ in range(300):
        broken = bytearray(good)
        for _ in range(chance.randrange(1, 4)):
            broken[chance.randrange(4, header)] = chance.choice([0, 1, 127, 128, 255, chance.randrange(256)])
        with contextlib.suppress(ModelFileError):  # any other exception fails the test
            load_bytes(bytes(broken), tmp_path / "a.gguf")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50e6


def patched(good: bytes, key: bytes, skip: int, code: str, value: int) -> bytes:
    """``good`` with the number ``skip`` bytes after the key's name replaced."""
    broken = bytearray(good)
    struct.pack_into("<" + code, broken, good.index(key) + len(key) + skip, value)
    return bytes(broken)


def test_hostile_lengths(good: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    for count in (2**60, 2**64 - 1):
        refuse(good[:8] + struct.pack("<Q", count) + good[16:], path, "cannot fit")
        refuse(good[:16] + struct.pack("<Q", count) + good[24:], path, "cannot fit")
        refuse(patched(good, b"tokenizer.ggml.tokens", 8, "Q", count), path, "cannot fit")
        refuse(patched(good, b"tokenizer.ggml.token_type", 8, "Q", count), path, "cannot fit")
        refuse(patched(good, b"tokenizer.ggml.pre", 4, "Q", count), path, "truncated")
        refuse(patched(good, b"blk.0.ffn_down.weight", 4, "Q", count), path, "cannot have|truncated|overlap")
        refuse(patched(good, b"blk.0.ffn_down.weight", 24, "Q", count - 31), path, "truncated")
    refuse(patched(good, b"llama.block_count", 4, "I", 2**31), path, "blk.1.attn_norm.weight' is missing")
    refuse(patched(good, b"llama.attention.head_count\x04", 0, "I", 0), path, "head_count")


def test_overlapping_tensors(good: bytes, tmp_path: Path) -> None:
    refuse(patched(good, b"blk.0.ffn_down.weight", 24, "Q", 32), tmp_path / "a.gguf", "overlap")


def test_unknown_tensor_type(good: bytes, tmp_path: Path) -> None:
    refuse(patched(good, b"blk.0.ffn_down.weight", 20, "I", 999), tmp_path / "a.gguf", "unknown type")
    refuse(patched(good, b"output_norm.weight", 12, "I", int(Kind.I32)), tmp_path / "a.gguf", "not supported")


def test_other_files(good: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    refuse(b"", path, "empty")
    refuse(b"PK\x03\x04" + bytes(100), path, "not a GGUF file")
    refuse(good[:4] + struct.pack("<I", 1) + good[8:], path, "version 1 is not supported")
    refuse(good[:4] + struct.pack(">I", 3) + good[8:], path, "is not supported")


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"general.architecture": "gptneox"}, "architecture 'gptneox' is not supported"),
        ({"general.architecture": 7}, "expected str"),
        ({"llama.block_count": "two"}, "expected int"),
        ({"llama.block_count": 3}, "'blk.2.attn_norm.weight' is missing"),
        ({"llama.embedding_length": 128}, "has shape"),
        ({"llama.attention.head_count": 3}, "head_count|multiple|shape"),
        ({"llama.rope.dimension_count": 8}, "rotary"),
        ({"llama.rope.scaling.type": "yarn"}, "rope scaling 'yarn'"),
        ({"llama.expert_count": 8}, "mixture-of-experts"),
        ({"tokenizer.ggml.model": "llama"}, "tokenizer 'llama'"),
        ({"tokenizer.ggml.pre": "poro-chat"}, "pre-tokenizer 'poro-chat'"),
    ],
)
def test_unsupported_metadata(metadata: dict[str, Any], reason: str, tmp_path: Path) -> None:
    config = toy_config()
    path = write_gguf(tmp_path / "toy.gguf", config, toy_weights(config), metadata=metadata)
    refuse(path.read_bytes(), path, reason)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", ["embed", "layers.1.qkv", "norm"])
def test_weights_must_be_finite(bad: float, name: str, tmp_path: Path) -> None:
    config = toy_config()
    weights = toy_weights(config)
    weights[name].view(-1)[5] = bad
    path = write_gguf(tmp_path / "toy.gguf", config, weights)
    refuse(path.read_bytes(), path, "NaN or infinite")


def test_an_unknown_rope_table_is_refused(tmp_path: Path) -> None:
    config = TOYS["llama3-rope"]
    path = write_gguf(tmp_path / "toy.gguf", config, toy_weights(config))
    content = path.read_bytes()
    info = GgufFile(path)._tensors["rope_freqs.weight"]
    broken = bytearray(content)
    struct.pack_into("<f", broken, info.offset + 8, 3.25)
    refuse(bytes(broken), path, "rope scaling that is not Llama 3's")


def test_a_symlink_is_fine(good: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(good)
    (tmp_path / "b.gguf").symlink_to(tmp_path / "a.gguf")
    assert GgufModel(GgufFile(tmp_path / "b.gguf")).config.num_layers == 1


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"absent\.gguf: No such file"):
        GgufFile(tmp_path / "absent.gguf")
