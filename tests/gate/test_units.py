"""Quantities as people write them, and what YAML does to them on the way."""

import copy
import math
import pickle

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from servegate.units import Quantity, format_amount, format_share, parse_amount, parse_share

non_negative = st.floats(min_value=0, allow_infinity=False, allow_nan=False)


@pytest.mark.parametrize(
    ("written", "share"),
    [("5%", 0.05), ("0.05", 0.05), (0.05, 0.05), ("0.7%", 0.007), ("250%", 2.5), (0, 0.0), ("0%", 0.0)],
)
def test_a_share_is_a_percentage_or_a_number_below_one(written: object, share: float) -> None:
    assert parse_share(written) == share


def test_five_without_a_percent_sign_is_refused_because_it_would_mean_500_percent() -> None:
    with pytest.raises(ValueError, match=r"^5 without a unit reads as 500%; write 5% if meant so$"):
        parse_share(5)


def test_a_share_is_not_a_duration() -> None:
    with pytest.raises(ValueError, match=r"^'20ms' is a duration; a share is written like 5% or 0.05$"):
        parse_share("20ms")


@pytest.mark.parametrize(
    ("written", "value", "unit"),
    [
        ("20ms", 20.0, "ms"),
        ("1.5s", 1500.0, "ms"),
        ("250us", 0.25, "ms"),
        ("250µs", 0.25, "ms"),
        ("20 ms", 20.0, "ms"),
        (" 20ms ", 20.0, "ms"),
        ("1e-6", 1e-6, ""),  # text to YAML 1.1, a number to YAML 1.2
        (1e-6, 1e-6, ""),
        (3, 3.0, ""),
        ("3", 3.0, ""),
        (".5", 0.5, ""),
        ("5%", 0.05, "%"),
        ("1e2%", 1.0, "%"),
    ],
)
def test_an_amount_keeps_the_dimension_it_was_written_in(written: object, value: float, unit: str) -> None:
    amount = parse_amount(written)
    assert (amount, amount.unit) == (value, unit)


@pytest.mark.parametrize("parse", [parse_share, parse_amount])
@pytest.mark.parametrize(
    "written",
    ["", " ", "%", "ms", "fast", "5 %%", "1_000", "12:30", "0x10", "1,5", "5 percent", "20 m", "20ms ms", "٣",
     "NaN", "inf", ".inf", "1e", "1e99999999999", "1e999", "1e400ms",
     True, False, None, [], {}, math.inf, math.nan],
)  # fmt: skip
def test_what_is_no_finite_number_is_refused(parse: object, written: object) -> None:
    with pytest.raises(ValueError, match="number"):
        parse(written)  # type: ignore[operator]


@pytest.mark.parametrize("written", ["-5%", "-20ms", -1, -0.5, -math.inf])
def test_negative_is_refused_in_words(written: object) -> None:
    with pytest.raises(ValueError, match="is negative; a tolerance or limit is zero or more"):
        parse_amount(written)


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (Quantity(20, "ms"), "20ms"),
        (Quantity(1500, "ms"), "1.5s"),
        (Quantity(0.25, "ms"), "250us"),
        (Quantity(0, "ms"), "0ms"),
        (Quantity(0.05, "%"), "5%"),
        (Quantity(3), "3"),
        (Quantity(1e-12), "1e-12"),
        (3.0, "3"),
    ],
)
def test_an_amount_is_printed_in_the_unit_a_person_would_choose(amount: float, text: str) -> None:
    assert format_amount(amount) == text


@given(non_negative)
@example(0.007)
@example(5e-324)
@example(1.7976931348623157e308)
@settings(deadline=None)
def test_a_share_survives_being_printed(share: float) -> None:
    assert parse_share(format_share(share)) == share


@given(non_negative, st.sampled_from(["", "ms", "%"]))
@example(999.9999999999999, "ms")
@example(5e-324, "ms")
@settings(deadline=None)
def test_an_amount_survives_being_printed(value: float, unit: str) -> None:
    amount = parse_amount(format_amount(Quantity(value, unit)))  # type: ignore[arg-type]
    assert (amount, amount.unit) == (value, unit)


@given(st.text())
@settings(deadline=None)
def test_any_text_is_a_quantity_or_a_value_error(text: str) -> None:
    try:
        amount = parse_amount(text)
    except ValueError:
        return
    assert math.isfinite(amount)
    assert amount >= 0


def test_copies_keep_the_dimension() -> None:
    amount = Quantity(20, "ms")
    assert copy.deepcopy(amount).unit == pickle.loads(pickle.dumps(amount)).unit == "ms"
