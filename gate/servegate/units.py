"""Quantities as people write them: `5%`, `20ms`, `1.5s`, `1e-6`, `0.25`.

A share is a plain float. An amount keeps the dimension it was written in, because only the metric it is held
against knows whether milliseconds make sense there.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

Dimension = Literal["", "ms", "%"]
"""What an amount was written in: a plain number, a duration (held in ms), a percentage (held as a share)."""

_NUMBER = r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([+-]?[0-9]{1,4}))?"
_QUANTITY = re.compile(rf"{_NUMBER}[ ]?(us|µs|μs|ms|s|%)?")
_POWER_OF_TEN = {"us": -3, "µs": -3, "μs": -3, "ms": 0, "s": 3, "%": -2}
"""From the unit to what it is held in."""


class Quantity(float):
    """A float that remembers its dimension. Compares and computes as the float it is."""

    unit: Dimension

    def __new__(cls, value: float, unit: Dimension = "") -> Quantity:
        self = super().__new__(cls, value)
        self.unit = unit
        return self

    def __getnewargs__(self) -> tuple[float, Dimension]:  # type: ignore[override]  # copy and pickle keep the unit
        return (float(self), self.unit)


def parse_share(value: object) -> float:
    """``5%`` or ``0.05`` -> 0.05. Raises ValueError on anything else, on negative and non-finite numbers.

    A bare number of 1 or more is refused: who writes ``change: 5`` means 5 %, and would get 500 %.
    """
    share = parse_amount(value)
    if share.unit == "ms":
        raise ValueError(f"{value!r} is a duration; a share is written like 5% or 0.05")
    if share.unit == "" and share >= 1:
        raise ValueError(
            f"{value!r} without a unit reads as {format_share(share)}; write {value}% if meant so"
        )
    return float(share)


def parse_amount(value: object) -> Quantity:
    """``20ms``, ``1.5s``, ``250us``, ``5%``, ``3``, ``1e-6`` -> the number: in ms, as a share, or as it is.

    Raises ValueError on anything else, on negative and non-finite numbers.
    """
    if isinstance(value, Quantity):
        return value
    # bool is an int to Python; `max: true` is a mistake, not 1.
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"expected a number such as 3, 20ms or 5%, found {value!r}")
    text = value.strip() if isinstance(value, str) else repr(value)
    if text.startswith("-"):
        raise ValueError(f"{value!r} is negative; a tolerance or limit is zero or more")
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{value!r} is not a number such as 3, 1e-6, 20ms, 1.5s, 250us or 5%")
    mantissa, exponent, unit = match.group(1), int(match.group(2) or 0), match.group(3) or ""
    # One conversion from decimal text: 0.7% is then exactly the float 0.007, which 0.7 / 100 is not.
    number = float(f"{mantissa}e{exponent + _POWER_OF_TEN.get(unit, 0)}")
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is too large for a number")
    dimension: Dimension = "" if unit == "" else "%" if unit == "%" else "ms"
    return Quantity(number, dimension)


def format_share(share: float) -> str:
    """0.05 -> ``5%``. `parse_share` reads it back to the same float."""
    return f"{_decimal(share, 2)}%"


def format_amount(amount: float) -> str:
    """In the unit a person would choose: ``1.5s``, ``20ms``, ``250us``, ``5%``, ``3``.

    `parse_amount` reads it back to the same float and dimension.
    """
    unit = amount.unit if isinstance(amount, Quantity) else ""
    if unit == "%":
        return format_share(amount)
    if unit == "":
        return _decimal(amount, 0)
    if amount >= 1000:
        return f"{_decimal(amount, -3)}s"
    if 0 < amount < 1:
        return f"{_decimal(amount, 3)}us"
    return f"{_decimal(amount, 0)}ms"


def _decimal(value: float, power_of_ten: int) -> str:
    """``value * 10**power_of_ten`` in decimal digits, exactly: the shift never touches a float."""
    shifted = Decimal(repr(float(value))).scaleb(power_of_ten).normalize()
    return format(shifted, "f") if -7 < shifted.adjusted() < 16 else str(shifted).lower()


_SHARE_SCHEMA = {
    "anyOf": [
        {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
        {"type": "string", "pattern": rf"^{_NUMBER}[ ]?%?$"},
    ]
}
_AMOUNT_SCHEMA = {
    "anyOf": [
        {"type": "number", "minimum": 0},
        {"type": "string", "pattern": rf"^{_QUANTITY.pattern}$"},
    ]
}

Share = Annotated[
    float,
    PlainValidator(parse_share),
    PlainSerializer(format_share, return_type=str),
    WithJsonSchema(_SHARE_SCHEMA),
]
Amount = Annotated[
    Quantity,
    PlainValidator(parse_amount),
    PlainSerializer(format_amount, return_type=str),
    WithJsonSchema(_AMOUNT_SCHEMA),
]
