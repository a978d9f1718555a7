"""Files: canonical, whole or not at all, and read with one clear line."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from arms import answer, behaviour, latency, record, request

from servegate import files
from servegate.errors import UsageError
from servegate.extract import facts
from servegate.files import (
    canonical,
    digest,
    read_facts,
    read_record,
    write_facts,
    write_record,
    write_text,
)  # fmt: skip
from servegate.record import RequestRecord, RunRecord
from servegate.series import PACK

RUN = record(behaviour(answer("a", [1, 2], text='né\u2028"')), latency(request(frame_tokens=[1, 2, 1, 1, 1])))


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "record.json"
    write_record(path, RUN)
    assert read_record(path) == RUN
    write_facts(tmp_path / "facts.json", facts(RUN))
    assert read_facts(tmp_path / "facts.json") == facts(RUN)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_large_record_is_packed_and_reads_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "record.json"
    monkeypatch.setattr(files, "READABLE_TOKENS", 1)
    write_record(path, RUN)
    first = json.loads(path.read_bytes())["workloads"][0]["rounds"][0]["requests"][0]
    assert isinstance(first["arrivals_ns"], str)
    assert read_record(path) == RUN


def test_canonical_text_is_sorted_stable_and_ends_in_a_newline(tmp_path: Path) -> None:
    text = canonical(facts(RUN))
    assert text.endswith("}\n")
    assert json.loads(text) == facts(RUN).model_dump(mode="json")
    assert list(json.loads(text)) == sorted(json.loads(text))
    shuffled = RUN.fingerprint.model_copy(update={"machine": dict(reversed(RUN.fingerprint.machine.items()))})
    assert digest(facts(RUN.model_copy(update={"fingerprint": shuffled}))) == digest(facts(RUN))
    assert '"completion_ids": [1, 2],' in text


VALID = canonical(facts(RUN))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (VALID[: len(VALID) // 2], "cut off or not JSON"),
        ("", "cut off or not JSON"),
        ("\x00\x01", "cut off or not JSON"),
        ("[]", "not a valid facts file: the file: "),
        (
            VALID.replace('"schema_version": 1', '"schema_version": 2'),
            "schema_version 2, and this servegate reads 1",
        ),
        (VALID.replace('"schema_version": 1,', ""), "no schema_version"),
        (VALID.replace('"value": 6.0', '"value": NaN', 1), "NaN or infinity"),
        (VALID.replace('"value": 6.0', '"value": 1e999', 1), "NaN or infinity"),
        (VALID.replace('"complete"', '"compleet"'), "compleet: unknown key"),
        (VALID.replace('"n": 1', '"n": -1', 1), "greater than or equal to 0"),
    ],
)
def test_an_unusable_file_gets_one_line_that_names_it(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "behaviour.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        read_facts(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_and_a_missing_file_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a directory"):
        read_record(tmp_path)
    with pytest.raises(UsageError, match="no such file"):
        read_record(tmp_path / "none.json")


def test_a_place_that_cannot_be_written_is_named_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(UsageError, match="cannot be written"):
        write_text(tmp_path / "file" / "record.json", "new")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="cannot be written"):
        write_text(tmp_path / "folder", "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "record.json"
    path.write_text("old")

    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["record.json"]


# Series ----------------------------------------------------------------------------------------------------


def rebuilt(**changes: object) -> RequestRecord:
    return RequestRecord.model_validate(request(ids=[1, 2, 3, 4, 5]).model_dump() | changes)


def test_a_series_is_a_sequence_and_equals_one() -> None:
    series = rebuilt().arrivals_ns
    assert series == tuple(series)
    assert series[1:] == list(series)[1:]
    assert series[0] == 100_000_000
    assert isinstance(series[0], int)
    assert hash(series) == hash(tuple(series))
    assert series != "text"
    with pytest.raises(ValueError, match="read-only"):
        series.array[0] = 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arrivals_ns": [2**62]}, "less than or equal"),
        ({"arrivals_ns": [1.5]}, "valid integer"),
        ({"arrivals_ns": "not base64"}, "not a packed row"),
        ({"arrivals_ns": "AAAA"}, "not a packed row"),  # three bytes
        ({"token_ids": [-1]}, "greater than or equal to 0"),
        ({"logprobs": [float("nan")] * 5}, "finite"),
        ({"logprobs": "AAAAAAAA+H8=" * 1}, "out of range, infinite or NaN"),
        ({"logprobs": [-1.0]}, "1 logprobs for 5 token ids"),
        ({"frame_tokens": [1]}, "1 frame_tokens for 5 arrivals"),
        ({"frame_tokens": [0] * 5}, "greater than or equal to 1"),
    ],
)
def test_rows_that_no_target_gives_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rebuilt(**changes)


def test_ids_are_unique_in_a_round_and_names_in_a_record() -> None:
    with pytest.raises(ValueError, match="two requests of one round have the id 'a'"):
        latency(request("a"), request("a"))
    with pytest.raises(ValueError, match="share a name: latency, latency"):
        record(latency(request()), latency(request()))


def test_packed_and_listed_json_are_one_record() -> None:
    packed = RunRecord.model_validate_json(RUN.model_dump_json(context=PACK))
    assert packed == RunRecord.model_validate_json(RUN.model_dump_json()) == RUN


def test_nan_in_a_row_of_numbers_is_named_by_its_place(tmp_path: Path) -> None:
    """The row may be a list or packed; the message speaks of the number, not of how a row can be written."""
    path = tmp_path / "record.json"
    write_record(path, record(behaviour(answer("a", [7], [-0.5]))))
    path.write_text(path.read_text().replace("[-0.5]", "[NaN]"))
    with pytest.raises(UsageError, match=r"requests\.0\.logprobs\.0: NaN or infinity") as caught:
        read_record(path)
    assert "[" not in str(caught.value)
