"""Numbers as people read them. Rounding happens here and nowhere before."""

from __future__ import annotations

import math


def amount(value: float, unit: str) -> str:
    """``1,657 tokens``, ``12.3 ms``, ``4 %`` of a share, ``0.02 USD per 1,000 requests``."""
    if unit == "share":
        return f"{number(value * 100)} %"
    scale, unit = of_thousands(unit)
    return f"{number(value / scale)} {unit}"


def of_thousands(unit: str) -> tuple[float, str]:
    """What to divide by and the unit to print: one request costs too little to read."""
    if unit.endswith(" per request"):
        return 1e-3, unit.removesuffix("per request") + "per 1,000 requests"
    return 1.0, unit


def number(value: float, digits: int = 4) -> str:
    """``12,345``, ``0.0421``, ``1.2e-09``: whole numbers in full, others to ``digits`` significant digits."""
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    if 1e-4 <= abs(value) < 1e15:
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
        text = f"{value:,.{decimals}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.{digits}g}"


def percent(share: float) -> str:
    """``+104 %``, ``-3.2 %``: a relative change with its sign."""
    size = abs(share) * 100
    digits = 0 if size >= 10 else 1 if size >= 1 else 2
    return f"{share * 100:+,.{digits}f} %"


def moved(before: float, after: float, unit: str) -> str:
    """``moved 30 ms -> 33 ms (+10 %)``: a change of level."""
    by = f" ({percent(after / before - 1)})" if before else ""
    return f"moved {amount(before, unit)} -> {amount(after, unit)}{by}"


def count(n: int, noun: str) -> str:
    """``1 row``, ``3 rows``."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
