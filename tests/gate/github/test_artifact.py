"""An artifact of a fork holds what the fork likes: everything but a sound record is refused in one line."""

from __future__ import annotations

import io
import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from github_fake import FakeGitHub
from post_runs import Job, record, zipped

from servegate.ab.record import AbRecord
from servegate.files import canonical
from servegate.github import artifact
from servegate.github.artifact import RefusedError, parse, read_archive, read_path

Post = Callable[..., int]
SOUND = canonical(record()).encode()


def archive(*entries: tuple[zipfile.ZipInfo | str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in entries:
            made.writestr(name, content)
    return buffer.getvalue()


def link() -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("record.json")
    info.external_attr = 0o120777 << 16
    return info


def changed(**more: object) -> bytes:
    return json.dumps(json.loads(SOUND) | more).encode()


def with_wall(text: str) -> bytes:
    return SOUND.replace(b'"wall_ns": 100', f'"wall_ns": {text}'.encode())


def test_a_sound_record_is_read_from_a_folder_a_file_and_an_archive(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_bytes(SOUND)
    (tmp_path / "a.zip").write_bytes(zipped(record()))
    for path in (tmp_path, tmp_path / "record.json", tmp_path / "a.zip"):
        assert read_path(path) == record()


def paired(tokens: int = 3) -> AbRecord:
    return AbRecord(
        base=record(), head=record(tokens), budget_ns=0, planned_launches=1, ended="nothing is timed"
    )


def test_paired_arms_are_judged_by_the_bases_policy(job: Job, post: Post, github: FakeGitHub) -> None:
    shutil.rmtree(job.base / "baselines")
    for tokens, code in ((3, 0), (6, 1)):
        job.measured(zipped(paired(tokens).model_dump_json().encode(), "ab.json"))
        assert post() == code
    assert "completion tokens doubled" in github.bodies[0]
    assert "measured on `test-" in github.bodies[0]


def test_paired_arms_of_another_suite_are_refused(job: Job, post: Post, github: FakeGitHub) -> None:
    other = paired().model_copy(update={"base": record(suite="other")})
    job.measured(zipped(other.model_dump_json().encode(), "ab.json"))
    assert post() == 4
    assert "a record of another suite" in github.bodies[0]


def test_of_two_records_in_a_folder_none_is_guessed(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_bytes(SOUND)
    (tmp_path / "ab.json").write_text("{}")
    with pytest.raises(RefusedError, match="holds both"):
        read_path(tmp_path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (archive(), "0 entries"),
        (archive(("record.json", SOUND), ("b", b"")), "2 entries"),
        (archive(("../record.json", SOUND)), "not a plain file named record.json"),
        (archive(("/record.json", SOUND)), "not a plain file named"),
        (archive(("record.json/", b"")), "not a plain file named"),
        (archive((link(), b"/etc/passwd")), "not a plain file named"),
        (archive(("record.json", b" " * 10**7)), "shrinks more than a record can"),
        (zipped(record())[:-40], "not a sound zip"),
        (b"PK\x05\x06", "not a sound zip"),
        (archive(("record.json", b"{")), "not a valid record"),
    ],
)
def test_what_is_not_one_plain_entry_is_refused(content: bytes, says: str) -> None:
    with pytest.raises(RefusedError, match=says):
        read_archive(content)


def test_a_size_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(artifact, "MAX_ARCHIVE", 100)
    with pytest.raises(RefusedError, match="larger than 100 bytes"):
        read_archive(zipped(record()))
    monkeypatch.setattr(artifact, "MAX_RECORD", 100)
    (tmp_path / "record.json").write_bytes(SOUND)
    with pytest.raises(RefusedError, match="larger than 100 bytes"):
        read_path(tmp_path)


def test_a_link_or_a_pipe_on_disk_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_bytes(SOUND)
    (tmp_path / "record.json").symlink_to(tmp_path / "real.json")
    with pytest.raises(RefusedError, match="not a plain file"):
        read_path(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RefusedError, match="not a plain file"):
        read_path(tmp_path / "pipe")
    with pytest.raises(RefusedError, match="No such file"):
        read_path(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (with_wall("NaN"), "json_invalid|finite"),
        (with_wall("1e999"), "finite|int"),
        (with_wall("9" * 5000), "int|too_long|json_invalid"),
        (changed(extra=1), "extra: extra_forbidden"),
        (changed(schema_version=2), "schema_version"),
        (changed(workloads=3), "workloads"),
        (b"[" * 10**5, "json_invalid"),
        (b'{"suite": "\xff"}', "json_invalid"),
        (b"", "json_invalid"),
        (canonical(record()).replace('"schema_version": 1,', "").encode(), "names no schema_version|missing"),
    ],
)
def test_conbench_1163_apify_87_ginkgo_514_what_the_schema_does_not_know_is_refused(
    content: bytes, says: str
) -> None:
    with pytest.raises(RefusedError, match=says) as refused:
        parse(content)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (zipped(b'{"verdict": "pass"}'), "the artifact is not a valid record"),
        (zipped(record(suite="other")), "the artifact is a record of another suite"),
        (b"no zip", "the artifact is not a sound zip"),
    ],
)
def test_tally_97_a_refused_artifact_is_red_and_replaces_an_older_green(
    job: Job, post: Post, github: FakeGitHub, content: bytes, says: str
) -> None:
    job.measured(record())
    assert post() == 0
    job.measured(content)
    assert post() == 4
    assert f"MEASUREMENT FAILED: {says}" in github.bodies[0]
    assert len(github.bodies) == 1
    assert github.states[-1] == "error"


def test_no_artifact_is_no_pass(job: Job, post: Post, github: FakeGitHub) -> None:
    assert post() == 4
    assert "MEASUREMENT FAILED" in github.bodies[0]
    assert "did the job that measures upload it" in github.bodies[0]


def test_a_verdict_in_the_artifact_is_not_asked(job: Job, post: Post, github: FakeGitHub) -> None:
    """A folder with a forged verdict beside a record of a regression: the record is judged."""
    out = job.folder / "out"
    out.mkdir()
    (out / "record.json").write_bytes(canonical(record(tokens=6)).encode())
    (out / "verdict.json").write_text('{"outcome": "pass"}')
    assert post("--artifact", str(out)) == 1


def test_run_gemini_cli_527_no_value_ends_its_output_early(tmp_path: Path) -> None:
    from post_runs import outputs

    from servegate.github.runner_files import write_outputs

    file = tmp_path / "output"
    value = "x\nEOF\nverdict=pass\nservegate-0<<"
    write_outputs({"GITHUB_OUTPUT": str(file)}, {"a": value, "b": "2"})
    assert outputs(file.read_text()) == {"a": value, "b": "2"}


def test_the_summary_is_appended_to_and_stays_below_its_limit(job: Job, post: Post) -> None:
    summary = job.folder / "summary.md"
    summary.write_text("# mine\n")
    job.measured(record())
    post()
    assert summary.read_text().startswith("# mine\n")
    summary.write_text("x" * 899_999)
    post()
    assert summary.stat().st_size < 2**20


def test_zappr_378_argo_diff_49_a_description_is_short_plain_text() -> None:
    from servegate.github.status import MAX_DESCRIPTION, description

    said = description("FAIL: " + "metric" * 60 + "🚀é\n")
    assert len(said) <= MAX_DESCRIPTION
    assert said.isascii()
    assert description("a\nb 🚀") == "a b ?"
