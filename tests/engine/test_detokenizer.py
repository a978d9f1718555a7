"""The detokenizer: whole tokens, exact text, nothing of a stop string. Numbers name public fault reports."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servegate_engine.detokenizer import Detokenizer, Released
from servegate_engine.request import TokenLogprob


class Pieces:
    """A tokenizer whose token i stands for the bytes ``pieces[i]``."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces

    def token_bytes(self, token_id: int) -> bytes:
        return self.pieces[token_id]


def run(
    pieces: Sequence[bytes], stop: tuple[str, ...] = (), unchecked: int = 0, prompt: Sequence[bytes] = ()
) -> list[Released]:
    """One event per token until a stop, then the flush. The first ``unchecked`` tokens cannot stop."""
    tokenizer = Pieces([*pieces, *prompt])
    detokenizer = Detokenizer(tokenizer, stop, range(len(pieces), len(pieces) + len(prompt)))
    events = []
    for i in range(len(pieces)):
        events.append(detokenizer.push(TokenLogprob(i, -float(i), 1.0), check_stop=i >= unchecked))
        if events[-1].stopped is not None:
            break
    return [*events, detokenizer.flush()]


def texts(events: list[Released]) -> list[str]:
    return [event.text for event in events]


def final(events: list[Released]) -> tuple[list[int], str, str | None]:
    ids = [token.token_id for event in events for token in event.tokens]
    stopped = [event.stopped for event in events if event.stopped is not None]
    return ids, "".join(texts(events)), stopped[0] if stopped else None


def expected(
    pieces: Sequence[bytes], stop: tuple[str, ...] = (), unchecked: int = 0
) -> tuple[list[int], str, str | None]:
    """The obvious way: decode every prefix of the tokens as a whole, look at every place a match can end."""
    whole = b"".join(pieces).decode("utf-8", "replace")
    previous = 0
    for i in range(len(pieces)):
        data = b"".join(pieces[: i + 1])
        last = i == len(pieces) - 1
        known = len(whole) if last else settled_length(data)
        for end in range(previous + 1, known + 1):
            found = [s for s in stop if whole[:end].endswith(s)]
            if found and i >= unchecked:
                longest = max(found, key=len)
                return list(range(i + 1)), whole[: end - len(longest)], longest
        previous = known
    return list(range(len(pieces))), whole, None


def settled_length(data: bytes) -> int:
    """Characters of ``data`` that no further byte can change."""
    for cut in range(1, 4):
        tail = data[len(data) - cut :] if cut <= len(data) else b""
        if tail and is_unfinished(tail):
            return len(data[: len(data) - cut].decode("utf-8", "replace"))
    return len(data.decode("utf-8", "replace"))


def is_unfinished(tail: bytes) -> bool:
    """Whether ``tail`` is a proper beginning of some character's bytes."""
    try:
        tail.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data" and error.start == 0
    return False


# Half the bytes drawn are from sequences that straddle tokens, or nearly are UTF-8.
interesting = st.sampled_from(
    [b"a", b"b", b" ", "é".encode(), "€".encode(), "😀".encode(), b"\xf0\x9f", b"\xe2\x82", b"\xff"]
)
data = st.lists(st.one_of(interesting, st.binary(max_size=3)), max_size=12).map(b"".join)


