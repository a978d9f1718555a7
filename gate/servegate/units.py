"""Quantities as people write them: `5%`, `20ms`, `1e-6`, `0.25`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator


def parse_share(value: object) -> float:
    """``5%`` or ``0.05`` -> 0.05. Raises ValueError on anything else, on negative and non-finite numbers."""
    raise NotImplementedError


def parse_amount(value: object) -> float | str:
    raise NotImplementedError


Share = Annotated[float, BeforeValidator(parse_share)]
Amount = Annotated[float, BeforeValidator(parse_amount)]
