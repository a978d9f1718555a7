"""`servegate ab` between two servers that run already: each arm at its own URL."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from vllm_server import Behaviour, VllmServer, vllm_server

from servegate.ab.record import read_ab_record
from servegate.cli.main import exit_code
from servegate.verdict import Row, State, Verdict

SUITE = """\
version: 1
name: support
target: {{kind: vllm, url: "{url}", model: toy}}
sampling: {{max_tokens: 32}}
prompts: {{set: prompts.yaml}}
workloads:
  behaviour: {{kind: closed, concurrency: 2}}
policy:
  completion_tokens: {{change: 5%}}
  token_ids: {{equal: true}}
  logprob_delta: {{max: 0.01}}
  kv_concurrency: {{change: 0%}}
  preemptions: {{max: 0}}
"""
TIMED = "  latency: {kind: closed, concurrency: 2, numerics: native}\n"
OPTIONS = ("--budget", "8s", "--launches", "2", "--out", "out")


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    prompts = "".join(f'  - {{id: p{i}, text: "Question {i}?"}}\n' for i in range(20))
    Path("prompts.yaml").write_text(f"version: 1\nname: support\nprompts:\n{prompts}")
    return Path("suite.yaml")


@pytest.fixture
def base(suite: Path) -> Iterator[VllmServer]:
    """The server that the suite names."""
    with vllm_server(Behaviour(tokens=12, scoring_shift=-0.05)) as server:
        suite.write_text(SUITE.format(url=server.url))
        yield server


def rows() -> dict[str, Row]:
    verdict = Verdict.model_validate_json(Path("out/verdict.json").read_text())
    return {row.metric: row for row in verdict.comparison.rows if row.gating}


def test_two_servers_alike_pass_and_both_were_measured(
    suite: Path, base: VllmServer, capsys: pytest.CaptureFixture[str]
) -> None:
    exact, policy = suite.read_text().split("policy:\n")
    suite.write_text(f"{exact}{TIMED}policy:\n{policy}  e2e_p95: {{change: 10000%}}\n")
    with vllm_server(Behaviour(tokens=12, scoring_shift=-0.05)) as head:
        assert exit_code(["ab", "suite.yaml", "--head-url", head.url, *OPTIONS]) == 0
        assert head.bodies
    found = rows()
    timed = found.pop("e2e_p95")
    assert timed.evidence is not None
    assert timed.evidence.blocks > 1
    assert timed.evidence.launches == 1  # clients were started twice, the servers once
    assert {name: row.state for name, row in found.items()} == dict.fromkeys(found, State.PASS)
    assert found["kv_concurrency"].base == 64.0
    assert (
        f"base is at {base.url}, head at {head.url}: no launch restarted"
        in capsys.readouterr().out.replace("\n", " ")
    )
    record = read_ab_record(Path("out/ab.json"))
    assert record.head.fingerprint.software["engine"] == "vllm 0.32.0"
    blocks = [block for launch in record.launches for block in launch.blocks]
    assert {block.role for block in blocks} == {"base", "head", "again"}
    assert all(block.load is None for block in blocks)


def test_what_the_head_s_server_changed_is_found_row_by_row(base: VllmServer) -> None:
    worse = Behaviour(tokens=20, shift=-0.5, scoring_shift=-0.05, num_blocks=96, preempts=1)
    with vllm_server(worse) as head:
        code = exit_code(["ab", "suite.yaml", "--base-url", base.url, "--head-url", head.url, *OPTIONS])
    found = rows()
    assert code == 1
    regressed = {name for name, row in found.items() if row.state is State.REGRESSED}
    assert regressed == {"completion_tokens", "token_ids", "logprob_delta", "kv_concurrency", "preemptions"}
    assert found["completion_tokens"].change == pytest.approx(8 / 12)
    assert found["logprob_delta"].head == pytest.approx(0.5)


@pytest.mark.slow
def test_a_server_whose_answers_vary_is_seen_to_vary(
    base: VllmServer, capsys: pytest.CaptureFixture[str]
) -> None:
    base.behaviour.varies = True
    assert exit_code(["ab", "suite.yaml", "--head-url", base.url, *OPTIONS]) == 0
    assert rows()["token_ids"].state is State.INCONCLUSIVE
    assert "behaviour: the target does not repeat itself" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("target", "url", "said"),
    [
        ("{kind: embedded, model: m}", "http://localhost:1", "it has no URL"),
        ('{kind: vllm, url: "http://localhost:1", model: m}', "localhost:8000", "is no URL such as"),
        ('{kind: vllm, url: "http://localhost:1", model: m}', "http://u:p@h", "holds credentials"),
    ],
)
def test_a_url_that_cannot_be_is_a_usage_error_of_its_arm(
    suite: Path, target: str, url: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = SUITE.format(url="http://localhost:1").splitlines()
    suite.write_text("\n".join([*text[:2], f"target: {target}", *text[3:]]) + "\n")
    assert exit_code(["ab", "suite.yaml", "--base-url", url, *OPTIONS]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert line.startswith("error: base: ")
    assert said in line
    assert not Path("out/verdict.json").exists()


def test_a_server_that_is_down_is_a_failed_measurement(
    base: VllmServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["ab", "suite.yaml", "--head-url", "http://127.0.0.1:1", *OPTIONS]) == 4
    assert "head: http://127.0.0.1:1: no server answers (" in capsys.readouterr().err
