"""From a model on disk to something that runs: configuration, weights, backend, tokenizer, digests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from servegate_engine import model_store
from servegate_engine.backends import cuda_backend, torch_backend
from servegate_engine.backends.base import Backend
from servegate_engine.chat_template import ChatTemplate
from servegate_engine.config import EngineConfig, ModelConfig
from servegate_engine.errors import ModelFileError
from servegate_engine.gguf_file import GgufFile, GgufModel
from servegate_engine.models.decoder import weight_shapes
from servegate_engine.safetensors_file import SafetensorsModel
from servegate_engine.tokenizer import Tokenizer
from servegate_kernels.launcher import Launcher


class WeightSource(Protocol):
    """A model file of some format, its tensors under the names that Hugging Face gives them."""

    config: ModelConfig

    def shape(self, name: str) -> tuple[int, ...]: ...

    def tensor(self, name: str) -> torch.Tensor: ...


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to serve."""

    path: Path
    config: ModelConfig
    backend: Backend
    tokenizer: Tokenizer
    chat_template: ChatTemplate | None
    """``None`` where the model has none."""
    model_digest: str
    tokenizer_digest: str


def load_model(name_or_path: str | Path, engine: EngineConfig) -> LoadedModel:
    """Load a model by known name, path or Hugging Face id onto the engine's device.

    Raises, in one line:
        ModelFileError: the model is missing, broken or of an unsupported kind.
        ConfigError: there is no usable GPU, its kernels do not take the model, or memory does not suffice.
    """
    launcher = cuda_backend.open_device() if engine.device == "cuda" else None  # before anything is fetched
    path = model_store.resolve(name_or_path)
    if engine.threads is not None:
        torch.set_num_threads(engine.threads)
    file = None if path.is_dir() else GgufFile(path)
    if file is None:
        tokenizer, template = Tokenizer.from_directory(path), ChatTemplate.from_directory(path)
    else:
        tokenizer, template = Tokenizer.from_gguf(file), ChatTemplate.from_gguf(file)
    source = SafetensorsModel(path) if file is None else GgufModel(file)
    return LoadedModel(
        path=path,
        config=source.config,
        backend=_backend(source, path, engine, launcher),
        tokenizer=tokenizer,
        chat_template=template,
        model_digest=model_store.model_digest(path),
        tokenizer_digest=tokenizer.digest,
    )


def _backend(source: WeightSource, path: Path, engine: EngineConfig, launcher: Launcher | None) -> Backend:
    if launcher is None:
        weights = read_weights(source, path, torch_backend.compute_dtype(engine.numerics))
        return torch_backend.TorchBackend(source.config, weights, engine)
    dtype = cuda_backend.compute_dtype(engine.numerics)
    cuda_backend.require_kernels(source.config, dtype)  # before the weights are read
    return cuda_backend.CudaBackend(source.config, read_weights(source, path, dtype), engine, launcher)


def load_weights(path: Path, dtype: torch.dtype) -> tuple[ModelConfig, dict[str, torch.Tensor]]:
    """A model's configuration and its weights in ``dtype``, named as ``models.decoder.weight_shapes``."""
    source = SafetensorsModel(path) if path.is_dir() else GgufModel(GgufFile(path))
    return source.config, read_weights(source, path, dtype)


def read_weights(source: WeightSource, path: Path, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """All weights, fused, each checked for its shape before it is read and for finite values after."""
    weights = {}
    for name, shape in weight_shapes(source.config):
        parts = _parts(source.config, name, shape[0])
        for part, rows in parts.items():
            found, expected = source.shape(part), (rows, *shape[1:])
            if found != expected:
                raise ModelFileError(
                    f"{path}: tensor {part!r} has shape {list(found)}, "
                    f"the configuration asks for {list(expected)}"
                )
        weights[name] = _concatenate([source.tensor(part) for part in parts], dtype)
        if not all(math.isfinite(extreme) for extreme in torch.aminmax(weights[name])):
            raise ModelFileError(f"{path}: {', '.join(parts)}: holds NaN or infinite values")
    return weights


def _concatenate(parts: Sequence[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """Rows of all parts in ``dtype``, in memory of their own (a mapped file may be closed or change)."""
    fused = torch.empty(sum(part.shape[0] for part in parts), *parts[0].shape[1:], dtype=dtype)
    start = 0
    for part in parts:
        fused[start : start + part.shape[0]] = part
        start += part.shape[0]
    return fused


_LAYER_PARTS = {
    "attn_norm": "input_layernorm.weight",
    "q_norm": "self_attn.q_norm.weight",
    "k_norm": "self_attn.k_norm.weight",
    "o": "self_attn.o_proj.weight",
    "mlp_norm": "post_attention_layernorm.weight",
    "down": "mlp.down_proj.weight",
}
_WHOLE = {"embed": "model.embed_tokens.weight", "norm": "model.norm.weight", "lm_head": "lm_head.weight"}


def _parts(config: ModelConfig, name: str, rows: int) -> dict[str, int]:
    """The file's tensors that make up one canonical weight, in order, and the rows of each."""
    if name in _WHOLE:
        return {_WHOLE[name]: rows}
    _, layer, part = name.split(".")
    prefix = f"model.layers.{layer}."
    if part in ("qkv", "qkv_bias"):
        kind = "weight" if part == "qkv" else "bias"
        heads = {"q": config.num_heads, "k": config.num_kv_heads, "v": config.num_kv_heads}
        return {f"{prefix}self_attn.{x}_proj.{kind}": n * config.head_dim for x, n in heads.items()}
    if part == "gate_up":
        return {f"{prefix}mlp.{x}_proj.weight": rows // 2 for x in ("gate", "up")}
    return {prefix + _LAYER_PARTS[part]: rows}
