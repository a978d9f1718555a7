"""Model directories: what is read is what was written, and a broken or hostile one is one clear line."""

from __future__ import annotations

import contextlib
import json
import pickle
import random
import struct
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from safetensors.torch import load_file, save_file
from tokenizers import decoders, models
from toy import TOYS, hf_config, hf_weights, toy_config, toy_tokens, toy_weights, write_directory, write_gguf

from servegate_engine.config import EngineConfig
from servegate_engine.errors import ModelFileError
from servegate_engine.loading import load_model, load_weights

CONFIG = toy_config(num_layers=1)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_directory(tmp_path / "model", CONFIG, toy_weights(CONFIG))


def refuse(directory: Path, reason: str) -> None:
    with pytest.raises(ModelFileError, match=reason) as caught:
        load_weights(directory, torch.float32)
    assert str(caught.value).startswith(str(directory))
    assert "\n" not in str(caught.value)


def change_config(directory: Path, **changes: Any) -> None:
    config = json.loads((directory / "config.json").read_text()) | changes
    (directory / "config.json").write_text(json.dumps(config))


def shard(directory: Path, names: tuple[str, str] = ("a.safetensors", "b.safetensors")) -> None:
    """Split the weights over two files with an index."""
    tensors = load_file(directory / "model.safetensors")
    (directory / "model.safetensors").unlink()
    halves: tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]] = ({}, {})
    for i, (name, tensor) in enumerate(tensors.items()):
        halves[i % 2][name] = tensor
    weight_map = {}
    for file, half in zip(("a.safetensors", "b.safetensors"), halves, strict=True):
        save_file(half, directory / file)
    for file, half in zip(names, halves, strict=True):
        weight_map |= dict.fromkeys(half, file)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


@pytest.mark.parametrize("name", TOYS)
@pytest.mark.parametrize("sharded", [False, True])
def test_round_trip(name: str, sharded: bool, tmp_path: Path) -> None:
    expected = toy_weights(TOYS[name])
    directory = write_directory(tmp_path / "model", TOYS[name], expected)
    if sharded:
        shard(directory)
    config, weights = load_weights(directory, torch.float32)
    assert config == TOYS[name]
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[key], weight) for key, weight in expected.items())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_stored_types(dtype: torch.dtype, tmp_path: Path) -> None:
    stored = toy_weights(CONFIG, dtype)
    _, weights = load_weights(write_directory(tmp_path / "model", CONFIG, stored), torch.float64)
    assert all(torch.equal(weights[key], stored[key].double()) for key in stored)


def test_older_config_files(model: Path) -> None:
    """``rope_theta`` and ``rope_scaling`` as transformers 4 wrote them, and more end-of-text ids."""
    scaling = {
        "type": "llama3",
        "factor": 8,
        "low_freq_factor": 1,
        "high_freq_factor": 4,
        "original_max_position_embeddings": 8192,
    }
    change_config(model, rope_parameters=None, rope_theta=500000.0, rope_scaling=scaling, eos_token_id=7)
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": [3, 7]}))
    config, _ = load_weights(model, torch.float32)
    assert config.rope_theta == 500000.0
    assert config.rope_scaling == TOYS["llama3-rope"].rope_scaling
    assert config.eos_token_ids == (3, 7)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"architectures": ["GPTNeoXForCausalLM"]}, "'GPTNeoXForCausalLM' is not supported"),
        ({"architectures": []}, "not supported"),
        ({"architectures": 3}, "not supported"),
        ({"architectures": [["x"]]}, "not supported"),
        ({"quantization_config": {"bits": 4}}, "quantised safetensors"),
        ({"hidden_act": "gelu"}, "'hidden_act' is 'gelu'"),
        ({"attention_bias": True}, "'attention_bias' is true"),
        ({"mlp_bias": True}, "'mlp_bias'"),
        ({"use_sliding_window": True}, "'use_sliding_window'"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope scaling 'yarn'"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}}, "'factor' is None"),
        ({"rope_parameters": [1]}, "expected an object"),
        ({"hidden_size": None}, "'hidden_size' is None"),
        ({"hidden_size": "64"}, "'hidden_size' is '64'"),
        ({"hidden_size": True}, "'hidden_size' is True"),
        ({"hidden_size": 32}, "has shape"),
        ({"vocab_size": 10**12}, "has shape"),
        ({"num_hidden_layers": 10**9}, r"'model\.layers\.1\.input_layernorm\.weight' is missing"),
        ({"num_hidden_layers": 0}, "num_layers is 0"),
        ({"num_attention_heads": 0}, "'num_attention_heads' is 0"),
        ({"num_attention_heads": -4}, "'num_attention_heads' is -4"),
        ({"num_key_value_heads": 3}, "not a multiple"),
        ({"head_dim": 15}, "even number"),
        ({"head_dim": -2}, "head_dim is -2"),
        ({"rms_norm_eps": -1}, "'rms_norm_eps' is -1"),
        ({"rms_norm_eps": float("nan")}, "'rms_norm_eps' is nan"),
        ({"eos_token_id": ["x"]}, "'eos_token_id'"),
        ({"eos_token_id": True}, "'eos_token_id'"),
    ],
)
def test_unsupported_configurations(model: Path, changes: dict[str, Any], reason: str) -> None:
    change_config(model, **changes)
    refuse(model, reason)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"\xff\xfe", b"[" * 200_000, b'{"a": 1'])
