"""What a person reads for a number."""

import pytest

from servegate.render import words

MS = 1e6


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (12345, "12,345"),
        (48.0, "48"),
        (0.0421, "0.0421"),
        (0.00002, "2e-05"),
        (12345.6, "12,346"),
        (0.99999, "1"),
        (1234.5678, "1,235"),
        (1.2e-9, "1.2e-09"),
        (-3.5, "-3.5"),
    ],
)
def test_number(value: float, text: str) -> None:
    assert words.number(value) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.123, "12.3 %"),
        (-1.0, "100 %"),
        (0.05, "5 %"),
        (0.004, "0.4 %"),
        (0.00001, "under 0.01 %"),
        (12.34, "1,234 %"),
    ],
)
def test_percent(share: float, text: str) -> None:
    assert words.percent(share) == text


def test_durations_move_to_one_unit_that_reads_well() -> None:
    assert words.pair(980_000.0, 1_020_000.0, "ns") == ("0.98 ms", "1.02 ms")
    assert words.value(182 * MS, "ns") == "182 ms"
    assert words.value(0.004, "s") == "4 ms"
    assert words.pair(1204.0, 90.0, "ms") == ("1.204 s", "0.09 s")


def test_units() -> None:
    assert words.pair(0.07, 0.25, "share") == ("7 %", "25 %")
    assert words.pair(1.0, 3.0, "prompts") == ("1 prompt", "3 prompts")
    assert words.value(1.0, "tokens/s") == "1 tokens/s"


def test_two_different_values_never_look_equal() -> None:
    base, head = words.pair(100.0000001, 100.0000002, "nat")
    assert base != head
    assert words.pair(5.0, 5.0, "nat") == ("5 nat", "5 nat")


def test_absent_and_text_values() -> None:
    assert words.pair(None, "stop 8", "") == ("n/a", "stop 8")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"change": 0.5}, "50 % slower"),
        ({"head": 50 * MS, "change": -0.5}, "50 % faster"),
        ({"metric": "stall_p95", "change": 0.5}, "50 % longer"),
        (
            {"metric": "completion_tokens", "unit": "tokens", "base": 48.0, "head": 95.0, "change": 0.979},
            "97.9 % longer",
        ),
        (
            {"metric": "throughput", "unit": "tokens/s", "base": 2.0, "head": 1.0, "change": -0.5},
            "50 % slower",
        ),
        (
            {"metric": "cost_per_request", "unit": "USD", "base": 1.0, "head": 2.0, "change": 1.0},
            "100 % costlier",
        ),
        ({"metric": "preemptions", "unit": "", "base": 4.0, "head": 5.0, "change": 0.25}, "25 % more"),
        ({"head": 100 * MS, "change": 0.0}, "same"),
        ({"base": None}, "n/a"),
        ({"base": "stop 8", "head": "length 8", "change": None}, "changed"),
    ],
)
def test_change_in_words(row, given, text: str) -> None:
    assert words.change(row(**given)) == text


def test_zero_base_is_never_zero_percent_nor_infinite(row) -> None:
    grown = row(metric="preemptions", unit="", base=0.0, head=3.0, change=None)
    assert words.change(grown) == "n/a (3 more)"


def test_drop_to_zero_is_minus_one_hundred_percent(row) -> None:
    """bencherdev/bencher#956 showed it as 0 %."""
    gone = row(metric="evictions", unit="", base=3069448.0, head=0.0, change=-1.0)
    assert words.change(gone) == "100 % fewer"
