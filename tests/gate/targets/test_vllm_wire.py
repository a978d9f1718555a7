"""What a real vLLM 0.32.0 put on the wire, as it was recorded, and how it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from servegate.record import Usage
from servegate.targets.wire import vllm
from servegate.targets.wire.frames import Answer, read_answer

DATA = Path(__file__).parents[2] / "data" / "vllm"


def recorded(name: str) -> Answer:
    """The stream, one event a read, a millisecond apart."""
    events = (DATA / name).read_bytes().split(b"\n\n")
    answer = read_answer([(i * 1_000_000, event + b"\n\n") for i, event in enumerate(events, 1)])
    assert answer.error is None
    assert len(answer.token_ids) == len(answer.arrivals_ns)
    return answer


def test_a_chat_answer_with_its_end_of_text_token() -> None:
    answer = recorded("chat.sse")
    assert answer.text == "The capital of France is Paris."
    assert answer.token_ids == [504, 3575, 282, 4649, 314, 7042, 30, 2]
    assert answer.finish_reason == "stop"
    assert answer.arrivals_ns[0] == 2_000_000  # the first frame holds the role alone
    assert len(answer.prompt_ids or ()) == 37
    assert answer.usage == Usage(prompt_tokens=37, cached_tokens=None, completion_tokens=8)
    assert answer.logprobs is not None
    assert (answer.logprobs[0], answer.logprobs[-1]) == (-1.8827052116394043, -0.2578156888484955)


def test_a_completion() -> None:
    answer = recorded("completion.sse")
    assert (answer.text, answer.finish_reason) == (" Paris.\n\nThe answer is:", "length")
    assert answer.prompt_ids == [504, 3575, 282, 4649, 314]
    assert answer.logprobs is not None
    assert answer.logprobs[0] == -0.25807321071624756


def test_a_stop_text_holds_characters_back_and_no_token() -> None:
    answer = recorded("stop-text.sse")
    assert (answer.text, answer.finish_reason) == ("The capital of ", "stop")
    assert answer.token_ids == [504, 3575, 282, 4649]


def test_a_character_of_three_tokens_is_three_tokens() -> None:
    answer = recorded("emoji.sse")
    assert answer.text.startswith("🎉")
    assert answer.token_ids[:3] == [10813, 232, 227]
    assert len(answer.logprobs or ()) == len(answer.token_ids)
    assert answer.usage is None  # none was asked for


def test_scores_are_those_of_the_completion_s_own_tokens() -> None:
    body = (DATA / "scored.json").read_bytes()
    assert vllm.scores(body, [7042, 30]) == (-0.25807321071624756, -0.38012275099754333)
    # Scored and generated logprobs of one token need not be equal: other kernels gave them.
    assert recorded("completion.sse").logprobs[1] == -0.3801261782646179  # type: ignore[index]


@pytest.mark.parametrize(
    ("body", "ids"),
    [
        (b"", [1]),
        (b'{"error": {"message": "too long"}}', [1]),
        (b'{"choices": []}', [1]),
        (b'{"choices": [{"prompt_logprobs": null}]}', [1]),
        (b'{"choices": [{"prompt_logprobs": [null, {"5": {"logprob": -1.0}}]}]}', [6]),
        (b'{"choices": [{"prompt_logprobs": [null, {"5": {"logprob": -9999.0}}]}]}', [5]),
        (b'{"choices": [{"prompt_logprobs": [null, {"5": {"logprob": NaN}}]}]}', [5]),
        (b'{"choices": [{"prompt_logprobs": [null, {"5": {"logprob": "x"}}]}]}', [5]),
        (b'{"choices": [{"prompt_logprobs": [null, {"5": {"logprob": -1.0}}]}]}', [5, 5, 5]),
    ],
)
def test_a_score_that_is_not_whole_is_none(body: bytes, ids: list[int]) -> None:
    assert vllm.scores(body, ids) is None


def test_the_kv_cache_is_read_from_the_metrics() -> None:
    metrics = (DATA / "metrics.txt").read_text()
    assert vllm.cache_settings(metrics) == {
        "engine.block_size": "128",
        "engine.num_blocks": "182",
        "engine.prefix_cache": "True",
        "engine.cache_dtype": "auto",
    }
    assert vllm.preemptions(metrics) == 0


@pytest.mark.parametrize(
    "page",
    [
        "",
        "<html>no metrics</html>",
        "vllm:num_preemptions_total x",
        "vllm:num_preemptions_total NaN",
        "vllm:num_preemptions_total 1e300",
        "vllm:num_preemptions_total -1",
    ],
)
def test_a_page_that_is_no_metrics_tells_nothing(page: str) -> None:
    assert set(vllm.cache_settings(page).values()) == {"unknown"}
    assert vllm.preemptions(page) is None
