"""What a suite expects of the fingerprint."""

from __future__ import annotations

import pytest

from servegate.errors import UsageError
from servegate.fingerprint import Fingerprint
from servegate.pins import matches, pin_rows
from servegate.verdict import State

FINGERPRINT = Fingerprint(
    machine={"driver": "unknown", "cuda": "12.8"},
    software={"engine": "servegate 0.1.3", "torch": "2.10.0+cpu"},
    served={"model digest": "sha256:abc"},
)


@pytest.mark.parametrize(
    ("expected", "found", "holds"),
    [
        ("0.1", "0.1", True),
        ("0.1", "0.1.3", True),
        ("0.1", "0.10", False),
        ("0.1", "0.1rc1", False),
        ("2.10.0", "2.10.0+cpu", True),
        ("0.1.3", "0.1", False),
        ("servegate 0.1", "servegate 0.1.3", True),
        ("servegate 0.1", "vllm 0.1.3", False),
        ("servegate", "servegate 0.1.3", False),
        ("0.1", "servegate 0.1.3", True),
        (">=2.4,<3", "2.10.0+cpu", True),
        (">=2.4,<2.10", "2.10.0", False),
        ("~=0.1.0", "servegate 0.1.3", True),
        ("servegate >=0.1", "servegate 0.1.3", True),
        ("vllm >=0.1", "servegate 0.1.3", False),
        (">=1", "not a version", False),
        ("sha256:abc", "sha256:abc", True),
        ("sha256:ab", "sha256:abc", False),
    ],
)
def test_matches(expected: str, found: str, holds: bool) -> None:
    assert matches(expected, found) is holds


def test_a_mismatch_is_a_failing_row_that_names_both() -> None:
    held, broken = pin_rows({"torch": "2.9", "model_digest": "sha256:abc"}, FINGERPRINT)
    assert (held.metric, held.state, held.gating) == ("pin model_digest", State.PASS, True)
    assert (broken.base, broken.head, broken.state) == ("2.9", "2.10.0+cpu", State.REGRESSED)
    assert broken.reason == "pinned to 2.9, found 2.10.0+cpu"


def test_what_the_target_does_not_tell_fails() -> None:
    (driver,) = pin_rows({"driver": "580"}, FINGERPRINT)
    assert driver.state is State.REGRESSED
    assert driver.reason == "pinned to 580, and the target does not tell its driver"
    (typo,) = pin_rows({"engin": "servegate 0.1"}, FINGERPRINT)
    assert "did you mean 'engine'" in typo.reason


def test_a_specifier_that_is_none_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="not a version specifier"):
        pin_rows({"torch": ">=two"}, FINGERPRINT)
