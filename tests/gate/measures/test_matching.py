"""Which prompt of the base is which of the head, and what happens to those without a partner."""

from __future__ import annotations

from arms import answer, behaviour, compared, failed, record, row, verdict
from hypothesis import given, settings
from hypothesis import strategies as st

from servegate.facts import PromptFacts
from servegate.metrics.matching import match_prompts
from servegate.verdict import Outcome, State


def prompts(**digests: str) -> dict[str, PromptFacts]:
    return {
        name: PromptFacts(
            prompt_digest=digest, finish_reason="stop", prompt_tokens=1, completion_ids=(), logprobs=()
        )
        for name, digest in digests.items()
    }


def test_digest_first_then_id() -> None:
    found = match_prompts(
        prompts(same="1", old="2", edited="3", gone="4"),
        prompts(same="1", renamed="2", edited="30", added="5"),
    )
    assert found.pairs == (("edited", "edited"), ("old", "renamed"), ("same", "same"))
    assert found.renamed == (("old", "renamed"),)
    assert found.changed == ("edited",)
    assert found.missing == ("gone",)
    assert found.new == ("added",)


def test_swapped_ids_are_two_renames() -> None:
    found = match_prompts(prompts(a="1", b="2"), prompts(a="2", b="1"))
    assert found.renamed == (("a", "b"), ("b", "a"))
    assert found.changed == ()


def test_equal_prompts_keep_their_ids_and_pair_in_order() -> None:
    found = match_prompts(prompts(a="1", b="1", c="1"), prompts(b="1", x="1", y="1"))
    assert found.pairs == (("a", "x"), ("b", "b"), ("c", "y"))


SETS = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("123"))


@settings(deadline=None)
@given(SETS, SETS)
def test_every_prompt_is_in_exactly_one_place(base: dict[str, str], head: dict[str, str]) -> None:
    found = match_prompts(prompts(**base), prompts(**head))
    assert sorted([b for b, _ in found.pairs] + list(found.missing)) == sorted(base)
    assert sorted([h for _, h in found.pairs] + list(found.new)) == sorted(head)
    back = match_prompts(prompts(**head), prompts(**base))
    assert len(back.pairs) == len(found.pairs)


GATES = {"completion_tokens": {"change": "5%"}, "token_ids": {"equal": True}}


def test_a_renamed_prompt_is_compared_under_both_names() -> None:
    """pytest-benchmark: a renamed test left exit 0 and no note."""
    base = record(behaviour(answer("a", [1, 2], digest="1"), answer("b", [3], digest="2")))
    head = record(behaviour(answer("a", [1, 2], digest="1"), answer("c", [4], digest="2")))
    comparison = compared(base, head, GATES)
    renamed = row(comparison, "prompts renamed")
    assert (renamed.state, renamed.detail) == (State.RENAMED, ("b -> c",))
    assert row(comparison, "token_ids").detail == ("prompt 'b' parts at token 0: 3 -> 4",)


def test_a_changed_prompt_is_compared_and_said_so() -> None:
    base = record(behaviour(answer("a", [1], digest="1")))
    head = record(behaviour(answer("a", [1, 2], digest="2")))
    result = verdict(base, head, GATES)
    assert row(result.comparison, "prompts changed").detail == ("a",)
    assert result.outcome is Outcome.REGRESSED
    assert "changed: the text of 1 prompt" in result.headline


def test_a_missing_prompt_is_no_comparable_data_and_the_rest_is_compared() -> None:
    """Totals are recomputed over the prompts that both arms have: an edited set hides no regression."""
    base = record(behaviour(answer("a", [1, 2]), answer("b", [3])))
    head = record(behaviour(answer("a", [1, 2]), answer("c", [3, 4, 5], digest="new")))
    result = verdict(base, head, GATES)
    assert result.outcome is Outcome.NO_DATA
    assert row(result.comparison, "prompts missing").detail == ("b",)
    assert row(result.comparison, "prompts new").detail == ("c",)
    tokens = row(result.comparison, "completion_tokens")
    assert (tokens.base, tokens.head, tokens.state) == (2, 2, State.PASS)
    assert "over the 1 prompts that both arms have" in tokens.detail
    assert row(result.comparison, "prompt_tokens").base == 10


def test_an_added_prompt_hides_no_regression() -> None:
    base = record(behaviour(answer("a", [1, 2])))
    head = record(behaviour(answer("a", [1, 2, 3, 4]), answer("b", [1])))
    assert verdict(base, head, {"completion_tokens": {"change": "5%"}}).outcome is Outcome.REGRESSED


def test_a_prompt_that_fails_on_the_head_is_missing_with_its_error() -> None:
    """foundry#15720: a benchmark that crashed on the candidate was shown as inconclusive, and passed."""
    base = record(behaviour(answer("a", [1]), answer("b", [2])))
    head = record(behaviour(answer("a", [1]), failed("b", "out of memory")))
    result = verdict(base, head, GATES)
    assert result.outcome is not Outcome.PASS
    assert row(result.comparison, "prompts failed").detail == ("b: out of memory",)
