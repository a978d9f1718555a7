"""A local directory as Hugging Face lays it out: ``config.json`` and ``*.safetensors``, one file or sharded.

The safetensors library checks each header (lengths, overlaps, offsets) before it maps a tensor. Nothing here
ever unpickles: a directory that holds only ``pytorch_model.bin`` is refused by name.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, NoReturn

import torch
from safetensors import SafetensorError, safe_open

from servegate_engine.config import ModelConfig, RopeScaling
from servegate_engine.errors import ConfigError, ModelFileError

_ARCHITECTURES: dict[str, Literal["llama", "qwen2", "qwen3"]] = {
    "LlamaForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
_DTYPES = ("F64", "F32", "F16", "BF16")


class SafetensorsModel:
    """A model directory as a source of a decoder's configuration and weights."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.config = read_config(directory)
        self._files: dict[Path, Any] = {}
        self._where = self._index()

    def _index(self) -> dict[str, Path]:
        """Which file holds which tensor."""
        index = self.directory / "model.safetensors.index.json"
        if not index.is_file():
            files = sorted(self.directory.glob("*.safetensors"))
            if not files:
                hint = "; pickled weights are never read" if any(self.directory.glob("*.bin")) else ""
                raise ModelFileError(f"{self.directory}: no *.safetensors file{hint}")
            return {name: path for path in files for name in self._open(path).keys()}  # noqa: SIM118
        weight_map = read_json(index).get("weight_map")
        if not isinstance(weight_map, dict):
            raise ModelFileError(f"{index}: no 'weight_map'")
        for name, file in weight_map.items():
            # A shard is a plain file name beside the index: anything else could point out of the directory.
            if not isinstance(file, str) or "\0" in file or Path(file).name != file or file in ("", ".."):
                raise ModelFileError(
                    f"{index}: tensor {name!r} is in {file!r}, which is not a plain file name"
                )
        return {name: self.directory / file for name, file in weight_map.items()}

    def _open(self, path: Path) -> Any:
        if path not in self._files:
            try:
                self._files[path] = safe_open(path, framework="pt")
            except (SafetensorError, OSError) as error:
                raise ModelFileError(f"{path}: not a readable safetensors file: {_line(error)}") from error
        return self._files[path]

    def _slice(self, name: str) -> tuple[Path, Any]:
        if name not in self._where:
            raise ModelFileError(f"{self.directory}: tensor {name!r} is missing")
        path = self._where[name]
        try:
            return path, self._open(path).get_slice(name)
        except SafetensorError as error:
            raise ModelFileError(f"{path}: tensor {name!r}: {_line(error)}") from error

    def shape(self, name: str) -> tuple[int, ...]:
        path, view = self._slice(name)
        if view.get_dtype() not in _DTYPES:
            raise ModelFileError(
                f"{path}: tensor {name!r} has type {view.get_dtype()}, which is not supported"
            )
        return tuple(view.get_shape())

    def tensor(self, name: str) -> torch.Tensor:
        path, _ = self._slice(name)
        try:
            tensor: torch.Tensor = self._open(path).get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise ModelFileError(f"{path}: tensor {name!r}: {_line(error)}") from error
        return tensor


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object, or one clear line."""
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelFileError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path}: not valid JSON: {_line(error)}") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def _line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]


class _Fields:
    """Typed access to ``config.json``."""

    def __init__(self, path: Path, values: dict[str, Any]) -> None:
        self.path, self.values = path, values

    def fail(self, what: str) -> NoReturn:
        raise ModelFileError(f"{self.path}: {what}")

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.values.get(key)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool):
            self.fail(f"{key!r} is {value!r}, expected a whole number")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self.values.get(key)
        value = default if value is None else value
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
            self.fail(f"{key!r} is {value!r}, expected a number above 0")
        return float(value)

    def section(self, key: str) -> _Fields:
        value = self.values.get(key) or {}
        if not isinstance(value, dict):
            self.fail(f"{key!r} is {value!r}, expected an object")
        return _Fields(self.path, value)


def read_config(directory: Path) -> ModelConfig:
    """``config.json`` (and the end-of-text ids of ``generation_config.json``) as a :class:`ModelConfig`."""
    path = directory / "config.json"
    fields = _Fields(path, read_json(path))
    names = fields.values.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    arch = _ARCHITECTURES.get(name) if isinstance(name, str) else None
    if arch is None:
        fields.fail(f"architecture {name!r} is not supported ({', '.join(_ARCHITECTURES)} are)")
    if fields.values.get("quantization_config"):
        fields.fail("quantised safetensors are not supported (use the unquantised model or a GGUF file)")
    for key, wanted in (("hidden_act", "silu"), ("mlp_bias", False), ("use_sliding_window", False)):
        if fields.values.get(key, wanted) not in (wanted, None):
            fields.fail(f"{key!r} is {fields.values[key]!r}, which is not supported")
    if arch != "qwen2" and fields.values.get("attention_bias"):
        fields.fail("'attention_bias' is true, which is not supported")
    heads = fields.integer("num_attention_heads")
    hidden = fields.integer("hidden_size")
    if heads < 1:
        fields.fail(f"'num_attention_heads' is {heads}")
    head_dim = fields.integer("head_dim", 128 if arch == "qwen3" else hidden // heads)
    if head_dim % 2:
        fields.fail(f"head_dim is {head_dim}, rotary embedding needs an even number")
    theta, scaling = _rope(fields)
    try:
        return ModelConfig(
            architecture=arch,
            vocab_size=fields.integer("vocab_size"),
            hidden_size=hidden,
            intermediate_size=fields.integer("intermediate_size"),
            num_layers=fields.integer("num_hidden_layers"),
            num_heads=heads,
            num_kv_heads=fields.integer("num_key_value_heads", heads),
            head_dim=head_dim,
            max_position=fields.integer("max_position_embeddings"),
            rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
            rope_theta=theta,
            tie_word_embeddings=fields.values.get("tie_word_embeddings") is True,
            eos_token_ids=_eos_ids(directory, fields),
            bos_token_id=None
            if fields.values.get("bos_token_id") is None
            else fields.integer("bos_token_id"),
            qkv_bias=arch == "qwen2",
            qk_norm=arch == "qwen3",
            rope_scaling=scaling,
        )
    except ConfigError as error:
        fields.fail(str(error))


def _rope(fields: _Fields) -> tuple[float, RopeScaling | None]:
    """Base and scaling, from ``rope_parameters`` (transformers 5) or ``rope_theta`` and ``rope_scaling``."""
    rope = fields.section("rope_parameters" if fields.values.get("rope_parameters") else "rope_scaling")
    theta = rope.number("rope_theta", fields.number("rope_theta", 10000.0))
    kind = rope.values.get("rope_type", rope.values.get("type", "default"))
    if kind == "default":
        return theta, None
    if kind != "llama3":
        fields.fail(f"rope scaling {kind!r} is not supported (llama3 is)")
    return theta, RopeScaling(
        factor=rope.number("factor"),
        low_freq_factor=rope.number("low_freq_factor"),
        high_freq_factor=rope.number("high_freq_factor"),
        original_max_position=rope.integer("original_max_position_embeddings"),
    )


def _eos_ids(directory: Path, fields: _Fields) -> tuple[int, ...]:
    """All end-of-text ids: those that generation uses first, then the model's own."""
    generation = directory / "generation_config.json"
    sources = [read_json(generation)] if generation.is_file() else []
    ids: list[int] = []
    for values in (*sources, fields.values):
        value = values.get("eos_token_id")
        items = [] if value is None else value if isinstance(value, list) else [value]
        if not all(isinstance(item, int) and not isinstance(item, bool) for item in items):
            fields.fail(f"'eos_token_id' is {value!r}, expected token ids")
        ids += items
    return tuple(dict.fromkeys(ids))
