"""Rotary position embedding: the frequencies and their tables, float64 always."""

from __future__ import annotations

import math

import torch

from servegate_engine.config import RopeScaling


def inverse_frequencies(head_dim: int, theta: float, scaling: RopeScaling | None) -> torch.Tensor:
    """[head_dim / 2] radians per position, ``theta ** (-2 i / head_dim)`` (RoFormer, arXiv 2104.09864).

    With ``scaling``, Llama 3's rule: wavelengths longer than ``original_max_position / low_freq_factor`` are
    stretched by ``factor``, those shorter than ``original_max_position / high_freq_factor`` are kept, and
    between the two the stretch is blended linearly in the number of turns over the original context.
    """
    plain = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    if scaling is None:
        return plain
    turns = scaling.original_max_position * plain / (2 * math.pi)
    kept = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    kept = kept.clamp(0.0, 1.0)
    return kept * plain + (1 - kept) * plain / scaling.factor


def rope_tables(
    num_positions: int, head_dim: int, theta: float, scaling: RopeScaling | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of every angle, each [num_positions, head_dim / 2] in float64."""
    positions = torch.arange(num_positions, dtype=torch.float64)
    angles = torch.outer(positions, inverse_frequencies(head_dim, theta, scaling))
    return angles.cos(), angles.sin()