@st.composite
def tokenised(draw: st.DrawFn) -> list[bytes]:
    """Random bytes in random pieces, empty ones (special tokens) among them."""
    whole = draw(data)
    cuts = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=10)))
    return [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


stops = st.lists(st.text(alphabet="ab é€😀�", min_size=1, max_size=4), max_size=3).map(tuple)


# -- text -----------------------------------------------------------------------------------------------


def test_a_token_is_released_as_soon_as_its_text_is_whole() -> None:
    events = run([b"Hel", b"lo", b" world"])
    assert texts(events) == ["Hel", "lo", " world", ""]
    assert [len(event.tokens) for event in events] == [1, 1, 1, 0]


def test_fault_49_a_character_split_over_tokens_waits_for_its_last_byte() -> None:
    """ferrox#124, exo#1691, vllm-mlx#109, dynamo#12688."""
    events = run([bytes([byte]) for byte in "😀!".encode()])
    assert texts(events) == ["", "", "", "😀", "!", ""]
    assert [len(event.tokens) for event in events] == [0, 0, 0, 4, 1, 0]


def test_fault_49_an_invalid_byte_is_released_at_once_and_an_unfinished_one_at_the_end() -> None:
    assert texts(run([b"a", b"\xff", b"b"])) == ["a", "\ufffd", "b", ""]
    assert texts(run([b"a", b"\xf0\x9f", b"\x98"])) == ["a", "", "", "\ufffd"]


@settings(max_examples=100)
@given(tokenised())
def test_fault_50_any_bytes_in_any_tokens_decode_as_the_whole(pieces: list[bytes]) -> None:
    """vllm#17448, vllm#19449, vllm#24159."""
    ids, text, _ = final(run(pieces))
    assert text == b"".join(pieces).decode("utf-8", "replace")
    assert ids == list(range(len(pieces)))


@given(st.lists(st.integers(0, 6), max_size=6).map(sorted))
def test_fault_51_spaces_survive_any_chunking(cuts: list[int]) -> None:
    """lmdeploy#992, TRT-LLM#14312."""
    text = b" a    b"
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert "".join(texts(run(pieces))) == " a    b"


@settings(max_examples=100)
@given(tokenised(), stops)
def test_fault_52_and_47_each_event_is_whole_tokens_with_exactly_their_text(
    pieces: list[bytes], stop: tuple[str, ...]
) -> None:
    """vllm#30099 (the stream misses tokens of the final text); vllm#45636, #36830, #51641 (text and ids
    out of step)."""
    events = run(pieces, stop)
    released = [token.token_id for event in events for token in event.tokens]
    assert released == list(range(len(released)))
    assert all(token.logprob == -token.token_id for event in events for token in event.tokens)
    for event in events:
        own = b"".join(pieces[token.token_id] for token in event.tokens).decode("utf-8", "replace")
        assert own == event.text if event.stopped is None else own.startswith(event.text)


def test_a_special_token_has_no_text_and_is_released_alone() -> None:
    events = run([b"a", b"", b"b"])
    assert [len(event.tokens) for event in events] == [1, 1, 1, 0]


@pytest.mark.parametrize(
    ("prompt", "pieces", "text"),
    [
        ([b"a", "😀".encode()[:2]], ["😀".encode()[2:], b"b"], "😀b"),
        (["😀".encode()[:1], "😀".encode()[1:3]], ["😀".encode()[3:]], "😀"),
        (["😀".encode()], [b"b"], "b"),
        ([b"a\xf0\x9f"], [b"b"], "\ufffdb"),
        ([b"a\xf0\x9f"], [], ""),
        ([b"a\xf0\x9f"], [b""], "\ufffd"),
    ],
)
def test_the_completion_finishes_a_character_that_the_prompt_began(
    prompt: list[bytes], pieces: list[bytes], text: str
) -> None:
    assert "".join(texts(run(pieces, prompt=prompt))) == text


@given(tokenised(), tokenised())
def test_prompt_text_and_completion_text_make_the_whole(prompt: list[bytes], pieces: list[bytes]) -> None:
    before = b"".join(prompt)
    whole = (before + b"".join(pieces)).decode("utf-8", "replace")
    if pieces:
        assert "".join(texts(run(pieces, prompt=prompt))) == whole[settled_length(before) :]


# -- stop strings ---------------------------------------------------------------------------------------


def test_fault_46_a_stop_string_over_three_tokens_never_shows() -> None:
    """vllm#3572, #3573, #3574, #2577, #3672; mlx-knife#68."""
    events = run([b"ABC", b"xDEF", b"GHI", b"JKL"], ("DEFGHIJ",))
    assert texts(events) == ["ABC", "", "", "x", ""]
    assert [len(event.tokens) for event in events] == [1, 0, 0, 3, 0]
    assert events[3].stopped == "DEFGHIJ"


def test_fault_46_what_only_began_like_a_stop_string_is_released() -> None:
    events = run([b"ABC", b"DEF", b"GHX", b"Y"], ("DEFGHIJ",))
    assert texts(events) == ["ABC", "", "DEFGHX", "Y", ""]


def test_the_end_of_the_request_releases_a_begun_stop_string() -> None:
    assert texts(run([b"ABC", b"DEF"], ("DEFGHIJ",))) == ["ABC", "", "DEF"]


def test_the_beginning_of_a_stop_string_is_found_inside_a_failed_one() -> None:
    assert texts(run([b"a", b"a", b"a", b"b"], ("aab",))) == ["", "", "a", "", ""]


@pytest.mark.parametrize("pieces", [[b"xabcd"], [b"xabc", b"d"], [b"x", b"a", b"b", b"c"]])
def test_the_match_that_ends_first_wins_however_the_text_is_cut(pieces: list[bytes]) -> None:
    _, text, stopped = final(run(pieces, ("abcd", "bc")))
    assert (text, stopped) == ("xa", "bc")


def test_of_two_matches_that_end_together_the_longer_wins() -> None:
    assert final(run([b"xab", b"c"], ("bc", "abc", "c")))[1:] == ("x", "abc")


def test_a_stop_string_before_min_tokens_is_text() -> None:
    assert final(run([b"a", b"END", b"b", b"END", b"c"], ("END",), unchecked=3)) == (
        [0, 1, 2, 3],
        "aENDb",
        "END",
    )


def test_a_stop_string_that_ends_after_min_tokens_counts_from_its_beginning() -> None:
    assert final(run([b"xE", b"N", b"D", b"c"], ("END",), unchecked=2)) == ([0, 1, 2], "x", "END")


def test_a_match_that_does_not_count_can_overlap_one_that_does() -> None:
    assert final(run([b"a", b"a", b"a", b"b"], ("aa",), unchecked=2)) == ([0, 1, 2], "a", "aa")


def test_a_replacement_character_at_the_end_can_complete_a_stop_string() -> None:
    assert final(run([b"a", b"\xf0"], ("a\ufffd",))) == ([0, 1], "", "a\ufffd")


def test_a_token_after_the_stop_is_refused() -> None:
    detokenizer = Detokenizer(Pieces([b"a"]), ("a",), ())
    detokenizer.push(TokenLogprob(0, 0.0, 0.0))
    with pytest.raises(RuntimeError, match="after the stop"):
        detokenizer.push(TokenLogprob(0, 0.0, 0.0))


@settings(max_examples=300)
@given(tokenised(), stops, st.integers(0, 6))
def test_any_tokens_and_stop_strings_equal_the_whole_text_reference(
    pieces: list[bytes], stop: tuple[str, ...], unchecked: int
) -> None:
    assert final(run(pieces, stop, unchecked)) == expected(pieces, stop, unchecked)


@settings(max_examples=100)
@given(tokenised(), stops)
def test_no_released_text_can_still_become_part_of_a_stop_string(
    pieces: list[bytes], stop: tuple[str, ...]
) -> None:
    """And the inverse: whatever cannot, is out (nothing is held longer than it must be)."""
    events = run(pieces, stop)
    out = ""
    released = 0
    for i, event in enumerate(events[:-1]):
        if event.stopped is not None:
            break
        out += event.text
        released += len(event.tokens)
        data = b"".join(pieces[: i + 1])
        known = data.decode("utf-8", "replace")[: settled_length(data)]
        begun = max((n for s in stop for n in range(1, len(s)) if known.endswith(s[:n])), default=0)
        assert len(out) <= len(known) - begun
        for count in range(released + 1, i + 2):
            part = b"".join(pieces[:count])
            whole_characters = not any(is_unfinished(part[-n:]) for n in range(1, min(3, len(part)) + 1))
            assert not (whole_characters and settled_length(part) <= len(known) - begun)


def test_time_is_linear_even_when_everything_is_held() -> None:
    """20,000 tokens that never end between two characters, then as many inside a begun stop string."""
    euro = "€".encode()
    started = time.process_time()
    events = run([euro[:1], *[euro[1:] + euro[:1]] * 20_000])
    assert len(events[-1].text) == 20_001
    events = run([b"a"] * 20_000, ("a" * 20_000 + "b",))
    assert events[-1].text == "a" * 20_000
    assert time.process_time() - started < 5.0  # linear takes 0.1 s, quadratic minutes
