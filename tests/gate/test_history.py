"""The history: one file, one table a kind of fact, and what it shows."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from servegate.cli.main import exit_code
from servegate.errors import UsageError
from servegate.facts import Facts, Sample, WorkloadFacts
from servegate.fingerprint import Fingerprint
from servegate.history import MIGRATIONS, append, courses
from servegate.record import Commit


def facts(
    day: int,
    p95: float = 30.0,
    *,
    tokens: float = 812,
    machine: str = "a",
    suite: str = "support",
    complete: bool = True,
    created: str | None = None,
) -> Facts:
    return Facts(
        suite=suite,
        suite_digest="s",
        prompt_set_digest="p",
        created=created or f"2026-10-{day:02}T00:00:00Z",
        commit=Commit(sha=f"{day:040x}", dirty=day == 2),
        fingerprint=Fingerprint(machine={"cpu": machine}, software={"engine": "e 1"}, served={}),
        workloads={
            "latency": WorkloadFacts(
                numerics="native",
                offered={},
                metrics={
                    "completion_tokens": Sample(value=tokens, n=8),
                    "decode_p95": Sample(value=p95, n=100),
                    "ttft_p99": Sample(value=None, n=8, note="too few"),
                },
                finish_reasons={"stop": 8},
            )
        },
        complete=complete,
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "new" / "history.sqlite"


def course(file: Path, metric: str, suite: str = "support") -> list[float]:
    return [p.value for c in courses(file, suite) if c.metric == metric for p in c.points]


def test_runs_come_back_in_the_order_of_time_without_what_has_no_value(file: Path) -> None:
    for day in (3, 1, 2):
        append(file, facts(day, 30.0 + day))
    found = courses(file, "support")
    assert [c.metric for c in found] == ["completion_tokens", "decode_p95"]
    assert [p.value for p in found[1].points] == [31.0, 32.0, 33.0]
    assert [p.dirty for p in found[1].points] == [False, True, False]


def test_the_same_run_twice_is_kept_once(file: Path) -> None:
    append(file, facts(1, 30.0))
    append(file, facts(1, 30.0))
    assert course(file, "decode_p95") == [30.0]
    with closing(sqlite3.connect(file)) as database:
        assert database.execute("SELECT count(*) FROM finish_reasons").fetchone() == (1,)
        assert database.execute("SELECT count(*) FROM fingerprints").fetchone() == (2,)


def test_times_of_two_machines_are_two_courses_and_exact_metrics_are_one(file: Path) -> None:
    append(file, facts(1, 30.0, machine="a"))
    append(file, facts(2, 60.0, machine="b"))
    timed = [c for c in courses(file, "support") if c.metric == "decode_p95"]
    assert [[p.value for p in c.points] for c in timed] == [[30.0], [60.0]]
    assert len([c for c in courses(file, "support") if c.metric == "completion_tokens"]) == 1


def test_suites_do_not_mix_and_interrupted_runs_are_not_kept(file: Path) -> None:
    append(file, facts(1))
    append(file, facts(2, suite="other"))
    append(file, facts(3, complete=False))
    assert course(file, "decode_p95") == [30.0]


def test_slow_drift_is_found_where_it_began(file: Path) -> None:
    for day in range(1, 21):
        append(file, facts(day, (30.0 if day <= 10 else 31.5) + day % 3 / 10))
    (change,) = next(c for c in courses(file, "support") if c.metric == "decode_p95").changes
    assert change.index == 10
    assert change.after > change.before


def test_an_accepted_change_is_no_finding(file: Path) -> None:
    for day in range(1, 21):
        append(file, facts(day, 30.0 if day <= 10 else 40.0), "new model" if day == 11 else None)
    assert next(c for c in courses(file, "support") if c.metric == "decode_p95").changes == ()


def test_a_file_is_brought_to_this_version_and_a_newer_one_is_refused(file: Path) -> None:
    append(file, facts(1))
    with closing(sqlite3.connect(file)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        database.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    with pytest.raises(UsageError, match="a history of version 2, and this servegate reads up to 1"):
        append(file, facts(2))


def test_what_is_no_history_is_one_clear_line(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a database, and longer than any header of one would be\n" * 20)
    with pytest.raises(UsageError, match="not usable as a history: file is not a database"):
        append(text, facts(1))
    assert text.read_text().startswith("not a database")
    with pytest.raises(UsageError, match="cannot be opened as a history"):
        append(tmp_path, facts(1))
    with pytest.raises(UsageError, match="no such file"):
        courses(tmp_path / "none", "support")


def test_a_run_that_cannot_be_written_leaves_nothing_of_itself(file: Path) -> None:
    append(file, facts(1))
    with closing(sqlite3.connect(file)) as database:
        database.execute("DROP TABLE fingerprints")
    with pytest.raises(UsageError, match="no such table"):
        append(file, facts(2))
    assert course(file, "decode_p95") == [30.0]


# --- the command


@pytest.fixture
def suite(tmp_path: Path) -> str:
    (tmp_path / "prompts.yaml").write_text("version: 1\nname: p\nprompts: [{id: a, text: Hello}]\n")
    path = tmp_path / "suite.yaml"
    path.write_text(
        "version: 1\nname: support\ntarget: {kind: embedded, model: m}\nprompts: {set: prompts.yaml}\n"
        "workloads: {latency: {kind: closed}}\npolicy: {decode_p95: {change: 5%}}\n"
    )
    return str(path)


def test_it_shows_the_metrics_that_gate_and_where_they_moved(
    file: Path, suite: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for day in range(1, 21):
        append(file, facts(day, 30.0 if day <= 10 else 33.0), "quarterly\x1b[31m" if day == 20 else None)
    assert exit_code(["history", suite, "--history", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("latency.decode_p95, 20 runs on a-")
    assert len(lines) == 21
    assert lines[1] == f"  2026-10-01 {'0' * 12:13} {'30 ms':>16} {'#' * 27}"
    assert lines[2].split()[1].endswith("+")
    assert lines[11].endswith("moved 30 ms -> 33 ms (+10 %)")
    assert lines[20].endswith("accepted: quarterly")


def test_any_metric_can_be_asked_for(file: Path, suite: str, capsys: pytest.CaptureFixture[str]) -> None:
    append(file, facts(1))
    assert exit_code(["history", suite, "--history", str(file), "--metric", "completion_tokens"]) == 0
    assert "812 tokens" in capsys.readouterr().out
    assert exit_code(["history", suite, "--history", str(file), "--metric", "ttft_p50"]) == 3
    assert "no run of support with ttft_p50" in capsys.readouterr().err


def test_no_history_is_a_usage_error_that_says_how_to_start_one(
    tmp_path: Path, suite: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["history", suite, "--history", str(tmp_path / "none")]) == 2
    assert "servegate check --history" in capsys.readouterr().err