def test_broken_json(model: Path, content: bytes) -> None:
    (model / "config.json").write_bytes(content)
    refuse(model, r"config\.json: ")


def test_truncation_anywhere(model: Path) -> None:
    path = model / "model.safetensors"
    good = path.read_bytes()
    chance = random.Random(1)
    for size in [*range(0, 32), *(chance.randrange(len(good)) for _ in range(100)), len(good) - 1]:
        path.write_bytes(good[:size])
        refuse(model, r"model\.safetensors: not a readable safetensors file")


def test_flipped_header_bytes(model: Path) -> None:
    path = model / "model.safetensors"
    good = path.read_bytes()
    header = 8 + struct.unpack("<Q", good[:8])[0]
    chance = random.Random(2)
    for _ in range(300):
        broken = bytearray(good)
        for _ in range(chance.randrange(1, 4)):
            broken[chance.randrange(header)] = chance.randrange(256)
        path.write_bytes(bytes(broken))
        with contextlib.suppress(ModelFileError):  # any other exception fails the test
            load_weights(model, torch.float32)


def header_of(good: bytes) -> dict[str, Any]:
    size = struct.unpack("<Q", good[:8])[0]
    header: dict[str, Any] = json.loads(good[8 : 8 + size])
    return header


@pytest.mark.parametrize("size", [2**63, 2**64 - 1, 2**40])
def test_header_length_beyond_the_file(model: Path, size: int) -> None:
    path = model / "model.safetensors"
    path.write_bytes(struct.pack("<Q", size) + path.read_bytes()[8:])
    refuse(model, "not a readable safetensors file")


@pytest.mark.parametrize(
    ("offsets", "dtype"),
    [([0, 256], "F32"), ([2**40, 2**40 + 256], "F32"), ([256, 0], "F32"), ([-1, 255], "F32"), (None, "F99")],
)
def test_offsets_and_types_that_lie(model: Path, offsets: list[int] | None, dtype: str) -> None:
    path = model / "model.safetensors"
    good = path.read_bytes()
    header = header_of(good)
    body = good[8 + struct.unpack("<Q", good[:8])[0] :]
    entry = header["model.norm.weight"]
    entry["data_offsets"] = offsets or entry["data_offsets"]
    entry["dtype"] = dtype
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    refuse(model, "not a readable safetensors file")


