"""Values in the unit that reads best, and what their change means in words: for tables and charts."""

from __future__ import annotations

from servegate.verdict import Row
from servegate.wording import number, of_thousands

_NS_PER = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
_SCALES = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))

ABSENT = "n/a"


def percent(share: float) -> str:
    """``12.3 %`` of a relative change, without its sign."""
    size = abs(share) * 100
    if 0 < size < 0.01:
        return "under 0.01 %"
    digits = 0 if size >= 100 else 1 if size >= 1 else 2
    text = f"{size:,.{digits}f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) + " %"


def pair(base: float | str | None, head: float | str | None, unit: str) -> tuple[str, str]:
    """Both values in one unit, with as many digits as it takes to tell them apart."""
    numbers = [v for v in (base, head) if isinstance(v, int | float)]
    scale, unit = _scale(numbers, unit)
    digits = 4
    if len(numbers) == 2 and numbers[0] != numbers[1]:
        while digits < 17 and number(numbers[0] / scale, digits) == number(numbers[1] / scale, digits):
            digits += 1
    return _value(base, scale, unit, digits), _value(head, scale, unit, digits)


def value(amount: float | str | None, unit: str) -> str:
    return pair(amount, None, unit)[0]


def change(row: Row) -> str:
    """``98 % longer``; where there is nothing to divide by, ``n/a`` with the absolute change."""
    base, head = row.base, row.head
    if base is None or head is None:
        return ABSENT
    if row.kind == "pin":
        return ""  # what is pinned and what is found are two kinds of text
    if base == head:
        return "same"
    if isinstance(base, str) or isinstance(head, str):
        return "changed"
    direction = _direction(row, head > base)
    if row.change is None or base == 0:
        difference = value(abs(head - base), row.unit)
        return f"{ABSENT} ({difference} {direction})"
    return f"{percent(row.change)} {direction}"


def _direction(row: Row, up: bool) -> str:
    more, less = _direction_words(row)
    return more if up else less


def _direction_words(row: Row) -> tuple[str, str]:
    if row.metric.startswith("completion_tokens"):
        return "longer", "shorter"
    if row.unit in _NS_PER:
        return ("longer", "shorter") if row.metric.startswith("stall") else ("slower", "faster")
    if row.unit.endswith("/s"):
        return "faster", "slower"
    if row.metric.startswith("cost"):
        return "costlier", "cheaper"
    if row.unit == "nat":
        return "larger", "smaller"
    return ("higher", "lower") if row.unit == "share" else ("more", "fewer")


def _scale(numbers: list[float], unit: str) -> tuple[float, str]:
    """What to divide by and the unit to print: durations and costs move to the unit that reads best."""
    if unit == "share":
        return 0.01, "%"
    per = _NS_PER.get(unit)
    largest = max((abs(n) for n in numbers), default=0.0)
    if per is None or largest == 0:
        return of_thousands(unit)
    for size, name in _SCALES:
        if largest * per >= size:
            return size / per, name
    return 1.0 / per, "ns"


def _value(amount: float | str | None, scale: float, unit: str, digits: int) -> str:
    if amount is None:
        return ABSENT
    if isinstance(amount, str):
        return amount
    shown = number(amount / scale, digits)
    if (
        shown == "1"
        and unit.endswith("s")
        and unit not in _NS_PER
        and "/" not in unit
        and " per " not in unit
    ):
        unit = unit[:-1]
    return f"{shown} {unit}".rstrip()
