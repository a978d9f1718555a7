"""Server-sent events: any cut of the bytes gives the same events, and only CR, LF and CR LF end a line."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servegate.targets.wire.sse import EventReader


def events(*chunks: bytes) -> list[str]:
    reader = EventReader()
    return [data for chunk in chunks for data in reader.feed(chunk)]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\ndata: b\n\n", ["a", "b"]),
        (b"data: a\r\n\r\ndata: b\r\r", ["a", "b"]),
        (b"data:a\n\n", ["a"]),
        (b"data:  a\n\n", [" a"]),  # exactly one space is dropped
        (b"data: {\ndata: }\n\n", ["{\n}"]),
        (b": keep-alive\n\ndata: a\n\n", ["a"]),
        (b":\n\n:\n\n", []),
        (b"\n\n\n", []),
        (b"event: x\n\ndata: a\n\n", ["a"]),
        (b"data\n\n", [""]),
        (b"id: 1\nretry: 5\nunknown: x\ndata: a\n\n", ["a"]),
        (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
        (b"data: \xef\xbb\xbfa\n\n", ["﻿a"]),
        (b"data: \xff\n\n", ["�"]),
        (b"data: [DONE] \n\n", ["[DONE] "]),
    ],
)
def test_a_stream_is_read_as_the_standard_says(stream: bytes, expected: list[str]) -> None:
    assert events(stream) == expected


def test_a_line_separator_inside_of_json_is_no_line_end() -> None:
    text = json.dumps({"text": "a\u2028b\u2029c\u0085d\x0be"}, ensure_ascii=False)
    assert events(f"data: {text}\n\n".encode()) == [text]


def test_an_event_without_its_blank_line_is_dropped_and_told() -> None:
    reader = EventReader()
    assert reader.feed(b"data: a\n\ndata: b\n") == ["a"]
    assert reader.truncated
    assert reader.feed(b"\n") == ["b"]
    assert not reader.truncated


lines = st.sampled_from(["data: ü✓", "data:", "data: x", ": c", "event: e", "", "", "id", "\ufeffdata: y"])


@given(
    st.lists(st.tuples(lines, st.sampled_from(["\n", "\r\n", "\r"])), max_size=12),
    st.lists(st.integers(0, 120), max_size=8),
)
def test_wherever_the_bytes_are_cut_the_events_are_the_same(
    said: list[tuple[str, str]], cuts: list[int]
) -> None:
    stream = "".join(line + end for line, end in said).encode()
    edges = [0, *sorted(cuts), len(stream)]
    pieces = [stream[a:b] for a, b in pairwise(edges)]
    one_by_one = [stream[i : i + 1] for i in range(len(stream))]
    assert events(*pieces) == events(stream) == events(*one_by_one)
