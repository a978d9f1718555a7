"""Files that look like YAML: plain data with line numbers, or one line that says what is wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from servegate.errors import UsageError
from servegate.suite.yaml_reader import read_yaml


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("s.yaml")


def fault(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        read_yaml(path)
    return str(caught.value)


def fault_of(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return fault(path)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("on", "on"),
        ("no", "no"),
        ("true", True),
        ("12:30", "12:30"),
        ("1_000", "1_000"),
        ("007", "007"),
        ("0x1F", "0x1F"),
        ("2026-10-01", "2026-10-01"),
        ("1e-6", 1e-6),
        ("1e3", 1000.0),
        ("1.50", 1.5),
        ("-3", -3),
        ("~", None),
        ("", None),
        (".inf", ".inf"),
        ("!!str 3", "3"),
        ("'30'", "30"),
    ],
)
def test_plain_scalars_hold_no_surprise(here: Path, written: str, value: object) -> None:
    here.write_text(f"key: {written}\n")
    found = read_yaml(here).data["key"]
    assert (found, type(found)) == (value, type(value))


def test_every_value_knows_its_line(here: Path) -> None:
    here.write_text("a:\n  b: |\n    text\n  c:\n    - 1\n    - {d: 2}\n")
    document = read_yaml(here)
    assert document.line(("a", "b")) == 2
    assert document.line(("a", "c", 1, "d")) == 6
    assert document.line(("a", "missing")) == 1  # of what should hold it


def test_a_byte_order_mark_is_no_part_of_the_text(here: Path) -> None:
    here.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_yaml(here).data == {"a": 1}


def test_an_alias_repeats_a_value(here: Path) -> None:
    here.write_text("a: &shared [1, 2]\nb: *shared\n")
    assert read_yaml(here).data == {"a": [1, 2], "b": [1, 2]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "s.yaml: is empty"),
        ("# only a comment\n", "s.yaml: is empty"),
        ("a: 1\nb: 2\na: 3\n", "s.yaml:3: key 'a' is given twice (first on line 1)"),
        ("a:\n\tb: 1\n", "s.yaml:2: a tab stands where YAML wants spaces; indent with spaces"),
        ("a: 1\n---\nb: 2\n", "s.yaml:2: a second document starts here (---); one file holds one"),
        ("a: !!python/object/apply:os.system [id]\n",
         "s.yaml:1: tag '!!python/object/apply:os.system' is not allowed: these files are plain data"),
        ("a: 1\nb: !secret x\n", "s.yaml:2: tag '!secret' is not allowed: these files are plain data"),
        ("!!set {a, b}\n", "s.yaml:1: tag '!!set' is not allowed: these files are plain data"),
        ("a: 1\n3: b\n", "s.yaml:2: a key must be text; put it in quotes"),
        ("true: b\n", "s.yaml:1: a key must be text; put it in quotes"),
        ("? [a]\n: b\n", "s.yaml:1: a key must be text; put it in quotes"),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", "s.yaml:3: merge keys (<<) are not supported; write the values out"),
        ("a: *b\n", "s.yaml:1: is not valid YAML: found undefined alias 'b'"),
        ("a: [1,\n", "s.yaml:2: is not valid YAML: expected the node content, but found '<stream end>' "
         "(while parsing a flow node)"),
        ("a: 1\nb: \x07\n", "s.yaml:2: character U+0007 is not allowed"),
        ('a: "\\ud83d"\n', "s.yaml:1: text holds half of a surrogate pair"),
        ("a: 1\nb: 1e999\n", "s.yaml:2: 1e999 is not a finite number"),
        ("a: !!int x\n", "s.yaml:1: invalid literal for int() with base 10: 'x'"),
        ("a: &a [*a]\n", "s.yaml:1: is nested more than 64 levels deep"),
        ("[" * 70 + "]" * 70, "s.yaml:1: is nested more than 64 levels deep"),
        ("a:\n  " + "[" * 5000, "s.yaml:2: is nested more than 64 levels deep"),
    ],
)  # fmt: skip
def test_what_is_no_plain_data_is_one_line(here: Path, text: str, message: str) -> None:
    assert fault_of(here, text) == message


def test_numbers_too_long_for_python_are_refused(here: Path) -> None:
    assert fault_of(here, f"a: {'9' * 5000}\n").startswith("s.yaml:1: Exceeds the limit (4300")


def test_an_escape_beyond_unicode_is_refused(here: Path) -> None:
    assert fault_of(here, 'a: "\\UFFFFFFFF"\n').startswith("s.yaml: is not valid YAML: ")


@pytest.mark.parametrize("leaf", ["[x, x, x, x, x, x, x, x, x, x]", '"' + "x" * 5000 + '"'])
def test_aliases_that_multiply_are_stopped_before_memory_is_gone(here: Path, leaf: str) -> None:
    levels = [f"l0: &l0 {leaf}"]
    levels += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 10)]  # 10 ** 10 values
    message = fault_of(here, "\n".join(levels))
    assert message.endswith(": its aliases expand to far more than the file itself; write the values out")


def test_a_missing_file(here: Path) -> None:
    assert fault(here) == "s.yaml: no such file"


def test_a_directory(here: Path) -> None:
    here.mkdir()
    assert fault(here) == "s.yaml: is a directory, not a file"


def test_a_pipe_does_not_block(here: Path) -> None:
    os.mkfifo(here)
    assert fault(here) == "s.yaml: is a device or pipe, not a file"


def test_a_name_that_no_file_can_have() -> None:
    assert "no such file" in fault(Path("x" * 300)) or "cannot be read" in fault(Path("x" * 300))
    assert "cannot be read: embedded null byte" in fault(Path("a\0b"))


def test_a_file_that_is_not_utf8_names_the_line(here: Path) -> None:
    here.write_bytes("a: 1\nb: käse\n".encode("latin-1"))
    assert fault(here) == "s.yaml:2: is not UTF-8 text (byte 0xe4)"


def test_a_huge_file_is_not_read(here: Path) -> None:
    with here.open("wb") as file:
        file.truncate(2**40)  # sparse
    assert fault(here) == "s.yaml: is larger than 1 MiB; a large prompt set can be JSONL, one prompt a line"
