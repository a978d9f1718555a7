"""GGUF files: a bounded reader of the container, and what Llama, Qwen2 and Qwen3 files mean.

The header is parsed here and not by the ``gguf`` library's reader, which trusts the lengths in the file: an
array that claims 2**60 numbers makes it loop and allocate. The library dequantises the tensors.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from servegate_engine.config import ModelConfig, RopeScaling
from servegate_engine.errors import ConfigError, ModelFileError
from servegate_engine.models.rope import inverse_frequencies

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_DIMS = 4
_QUANTISATIONS = {
    GGMLQuantizationType[name] for name in ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1")
}
_QUANTISATIONS |= {GGMLQuantizationType[name] for name in ("Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")}


@dataclass(frozen=True, slots=True)
class _TensorInfo:
    shape: tuple[int, ...]
    """Row-major, the file's own order reversed."""
    kind: GGMLQuantizationType
    offset: int
    num_bytes: int


class GgufFile:
    """One GGUF file, its header checked against the file's size before anything is allocated.

    ``metadata``: key to number, string, bool, list of strings, or NumPy array.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            reason = "the file is empty" if isinstance(error, ValueError) else error.strerror
            raise ModelFileError(f"{path}: {reason}") from error
        self._at = 0
        self.metadata: dict[str, Any] = {}
        self._tensors: dict[str, _TensorInfo] = {}
        self._read_header()

    def fail(self, what: str) -> NoReturn:
        raise ModelFileError(f"{self.path}: {what}")

    # The container.

    def _read_header(self) -> None:
        if self._data[:4] != b"GGUF":
            self.fail("not a GGUF file (wrong magic bytes)")
        self._at = 4
        version = self._number("I")
        if version not in (2, 3):
            self.fail(f"GGUF version {version} is not supported (2 and 3 are)")
        num_tensors, num_keys = self._number("Q"), self._number("Q")
        self._reserve(num_keys, 13, "metadata keys")
        for _ in range(num_keys):
            key = self._string()
            if key in self.metadata:
                self.fail(f"metadata key {key!r} appears twice")
            self.metadata[key] = self._value(self._number("I"))
        self._reserve(num_tensors, 24, "tensors")
        for _ in range(num_tensors):
            self._tensor_info()
        self._place_tensors()

    def _take(self, size: int) -> int:
        """Step over ``size`` bytes; returns where they start."""
        start = self._at
        if size > len(self._data) - start:
            self.fail(f"truncated: {size} bytes wanted at offset {start}, the file has {len(self._data)}")
        self._at = start + size
        return start

    def _reserve(self, count: int, size: int, what: str) -> None:
        if count * size > len(self._data) - self._at:
            self.fail(f"broken header: {count} {what} cannot fit in the file")

    def _number(self, code: str) -> Any:
        return struct.unpack_from("<" + code, self._data, self._take(struct.calcsize("<" + code)))[0]

    def _string(self) -> str:
        size = self._number("Q")
        start = self._take(size)
        try:
            return self._data[start : start + size].decode()
        except UnicodeDecodeError:
            return self.fail(f"broken header: the string at offset {start} is not UTF-8")

    def _value(self, kind: int) -> Any:
        if kind in _SCALARS:
            return self._number(_SCALARS[kind])
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            self.fail(f"broken header: unknown metadata type {kind}")
        item, count = self._number("I"), self._number("Q")
        if item == _STRING:
            self._reserve(count, 8, "strings")
            return [self._string() for _ in range(count)]
        if item not in _SCALARS:
            self.fail(f"broken header: unsupported array of type {item}")
        dtype = np.dtype("<" + _SCALARS[item]) if item != 7 else np.dtype(np.bool_)
        self._reserve(count, dtype.itemsize, "array items")
        start = self._take(count * dtype.itemsize)
        return np.frombuffer(self._data, dtype, count, start)

    def _tensor_info(self) -> None:
        name = self._string()
        if name in self._tensors:
            self.fail(f"tensor {name!r} appears twice")
        num_dims = self._number("I")
        if not 1 <= num_dims <= _MAX_DIMS:
            self.fail(f"tensor {name!r} has {num_dims} dimensions")
        shape = tuple(reversed([self._number("Q") for _ in range(num_dims)]))
        raw_kind, offset = self._number("I"), self._number("Q")
        try:
            kind = GGMLQuantizationType(raw_kind)
        except ValueError:
            self.fail(f"tensor {name!r} has an unknown type ({raw_kind})")
        block, block_bytes = GGML_QUANT_SIZES[kind]
        if 0 in shape or shape[-1] % block:
            self.fail(f"tensor {name!r} of type {kind.name} cannot have shape {list(shape)}")
        self._tensors[name] = _TensorInfo(shape, kind, offset, math.prod(shape) // block * block_bytes)

    def _place_tensors(self) -> None:
        """Turn relative offsets into absolute ones; refuse what overlaps or leaves the file."""
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            self.fail(f"general.alignment is {alignment!r}, it must be a power of two")
        base = -(-self._at // alignment) * alignment
        end, before = base, ""
        for name, info in sorted(self._tensors.items(), key=lambda item: item[1].offset):
            start = base + info.offset
            if start < end:
                self.fail(f"tensors {before!r} and {name!r} overlap")
            end, before = start + info.num_bytes, name
            if end > len(self._data):
                self.fail(f"truncated: tensor {name!r} ends at byte {end}, the file has {len(self._data)}")
            self._tensors[name] = _TensorInfo(info.shape, info.kind, start, info.num_bytes)

    def has(self, name: str) -> bool:
        return name in self._tensors

    def shape(self, name: str) -> tuple[int, ...]:
        if name not in self._tensors:
            self.fail(f"tensor {name!r} is missing")
        return self._tensors[name].shape

    def tensor(self, name: str) -> torch.Tensor:
        """The tensor dequantised to float32."""
        shape, info = self.shape(name), self._tensors[name]
        if info.kind not in _QUANTISATIONS:
            self.fail(f"tensor {name!r} has type {info.kind.name}, which is not supported")
        raw = np.frombuffer(self._data, np.uint8, info.num_bytes, info.offset)
        values = dequantize(raw.reshape(*shape[:-1], -1), info.kind)
        return torch.from_numpy(np.array(values, dtype=np.float32).reshape(shape))

    # Typed access to the metadata.

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        """A metadata value of the given type; a missing key without a default is an error."""
        value = self.metadata.get(key, default)
        if value is None:
            self.fail(f"metadata key {key!r} is missing")
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            self.fail(f"metadata key {key!r} is {str(value)[:40]!r}, expected {kind.__name__}")
        return value


_LAYER_NAMES = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.q_proj.bias": "attn_q.bias",
    "self_attn.k_proj.bias": "attn_k.bias",
    "self_attn.v_proj.bias": "attn_v.bias",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}
_OTHER_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


class GgufModel:
    """A GGUF file as a source of a decoder's configuration and weights, under Hugging Face's tensor names."""

    def __init__(self, file: GgufFile) -> None:
        self.file = file
        self.config = _model_config(file)

    def _stored_name(self, name: str) -> str:
        if name in _OTHER_NAMES:
            return _OTHER_NAMES[name]
        _, _, layer, rest = name.split(".", 3)
        return f"blk.{layer}.{_LAYER_NAMES[rest]}"

    def shape(self, name: str) -> tuple[int, ...]:
        return self.file.shape(self._stored_name(name))

    def tensor(self, name: str) -> torch.Tensor:
        weight = self.file.tensor(self._stored_name(name))
        if self.config.architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            # Llama files hold q and k rows interleaved (i, i + D/2, i + 1, ...) for ggml's rotary layout.
            heads = self.config.num_heads if "q_proj" in name else self.config.num_kv_heads
            pairs = weight.view(heads, self.config.head_dim // 2, 2, -1)
            weight = pairs.transpose(1, 2).reshape(weight.shape)
        return weight


def _model_config(file: GgufFile) -> ModelConfig:
    arch = file.get("general.architecture", str)
    if arch not in ("llama", "qwen2", "qwen3"):
        file.fail(f"architecture {arch!r} is not supported (llama, qwen2 and qwen3 are)")
    if file.get(f"{arch}.expert_count", int, 0):
        file.fail("mixture-of-experts models are not supported")
    heads = file.get(f"{arch}.attention.head_count", int)
    hidden = file.get(f"{arch}.embedding_length", int)
    if heads < 1:
        file.fail(f"metadata key '{arch}.attention.head_count' is {heads}")
    head_dim = file.get(f"{arch}.attention.key_length", int, hidden // heads)
    rotary_dim = file.get(f"{arch}.rope.dimension_count", int, head_dim)
    if rotary_dim != head_dim or head_dim % 2:
        file.fail(f"rotary embedding over {rotary_dim} of {head_dim} head dimensions is not supported")
    scaling = file.get(f"{arch}.rope.scaling.type", str, "none")
    if scaling != "none":
        file.fail(f"rope scaling {scaling!r} is not supported")
    theta = file.get(f"{arch}.rope.freq_base", float, 10000.0)
    eos = [
        file.get(f"tokenizer.ggml.{key}_token_id", int)
        for key in ("eos", "eot", "eom")
        if f"tokenizer.ggml.{key}_token_id" in file.metadata
    ]
    has_bos = "tokenizer.ggml.bos_token_id" in file.metadata
    try:
        return ModelConfig(
            architecture=arch,
            vocab_size=file.shape("token_embd.weight")[0],
            hidden_size=hidden,
            intermediate_size=file.get(f"{arch}.feed_forward_length", int),
            num_layers=file.get(f"{arch}.block_count", int),
            num_heads=heads,
            num_kv_heads=file.get(f"{arch}.attention.head_count_kv", int, heads),
            head_dim=head_dim,
            max_position=file.get(f"{arch}.context_length", int),
            rms_norm_eps=file.get(f"{arch}.attention.layer_norm_rms_epsilon", float),
            rope_theta=theta,
            tie_word_embeddings=not file.has("output.weight"),
            eos_token_ids=tuple(dict.fromkeys(eos)),
            bos_token_id=file.get("tokenizer.ggml.bos_token_id", int) if has_bos else None,
            qkv_bias=file.has("blk.0.attn_q.bias"),
            qk_norm=arch == "qwen3",
            rope_scaling=_llama3_scaling(file, head_dim, theta),
        )
    except ConfigError as error:
        return file.fail(str(error))


def _llama3_scaling(file: GgufFile, head_dim: int, theta: float) -> RopeScaling | None:
    """Llama 3's rescaling, which GGUF stores as one divisor per frequency instead of its four parameters.

    Only the parameters that Meta released exist in practice: those are tried, anything else is refused.
    """
    if not file.has("rope_freqs.weight"):
        return None
    factors = file.tensor("rope_freqs.weight").double()
    scaling = RopeScaling(float(factors.max()), 1.0, 4.0, 8192)
    plain = inverse_frequencies(head_dim, theta, None)
    if factors.shape == plain.shape:
        expected = plain / inverse_frequencies(head_dim, theta, scaling)
        if torch.allclose(factors, expected, rtol=1e-5, atol=0):
            return scaling
    return file.fail("rope_freqs.weight holds a rope scaling that is not Llama 3's")
