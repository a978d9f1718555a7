"""SmolLM2 here and in transformers, the same weights: equal greedy tokens, logprobs within 1e-4 nat."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from paged import Driver, Paged
from toy import hf_config, hf_weights

from servegate_engine.backends.torch_backend import TorchBackend
from servegate_engine.chat_template import ChatTemplate
from servegate_engine.config import EngineConfig, ModelConfig
from servegate_engine.gguf_file import GgufFile
from servegate_engine.loading import load_weights
from servegate_engine.tokenizer import Tokenizer

QUESTIONS = [
    "What is the capital of France?",
    "Write one sentence about the sea.",
    "Count from 1 to 10.",
    "Explain what a hash table is.",
]
NEW_TOKENS = 16
BLOCK_SIZE = 16


@pytest.fixture(scope="module")
def model(smollm2: Path) -> tuple[ModelConfig, dict[str, torch.Tensor]]:
    return load_weights(smollm2, torch.float32)


@pytest.fixture(scope="module")
def theirs(model: tuple[ModelConfig, dict[str, torch.Tensor]]) -> Iterator[Any]:
    """Transformers' Llama with our weights, which the next test holds against its own reading of the file."""
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
def test_weights_equal_their_reading_of_the_gguf(
    smollm2: Path, model: tuple[ModelConfig, dict[str, torch.Tensor]]
) -> None:
    """Dequantised and un-permuted by their code: bit for bit ours."""
    from transformers import AutoModelForCausalLM

    read = AutoModelForCausalLM.from_pretrained(
        str(smollm2.parent), gguf_file=smollm2.name, dtype=torch.float32
    ).state_dict()
    for name, weight in hf_weights(*model).items():
        assert torch.equal(read[name], weight), name


def greedy(model: Any, ids: list[int]) -> tuple[list[int], torch.Tensor]:
    """Their tokens and the logprobs of each choice's whole distribution, one full forward pass per token."""
    out, rows = list(ids), []
    for _ in range(NEW_TOKENS):
        rows.append(torch.log_softmax(model(torch.tensor([out])).logits[0, -1].double(), -1))
        out.append(int(rows[-1].argmax()))
    return out[len(ids) :], torch.stack(rows)


def test_greedy_tokens_and_logprobs(
    model: tuple[ModelConfig, dict[str, torch.Tensor]], theirs: Any, prompts: list[list[int]]
) -> None:
    """Ours run together, batched and paged; theirs one by one from scratch."""
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
        assert float((ours - logprobs).abs().max()) < 1e-4