def test_unsupported_tensor_type(model: Path) -> None:
    tensors = load_file(model / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"].to(torch.float8_e4m3fn)
    save_file(tensors, model / "model.safetensors")
    refuse(model, "'model.norm.weight' has type F8_E4M3")


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_must_be_finite(bad: float, model: Path) -> None:
    weights = toy_weights(CONFIG)
    weights["layers.0.gate_up"][3, 3] = bad
    write_directory(model, CONFIG, weights)
    refuse(model, r"mlp\.gate_proj\.weight.*NaN or infinite")


def test_rows_in_the_wrong_part_are_seen(model: Path) -> None:
    """q with too few rows and k with as many too many: the sum would fit."""
    tensors = load_file(model / "model.safetensors")
    prefix = "model.layers.0.self_attn."
    rows = torch.cat([tensors[f"{prefix}{x}_proj.weight"] for x in "qk"])
    tensors[f"{prefix}q_proj.weight"], tensors[f"{prefix}k_proj.weight"] = (
        rows[:32].clone(),
        rows[32:].clone(),
    )
    save_file(tensors, model / "model.safetensors")
    refuse(model, r"q_proj\.weight' has shape \[32, 64\], the configuration asks for \[64, 64\]")


@pytest.mark.parametrize("file", ["../b.safetensors", "/etc/passwd", "..", "", "sub/b.safetensors", "b\0"])
def test_an_index_cannot_leave_its_directory(model: Path, file: str) -> None:
    shard(model, ("a.safetensors", file))
    refuse(model, "not a plain file name")


def test_an_index_that_names_a_missing_shard(model: Path) -> None:
    shard(model)
    (model / "b.safetensors").unlink()
    refuse(model, r"b\.safetensors: not a readable")


@pytest.mark.parametrize("index", [{}, {"weight_map": 3}, {"weight_map": {"a": 3}}])
def test_a_broken_index(model: Path, index: dict[str, Any]) -> None:
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    refuse(model, r"index\.json: ")


def test_shards_may_be_symlinks(model: Path, tmp_path: Path) -> None:
    """A Hugging Face cache keeps its files so."""
    (model / "model.safetensors").rename(tmp_path / "blob")
    (model / "model.safetensors").symlink_to(tmp_path / "blob")
    assert load_weights(model, torch.float32)[0] == CONFIG


def test_pickles_are_never_read(model: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (exec, ("raise SystemExit('unpickled')",))

    (model / "model.safetensors").unlink()
    (model / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))
    refuse(model, "no .*safetensors file; pickled weights are never read")
    (model / "model.safetensors").write_bytes(pickle.dumps(Bomb()))
    refuse(model, "not a readable safetensors file")


def write_tokenizer(directory: Path) -> None:
    tokens = {token: i for i, token in enumerate(toy_tokens(CONFIG.vocab_size))}
    inner = tokenizers.Tokenizer(models.BPE(vocab=tokens, merges=[("h", "e"), ("l", "l")]))
    inner.decoder = decoders.ByteLevel()  # type: ignore[no-untyped-call]
    inner.save(str(directory / "tokenizer.json"))


def test_load_model_from_a_directory_and_from_gguf(model: Path, tmp_path: Path) -> None:
    write_tokenizer(model)
    (model / "chat_template.jinja").write_text("{{ messages[0].content }}")
    path = write_gguf(tmp_path / "toy.gguf", CONFIG, toy_weights(CONFIG))
    engine = EngineConfig(numerics="reference", num_blocks=8)
    directory, file = load_model(str(model), engine), load_model(path, engine)
    assert directory.chat_template is not None
    assert directory.chat_template.render([{"content": "hi"}]) == "hi"
    assert file.chat_template is None
    assert directory.tokenizer.encode("hell") == file.tokenizer.encode("hell")
    assert directory.model_digest != file.model_digest
    assert directory.config.eos_token_ids == file.config.eos_token_ids == (0,)
    assert directory.backend.describe() == file.backend.describe()


def test_a_directory_without_a_tokenizer(model: Path) -> None:
    with pytest.raises(ModelFileError, match=r"no tokenizer\.json"):
        load_model(model, EngineConfig(num_blocks=8))


def test_hf_names_are_complete() -> None:
    """The writer of these tests and the reader under test agree on transformers' own names."""
    from transformers import AutoConfig, AutoModelForCausalLM

    for config in TOYS.values():
        theirs = AutoModelForCausalLM.from_config(AutoConfig.for_model(**hf_config(config)))
        names = {name for name, _ in theirs.named_parameters()}
        assert names == hf_weights(config, toy_weights(config)).keys()
