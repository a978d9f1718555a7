"""Shared by the engine's tests: one thread, since two that wait for each other crawl on a busy machine."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from servegate_engine import model_store
from servegate_engine.config import ModelConfig
from servegate_engine.loading import load_weights

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct from the user's cache; ``make test`` has put it there."""
    return model_store.fetch("smollm2-135m")


@pytest.fixture(scope="session")
def smollm2_reference(smollm2: Path) -> tuple[ModelConfig, dict[str, torch.Tensor]]:
    """Its configuration and its weights in float64 (1.1 GB), shared by every test of a session."""
    return load_weights(smollm2, torch.float64)
