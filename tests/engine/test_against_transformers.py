"""SmolLM2 here and in transformers, the same weights: equal greedy tokens, logprobs within 1e-4 nat."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from paged import Driver, Paged
from toy import gguf_name, hf_config, hf_weights, interleave

from servegate_engine.backends.torch_backend import TorchBackend
from servegate_engine.chat_template import ChatTemplate
from servegate_engine.config import EngineConfig, ModelConfig
from servegate_engine.gguf_file import GgufFile
from servegate_engine.loading import load_weights
from servegate_engine.tokenizer import Tokenizer

QUESTIONS = [
    "What is the capital of France?",
    "Write one sentence about the sea.",
    "Explain what a hash table is.",
]
NEW_TOKENS = 8
BLOCK_SIZE = 16


@pytest.fixture(scope="module")
def model(smollm2: Path) -> tuple[ModelConfig, dict[str, torch.Tensor]]:
    return load_weights(smollm2, torch.float32)


@pytest.fixture(scope="module")
def theirs(model: tuple[ModelConfig, dict[str, torch.Tensor]]) -> Iterator[Any]:
    """Transformers' Llama with our weights (reading this GGUF itself would take it one more package)."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config, weights = model
    llama: Any = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(**hf_config(config)), attn_implementation="eager", dtype=torch.float32
    ).eval()
    missing, unexpected = llama.load_state_dict(hf_weights(config, weights), strict=False)
    assert (missing, unexpected) == (["lm_head.weight"], [])
    with torch.inference_mode():
        yield llama


@pytest.fixture(scope="module")
def prompts(smollm2: Path) -> list[list[int]]:
    file = GgufFile(smollm2)
    tokenizer, template = Tokenizer.from_gguf(file), ChatTemplate.from_gguf(file)
    assert template is not None
    return [tokenizer.encode(template.render([{"role": "user", "content": q}])) for q in QUESTIONS]


@pytest.mark.slow
def test_weights_equal_the_librarys_reading(
    smollm2: Path, model: tuple[ModelConfig, dict[str, torch.Tensor]]
) -> None:
    """The gguf library's own reader, and ours permuted back into the file's row order: bit for bit equal."""
    config, weights = model
    theirs = {tensor.name: tensor for tensor in gguf.GGUFReader(smollm2).tensors}
    ours = hf_weights(config, weights)
    assert {gguf_name(name) for name in ours} == theirs.keys()
    for name, weight in ours.items():
        rows = weight.numpy()
        if "q_proj" in name or "k_proj" in name:
            rows = interleave(rows, config.num_heads if "q_proj" in name else config.num_kv_heads)
        tensor = theirs[gguf_name(name)]
        assert np.array_equal(gguf.quants.dequantize(tensor.data, tensor.tensor_type), rows), name


def greedy(model: Any, ids: list[int]) -> tuple[list[int], torch.Tensor]:
    """Their tokens and the logprobs that each was chosen from."""
    model.generation_config.eos_token_id = None  # go on after the end of text, as the loop below does
    batch = torch.tensor([ids])
    out = model.generate(
        batch,
        attention_mask=torch.ones_like(batch),
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return out.sequences[0, len(ids) :].tolist(), torch.log_softmax(torch.cat(out.logits).double(), -1)


def test_greedy_tokens_and_logprobs(
    model: tuple[ModelConfig, dict[str, torch.Tensor]], theirs: Any, prompts: list[list[int]]
) -> None:
    """Ours run together, batched and paged; theirs one by one.

    The twenty most likely tokens are compared: float32 resolves a logit of 20 to 2e-6, thirty layers amplify
    that, and at the far end of the vocabulary (logprobs below -20) the two float32 runs differ by 1.2e-4.
    """
    engine = EngineConfig(block_size=BLOCK_SIZE, num_blocks=64, numerics="native")
    driver = Driver(TorchBackend(*model, engine), BLOCK_SIZE, 64)
    sequences = [Paged(list(ids)) for ids in prompts]
    driver.step([(s, len(s.ids)) for s in sequences])
    for _ in range(NEW_TOKENS):
        for s in sequences:
            s.ids = [*s.ids, int(s.logprobs[-1][-1].argmax())]
        driver.step([(s, 1) for s in sequences])
    for s, ids in zip(sequences, prompts, strict=True):
        tokens, logprobs = greedy(theirs, ids)
        ours = torch.stack([rows[-1] for rows in s.logprobs[:NEW_TOKENS]]).double()
        assert s.ids[len(ids) :] == tokens
        likely = logprobs.topk(20).indices
        assert float((ours - logprobs).gather(1, likely).abs().max()) < 1e-4
