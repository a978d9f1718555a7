"""What a stream of frames says of one answer: its clock, its count, its end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from servegate.record import Usage
from servegate.targets.wire.frames import Answer, read_answer, told_body

MS = 1_000_000


def sse(frame: object) -> bytes:
    text = frame if isinstance(frame, str) else json.dumps(frame)
    return f"data: {text}\n\n".encode()


def stream(*frames: object, done: bool = True) -> Answer:
    """One frame a read, 10 ms apart, from 10 ms on."""
    said = [*frames, *(["[DONE]"] if done else [])]
    return read_answer([(10 * MS * (i + 1), sse(frame)) for i, frame in enumerate(said)])


def chat(content: str | None = None, ids: list[int] | None = None, **choice: Any) -> dict[str, Any]:
    delta = {} if content is None else {"content": content}
    return {"choices": [{"index": 0, "delta": delta, "token_ids": ids, **choice}]}


def text(shown: str, ids: list[int] | None = None, **choice: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": shown, "token_ids": ids, **choice}]}


ROLE = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}], "prompt_token_ids": [7, 8]}
LAST = chat("b", [2], finish_reason="stop")
USAGE = {"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4}}


def test_a_chat_answer() -> None:
    answer = stream(ROLE, chat("a", [1]), LAST, USAGE)
    assert answer == Answer(
        arrivals_ns=[20 * MS, 30 * MS],  # the frame with the role is no token
        frame_tokens=[1, 1],
        token_ids=[1, 2],
        prompt_ids=[7, 8],
        text="ab",
        finish_reason="stop",
        usage=Usage(prompt_tokens=2, cached_tokens=None, completion_tokens=2),
    )


def test_a_completion_answer() -> None:
    answer = stream(
        text("a", [1], prompt_token_ids=[7]), text("", [2]), text("bc", [3], finish_reason="length"), USAGE
    )
    assert (answer.text, answer.token_ids, answer.prompt_ids) == ("abc", [1, 2, 3], [7])
    assert answer.arrivals_ns == [10 * MS, 20 * MS, 30 * MS]  # a token without text is a token
    assert answer.error is None


def test_several_tokens_in_one_frame_are_counted_as_several() -> None:
    answer = stream(chat("ab", [1, 2]), chat("cde", [3, 4, 5], finish_reason="length"))
    assert answer.frame_tokens == [2, 3]
    assert len(answer.token_ids) == 5


def test_a_frame_cut_in_two_reads_arrives_with_its_end() -> None:
    first, rest = sse(LAST)[:20], sse(LAST)[20:]
    answer = read_answer([(MS, first), (5 * MS, rest), (6 * MS, sse("[DONE]"))])
    assert answer.arrivals_ns == [5 * MS]


def test_frames_of_one_read_share_their_arrival() -> None:
    answer = read_answer([(MS, sse(chat("a", [1])) + sse(LAST) + sse("[DONE]"))])
    assert answer.arrivals_ns == [MS, MS]


def test_a_comment_and_an_empty_or_null_delta_are_no_tokens() -> None:
    reads = [
        (MS, b": keep-alive\n\n"),
        (2 * MS, sse({"choices": [{"delta": {"role": None, "content": None}}]})),
        (3 * MS, sse(LAST)),
        (4 * MS, sse("[DONE]")),
    ]
    assert read_answer(reads).arrivals_ns == [3 * MS]


def test_the_last_usage_counts_and_comes_after_the_finish_reason() -> None:
    cumulative = [
        {**chat("a", [1]), "usage": {"prompt_tokens": 2, "completion_tokens": 1}},
        {**LAST, "usage": {"prompt_tokens": 2, "completion_tokens": 2}},
        {
            "choices": [],
            "usage": {
                "prompt_tokens": 2,
                "completion_tokens": 2,
                "prompt_tokens_details": {"cached_tokens": 1},
            },
        },
    ]
    assert stream(*cumulative).usage == Usage(prompt_tokens=2, cached_tokens=1, completion_tokens=2)


def test_logprobs_of_both_routes() -> None:
    of_chat = {"content": [{"token": "a", "logprob": -0.5, "top_logprobs": []}]}
    of_completions = {"tokens": ["a"], "token_logprobs": [-0.25], "top_logprobs": None}
    assert stream(chat("a", [1], logprobs=of_chat, finish_reason="stop")).logprobs == [-0.5]
    assert stream(text("a", [1], logprobs=of_completions, finish_reason="stop")).logprobs == [-0.25]


@pytest.mark.parametrize("missing", [None, -9999.0])
def test_logprobs_that_are_not_there_for_every_token_are_not_there(missing: float | None) -> None:
    given = {"token_logprobs": [-0.25, missing]}
    answer = stream(text("ab", [1, 2], logprobs=given, finish_reason="stop"))
    assert answer.logprobs is None
    assert answer.error is None


@pytest.mark.parametrize(
    ("frames", "done", "error"),
    [
        ([chat("a", [1])], False, "the stream was cut after 1 token"),
        ([chat("a", [1])], True, "the stream was cut after 1 token"),
        ([], True, "the stream was cut after 0 tokens"),
        ([USAGE], True, "the stream was cut after 0 tokens"),
        (
            [chat("a", [1]), LAST],
            False,
            "the stream ended after 2 tokens without [DONE]: it may have been cut",
        ),
        (
            [chat("a", [1], finish_reason="abort")],
            True,
            "the server gave the answer up after 1 token: finish reason 'abort'",
        ),
        ([LAST, chat(finish_reason="length")], True, "the answer ended twice: stop, then length"),
        (
            [chat("a", [1]), {"error": {"message": "engine\ndied", "code": 500}}],
            True,
            "the server says: engine died",
        ),
        ([{"error": "overloaded"}], True, "the server says: overloaded"),
        (
            [chat("a"), chat("b", finish_reason="stop")],
            True,
            "the server gives no token ids: servegate needs `return_token_ids`, vLLM 0.10.2 or newer",
        ),
    ],
)
def test_an_answer_that_is_none_says_why(frames: list[object], done: bool, error: str) -> None:
    assert stream(*frames, done=done).error == error


@pytest.mark.parametrize(
    "data",
    [
        "{",
        "[]",
        "null",
        '{"choices": 3}',
        '{"choices": [{"token_ids": [-1]}]}',
        '{"choices": [{"token_ids": [4294967296]}]}',
        '{"choices": [{"logprobs": {"token_logprobs": [NaN]}}]}',
        '{"choices": [], "usage": {"prompt_tokens": -1}}',
        '{"choices": [], "usage": {"prompt_tokens": 1e300}}',
    ],
)
def test_a_frame_that_makes_no_sense_fails_its_request_and_no_more(data: str) -> None:
    answer = stream(LAST, data)
    assert answer.error is not None
    assert answer.error.startswith("the server sent a frame that cannot be read: ")
    assert "\n" not in answer.error


def test_an_empty_finish_reason_is_none() -> None:
    assert stream(chat("a", [1], finish_reason=""), LAST).error is None


def test_done_inside_of_an_answer_is_text() -> None:
    answer = stream(chat("[DONE]", [1]), LAST)
    assert (answer.text, answer.error) == ("[DONE]b", None)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error": {"message": "too long", "type": "BadRequestError"}}', "too long"),
        (b'{"error": "Unauthorized"}', "Unauthorized"),
        (b'{"object": "error", "message": "flat"}', "flat"),
        (b"<html>\n502\n</html>", "<html> 502 </html>"),
        (b"", ""),
        (b"\xff", "\ufffd"),
    ],
)
def test_what_a_refusal_says(body: bytes, said: str) -> None:
    assert told_body(body) == said
