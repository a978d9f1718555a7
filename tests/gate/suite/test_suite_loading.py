"""What a suite means, and that whatever stands in the file never ends in a traceback."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from suites import FULL, PROMPTS, SUITE, Write, changed, load

from servegate.errors import UsageError
from servegate.suite.schema import MachinePrices, TokenPrices


def test_a_full_suite_means_what_it_says(write: Write) -> None:
    suite = load(write(FULL)).suite
    assert suite.target.engine.num_blocks == 512
    assert suite.sampling.stop == ("\n\n",)
    assert isinstance(suite.prices, TokenPrices)
    assert suite.prices.date == dt.date(2026, 10, 1)
    assert suite.policy.inconclusive == "fail"
    assert suite.policy.rules["logprob_delta"].max == 1e-6
    rule = suite.policy.rules["latency.ttft_p95"]
    assert (rule.change, rule.floor) == (0.10, 20.0)
    assert suite.pins == {"engine": "servegate 0.1"}


def test_prices_by_the_machine_hour(write: Write) -> None:
    prices = "prices: {machine_hour: 2.5, currency: EUR, source: list, date: 2026-10-01}\n"
    assert isinstance(load(write(SUITE + prices)).suite.prices, MachinePrices)


def test_the_prompts_come_with_it(write: Write) -> None:
    loaded = load(write(FULL))
    assert [prompt.id for prompt in loaded.prompts] == ["refund", "hours"]
    assert loaded.prompts[0].messages is not None
    assert [(m.role, m.content) for m in loaded.prompts[0].messages] == [
        ("system", "Be brief."),
        ("user", "Can I return shoes?"),
    ]


# --- the same content is the same suite ---------------------------------------------------------------


@given(st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=20)
def test_the_order_of_keys_does_not_change_the_digest(
    tmp_path_factory: pytest.TempPathFactory, random: object
) -> None:
    def shuffled(value: object) -> object:
        if not isinstance(value, dict):
            return value
        keys = list(value)
        random.shuffle(keys)  # type: ignore[attr-defined]
        return {key: shuffled(value[key]) for key in keys}

    folder = tmp_path_factory.mktemp("suite")
    (folder / "prompts.yaml").write_text(PROMPTS)
    path = folder / "suite.yaml"
    path.write_text(FULL)
    digest = load(path).digest
    data = shuffled(yaml.load(FULL, Loader=yaml.BaseLoader))  # every scalar as it was written
    path.write_text(as_yaml(data))
    assert load(path).digest == digest


def as_yaml(value: object) -> str:
    """Flow style with scalars as they are: a dumper would quote `5` and `5%` by its own lights."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {as_yaml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_yaml, value)) + "]"
    needs_quotes = (
        not str(value) or not str(value).replace(".", "").replace("-", "").replace("%", "").isalnum()
    )
    return '"' + str(value).replace("\n", "\\n") + '"' if needs_quotes else str(value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("change: 10%", "change: 0.1"),
        ("floor: 20ms", "floor: 0.02s"),
        ("numerics: native", "numerics: native, concurrency: 4"),
        ("version: 1", "# a comment\nversion: 1"),
    ],
)
def test_another_way_to_write_it_does_not_change_the_digest(write: Write, old: str, new: str) -> None:
    assert load(write(SUITE)).digest == load(write(changed(old, new))).digest


@pytest.mark.parametrize(("old", "new"), [("10%", "11%"), ("20ms", "20s"), ("native", "reference")])
def test_other_content_changes_the_digest(write: Write, old: str, new: str) -> None:
    assert load(write(SUITE)).digest != load(write(changed(old, new))).digest


# --- whatever stands in the file ----------------------------------------------------------------------

any_yaml = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
suite_keys = st.sampled_from(sorted(yaml.safe_load(FULL)))


@given(st.one_of(st.text(), st.binary()))
@settings(deadline=None)
def test_any_file_is_a_suite_or_a_usage_error(
    tmp_path_factory: pytest.TempPathFactory, content: str | bytes
) -> None:
    path = tmp_path_factory.mktemp("any") / "suite.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "replace"))
    with pytest.raises(UsageError):
        load(path)


@given(suite_keys, any_yaml)
@example("workloads", {"\n": None})  # named in the message of a policy that knows no such workload
@settings(deadline=None, max_examples=50)
def test_any_value_in_a_suite_is_a_suite_or_a_usage_error(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: object
) -> None:
    folder = tmp_path_factory.mktemp("any")
    (folder / "prompts.yaml").write_text(PROMPTS)
    data = {**yaml.load(FULL, Loader=yaml.BaseLoader), "version": 1, key: value}
    path = folder / "suite.yaml"
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    loads_or_names_the_place(path)


@given(
    st.integers(0, len(FULL)),
    st.integers(0, 12),
    st.text(max_size=6) | st.sampled_from(list("{}[]&*!|>#\t\n")),
)
@settings(deadline=None)
def test_any_slip_of_the_pen_is_a_suite_or_a_usage_error(
    tmp_path_factory: pytest.TempPathFactory, start: int, length: int, typed: str
) -> None:
    folder = tmp_path_factory.mktemp("slip")
    (folder / "prompts.yaml").write_text(PROMPTS)
    path = folder / "suite.yaml"
    path.write_bytes((FULL[:start] + typed + FULL[start + length :]).encode())
    loads_or_names_the_place(path)


def loads_or_names_the_place(path: Path) -> None:
    try:
        load(path)
    except UsageError as error:
        lines = str(error).split("\n")
    else:
        return
    assert all(line.startswith(f"{path}:") for line in lines), lines
