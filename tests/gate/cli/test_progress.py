"""Progress on stderr: silent for two seconds, then a bar for a person or lines for a log."""

import io

import pytest

from servegate.progress import Bar, Lines, reporting

SECOND = 1_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def lines(clock: Clock) -> tuple[io.StringIO, Lines]:
    stream = io.StringIO()
    return stream, Lines(stream, clock, wall=lambda: "12:03:44")


def test_work_under_two_seconds_says_nothing(clock) -> None:
    stream, report = lines(clock)
    for done in range(5):
        clock.now = done * SECOND // 4
        report("latency", done, 4)
    assert stream.getvalue() == ""


def test_a_line_at_the_start_every_fifteen_seconds_and_at_the_end(clock) -> None:
    stream, report = lines(clock)
    for second in range(0, 41):
        clock.now = second * SECOND
        report("latency", second, 40)
    report("latency", 40, 40)
    report("behaviour", 0, 8)
    assert stream.getvalue().splitlines() == [
        "12:03:44 latency: 2 of 40",
        "12:03:44 latency: 17 of 40",
        "12:03:44 latency: 32 of 40",
        "12:03:44 latency: 40 of 40",
        "12:03:44 behaviour: 0 of 8",
    ]


def test_a_log_line_is_no_command_and_moves_no_cursor(clock) -> None:
    stream, report = lines(clock)
    clock.now = 3 * SECOND
    report("::error::x\r\n\x1b[2Jy", 1, 0)
    assert stream.getvalue() == "12:03:44 ::error::x y\n"


def test_bar_waits_two_seconds(clock, monkeypatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    bar = Bar(stream, clock)
    bar("latency", 1, 8)
    assert stream.getvalue() == ""
    clock.now = 3 * SECOND
    bar("latency [red]", 2, 8)
    bar.close()
    assert "latency [red]" in stream.getvalue()


@pytest.mark.parametrize(
    ("tty", "environment", "form"),
    [(True, {}, Bar), (True, {"CI": "true"}, Lines), (True, {"TERM": "dumb"}, Lines), (False, {}, Lines)],
)
def test_form_suits_the_stream(tty, environment, form, monkeypatch) -> None:
    for name in ("CI", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: tty, raising=False)
    with reporting(stream) as reporter:
        assert isinstance(reporter, form)
