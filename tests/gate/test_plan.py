"""From a suite to what is sent: all of it decided before the first request."""

from __future__ import annotations

from pathlib import Path

import pytest

from servegate.plan import ForcedCompletion, Plan, make_plan, offered_load
from servegate.suite.loading import LoadedSuite, load_suite

SUITE = """\
version: 1
name: support
target: {kind: embedded, model: smollm2-135m}
sampling: {max_tokens: 96, temperature: 0.5, seed: 7}
prompts: {set: prompts.yaml, chat: false}
workloads:
  behaviour: {kind: closed, concurrency: 9, numerics: reference}
  latency: {kind: closed, concurrency: 2, numerics: native, repeat: 3}
policy: {}
"""
PROMPTS = """\
version: 1
name: support
prompts:
  - {id: a, text: Hello}
  - {id: b, text: Bye, max_tokens: 5}
"""


def loaded(folder: Path, suite: str = SUITE, prompts: str = PROMPTS) -> LoadedSuite:
    (folder / "suite.yaml").write_text(suite)
    (folder / "prompts.yaml").write_text(prompts)
    return load_suite(folder / "suite.yaml", {})


def digests(plan: Plan) -> dict[str, str]:
    return {request.id: request.prompt.digest for request in plan.workloads[0].requests}


def test_each_workload_sends_each_prompt_once_a_round(tmp_path: Path) -> None:
    behaviour, latency = make_plan(loaded(tmp_path)).workloads
    assert [request.id for request in behaviour.requests] == ["a", "b"]
    assert [request.prompt.text for request in latency.requests] == ["Hello", "Bye"]
    assert (latency.kind, latency.numerics, latency.repeat) == ("closed", "native", 3)
    assert all(request.due_ns is None for request in behaviour.requests)


def test_more_clients_than_prompts_is_allowed(tmp_path: Path) -> None:
    behaviour = make_plan(loaded(tmp_path)).workloads[0]
    assert (behaviour.concurrency, len(behaviour.requests)) == (9, 2)


def test_only_what_is_timed_warms_up_unless_told(tmp_path: Path) -> None:
    assert [w.warmup for w in make_plan(loaded(tmp_path)).workloads] == [0, 1]
    told = SUITE.replace("numerics: reference", "warmup: 2").replace("repeat: 3", "warmup: 0")
    assert [w.warmup for w in make_plan(loaded(tmp_path, told)).workloads] == [2, 0]


def test_a_prompts_own_max_tokens_wins_and_nothing_else_moves(tmp_path: Path) -> None:
    first, second = make_plan(loaded(tmp_path)).workloads[0].requests
    assert (first.sampling.max_tokens, second.sampling.max_tokens) == (96, 5)
    assert second.sampling.model_copy(update={"max_tokens": 96}) == first.sampling


def test_a_workload_may_cut_completions_short_and_its_offered_load_says_so(tmp_path: Path) -> None:
    whole = SUITE.replace("max_tokens: 96", "max_tokens: 96, min_tokens: 4")
    behaviour, latency = make_plan(
        loaded(tmp_path, whole.replace("repeat: 3", "repeat: 3, max_tokens: 3"))
    ).workloads
    assert [r.sampling.max_tokens for r in behaviour.requests] == [96, 5]
    assert [(r.sampling.max_tokens, r.sampling.min_tokens) for r in latency.requests] == [(3, 3), (3, 3)]
    assert "max_tokens" not in offered_load(behaviour)
    assert offered_load(latency)["max_tokens"] == "3"


def test_the_digest_of_a_prompt_survives_a_rename_and_nothing_else(tmp_path: Path) -> None:
    before = digests(make_plan(loaded(tmp_path)))
    renamed = digests(make_plan(loaded(tmp_path, prompts=PROMPTS.replace("id: a", "id: z"))))
    reworded = digests(make_plan(loaded(tmp_path, prompts=PROMPTS.replace("Hello", "Hallo"))))
    as_chat = digests(make_plan(loaded(tmp_path, SUITE.replace("chat: false", "chat: true"))))
    assert renamed["z"] == before["a"]
    assert reworded["a"] != before["a"]
    assert reworded["b"] == before["b"]
    assert as_chat["a"] != before["a"]


def test_stored_completions_are_scored_where_numerics_are_reference(tmp_path: Path) -> None:
    forced = {
        "b": ForcedCompletion(prompt_id="b", completion_ids=(1, 2)),
        "a": ForcedCompletion(prompt_id="a", completion_ids=()),  # nothing to score
        "gone": ForcedCompletion(prompt_id="gone", completion_ids=(3,)),
    }
    behaviour, latency = make_plan(loaded(tmp_path), forced).workloads
    assert behaviour.forced == (forced["b"],)
    assert latency.forced == ()


def test_a_plan_is_a_pure_function_and_survives_json(tmp_path: Path) -> None:
    suite = loaded(tmp_path)
    plan = make_plan(suite)
    for path in tmp_path.iterdir():
        path.unlink()
    assert make_plan(suite) == plan
    assert Plan.model_validate_json(plan.model_dump_json()) == plan


def test_a_plan_names_what_it_was_made_of(tmp_path: Path) -> None:
    suite = loaded(tmp_path)
    plan = make_plan(suite)
    assert (plan.suite, plan.suite_digest, plan.prompt_set_digest) == (
        "support",
        suite.digest,
        suite.prompt_set_digest,
    )


@pytest.mark.parametrize("prompts", ["", "version: 1\nname: s\nprompts: []\n"])
def test_nothing_to_send_is_no_plan(tmp_path: Path, prompts: str) -> None:
    from servegate.errors import UsageError

    with pytest.raises(UsageError, match="is empty"):
        loaded(tmp_path, prompts=prompts)
