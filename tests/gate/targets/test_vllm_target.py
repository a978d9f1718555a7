"""A vLLM server as a target, over real sockets: what is sent, what is recorded, what goes wrong."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from vllm_server import MODEL, Behaviour, vllm_server

from servegate.cli.main import exit_code
from servegate.errors import MeasurementError, UsageError
from servegate.files import read_record
from servegate.plan import ForcedCompletion, Plan, at_url, make_plan
from servegate.record import RequestRecord, WorkloadRecord
from servegate.suite.loading import load_suite
from servegate.targets.base import open_target

SUITE = """\
version: 1
name: support
target: {{kind: vllm, url: "{url}", model: {model}{more}}}
sampling: {{max_tokens: 8, seed: 3, stop: ["END"]}}
prompts: {{set: prompts.yaml, chat: {chat}}}
workloads:
  behaviour: {{kind: closed, concurrency: 2}}
  latency: {{kind: closed, concurrency: 2, numerics: native, repeat: 2, warmup: 1}}
policy:
  completion_tokens: {{change: 5%}}
"""
PROMPTS = """\
version: 1
name: support
prompts:
  - {id: a, text: "Hello?"}
  - {id: b, text: "Anybody?"}
  - {id: c, text: "Where?"}
"""


def plan_for(
    folder: Path,
    url: str,
    *,
    chat: bool = True,
    model: str = MODEL,
    more: str = "",
    forced: dict[str, ForcedCompletion] | None = None,
) -> Plan:
    suite = SUITE.format(url=url, model=model, more=more, chat=str(chat).lower())
    (folder / "suite.yaml").write_text(suite)
    (folder / "prompts.yaml").write_text(PROMPTS)
    return make_plan(load_suite(folder / "suite.yaml"), forced or {})


def measured(plan: Plan, workload: int = 0) -> WorkloadRecord:
    target = open_target(plan)
    try:
        return target.measure(plan.workloads[workload], lambda *said: None)
    finally:
        target.close()


def by_id(record: WorkloadRecord, round_: int = 0) -> dict[str, RequestRecord]:
    return {request.id: request for request in record.rounds[round_].requests}


@pytest.mark.parametrize("chat", [True, False])
def test_every_request_is_recorded_with_its_tokens_and_times(tmp_path: Path, chat: bool) -> None:
    with vllm_server() as server:
        record = measured(plan_for(tmp_path, server.url, chat=chat))
    requests = by_id(record)
    assert set(requests) == {"a", "b", "c"}
    for request in requests.values():
        assert request.error is None
        assert len(request.token_ids or ()) == len(request.logprobs or ()) == len(request.arrivals_ns) == 6
        assert request.finish_reason == "length"
        assert request.usage is not None
        assert (request.usage.completion_tokens, request.usage.cached_tokens) == (6, None)
        stamps = [request.scheduled_ns, request.sent_ns, *request.arrivals_ns, request.ended_ns]
        assert stamps == sorted(stamps)
    assert record.offered == {"kind": "closed", "concurrency": "2", "requests": "3"}
    assert record.rounds[0].load is None


def test_every_sampling_field_is_sent(tmp_path: Path) -> None:
    with vllm_server() as server:
        measured(plan_for(tmp_path, server.url))
    body = server.bodies[0]
    assert body["messages"] == [{"role": "user", "content": "Hello?"}]
    assert {name: body[name] for name in ("model", "stream", "max_tokens", "seed", "stop")} == {
        "model": MODEL,
        "stream": True,
        "max_tokens": 8,
        "seed": 3,
        "stop": ["END"],
    }
    neutral = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    assert [body[name] for name in neutral] == [0, 1, 0, 0, 1]
    assert [body[n] for n in ("presence_penalty", "frequency_penalty", "min_tokens")] == [0, 0, 0]
    assert body["ignore_eos"] is False


def test_each_round_has_a_prefix_cache_of_its_own(tmp_path: Path) -> None:
    with vllm_server() as server:
        measured(plan_for(tmp_path, server.url), workload=1)
    salts = [body["cache_salt"] for body in server.bodies]
    rounds = [salts[0:3], salts[3:6], salts[6:9]]
    assert [len(set(salts)) for salts in rounds] == [1, 1, 1]
    assert len({salts[0] for salts in rounds}) == 3


def test_logprobs_are_asked_for_where_answers_are_compared_and_not_where_time_is_taken(
    tmp_path: Path,
) -> None:
    with vllm_server() as server:
        plan = plan_for(tmp_path, server.url)
        measured(plan, workload=0)
        exact, server.bodies[:] = list(server.bodies), []
        measured(plan, workload=1)
    assert all(body["logprobs"] is True for body in exact if body.get("stream"))
    assert not any("logprobs" in body for body in server.bodies)


def test_warm_up_rounds_are_sent_and_not_recorded(tmp_path: Path) -> None:
    with vllm_server() as server:
        record = measured(plan_for(tmp_path, server.url), workload=1)
    assert len(server.bodies) == 9
    assert len(record.rounds) == 2


def test_the_base_s_completions_are_scored_by_teacher_forcing(tmp_path: Path) -> None:
    with vllm_server() as server:
        first = by_id(measured(plan_for(tmp_path, server.url)))
    ids = tuple(first["a"].token_ids or ())
    forced = {"a": ForcedCompletion(prompt_id="a", completion_ids=ids)}
    with vllm_server(Behaviour(shift=-0.25, tokens=2)) as server:
        record = measured(plan_for(tmp_path, server.url, forced=forced))
    score = next(score for score in record.forced if score.prompt_id == "a")
    assert tuple(score.completion_ids) == ids
    base = first["a"].logprobs or ()
    assert [round(h - b, 9) for h, b in zip(score.logprobs, base, strict=True)] == [-0.25] * len(ids)


def test_where_no_completion_is_stored_the_server_scores_its_own(tmp_path: Path) -> None:
    """So that a later head's scores are held against scores: other kernels generate than score."""
    with vllm_server(Behaviour(scoring_shift=-0.125)) as server:
        plan = plan_for(tmp_path, server.url)
        record, timed = measured(plan), measured(plan, workload=1)
    assert {score.prompt_id for score in record.forced} == {"a", "b", "c"}
    generated = by_id(record)["a"].logprobs or ()
    scored = record.forced[0].logprobs
    assert [round(s - g, 9) for s, g in zip(scored, generated, strict=True)] == [-0.125] * 6
    assert timed.forced == ()


def test_the_fingerprint_is_what_the_server_tells(tmp_path: Path) -> None:
    with vllm_server() as server:
        plan = plan_for(tmp_path, server.url)
        target = open_target(plan)
        assert target.fingerprint().software["engine"] == "unknown"
        target.measure(plan.workloads[0], lambda *said: None)
        fingerprint = target.fingerprint()
        target.close()
    assert fingerprint.software["engine"] == "vllm 0.32.0"
    served = {
        "model": MODEL,
        "engine.block_size": "16",
        "engine.num_blocks": "128",
        "engine.prefix_cache": "True",
        "engine.max_model_len": "512",
        "model_digest": "unknown",
        "sampling.max_tokens": "8",
    }
    assert served.items() <= fingerprint.served.items()
    assert "server" not in fingerprint.machine  # this machine serves itself


def test_another_machine_is_known_by_its_host_or_by_the_name_it_is_given(tmp_path: Path) -> None:
    far = "http://gpu-7.example.org:8000"
    (by_host, named, other) = (
        open_target(plan_for(tmp_path, far, more=more)).fingerprint()
        for more in ("", ', machine: "2x H200"', ', machine: "8x L40"')
    )
    assert by_host.machine["server"] == "gpu-7.example.org"
    assert by_host.machine["cpu"] == by_host.machine["gpu"] == "unknown"
    assert named.hardware_key.startswith("2x-h200-")
    assert len({by_host.hardware_key, named.hardware_key, other.hardware_key}) == 3


def test_preemptions_of_a_round_are_counted(tmp_path: Path) -> None:
    with vllm_server(Behaviour(preempts=2)) as server:
        record = measured(plan_for(tmp_path, server.url), workload=1)
    assert [round_.counters for round_ in record.rounds] == [{"preemptions": 6}, {"preemptions": 6}]


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("cut", "the stream was cut after 2 tokens"),
        ("error", "the server says: EngineCore died"),
        ("refuse", "HTTP status 400: the prompt is too long"),
        ("redirect", "HTTP status 307: "),
        ("hang_up", "the connection failed: "),
    ],
)
def test_a_request_that_fails_is_a_failure_of_its_own_and_is_not_sent_again(
    tmp_path: Path, how: str, error: str
) -> None:
    with vllm_server(Behaviour(fails={"Anybody?": how})) as server:
        requests = by_id(measured(plan_for(tmp_path, server.url)))
    assert (requests["b"].error or "").startswith(error)
    assert requests["a"].error is None
    assert requests["c"].error is None
    assert len([body for body in server.bodies if body.get("stream")]) == 3


def test_ctrl_c_in_the_middle_of_a_round_leaves_the_workloads_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with vllm_server(Behaviour(fails={'"max_tokens": 4': "interrupt"})) as server:
        plan_for(tmp_path, server.url)
        suite = tmp_path / "suite.yaml"
        suite.write_text(suite.read_text().replace("numerics: native,", "numerics: native, max_tokens: 4,"))
        assert exit_code(["run", str(suite), "--out", str(tmp_path / "record.json")]) != 0
    record = read_record(tmp_path / "record.json")
    assert not record.complete
    assert [workload.name for workload in record.workloads] == ["behaviour"]
    assert record.fingerprint.software["engine"] == "vllm 0.32.0"


def test_a_round_in_which_everything_fails_is_no_measurement(tmp_path: Path) -> None:
    with vllm_server(Behaviour(fails={"?": "refuse"})) as server, pytest.raises(MeasurementError) as caught:
        measured(plan_for(tmp_path, server.url))
    assert str(caught.value) == (
        "workload 'behaviour': every request failed; the first: HTTP status 400: the prompt is too long"
    )


def test_a_server_behind_a_proxy_s_path_is_reached(tmp_path: Path) -> None:
    with vllm_server(Behaviour(prefix="/models/toy")) as server:
        record = measured(plan_for(tmp_path, f"{server.url}/v1"))
    assert by_id(record)["a"].error is None


def test_where_nothing_listens_the_url_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(MeasurementError) as caught:
            measured(plan_for(tmp_path, url))
    assert str(caught.value).startswith(f"{url}: no server answers (")
    assert str(caught.value).endswith("): start it, or correct target.url")


@pytest.mark.parametrize(
    ("behaviour", "asked", "said"),
    [
        (Behaviour(version=None), {}, "is no vLLM server: GET /version gave HTTP status 404 and no version"),
        (Behaviour(), {"model": "other"}, "serves toy, and not 'other'"),
        (Behaviour(key="k"), {}, "asks for an API key (HTTP status 401): set target.api_key_env"),
    ],
)
def test_a_server_that_cannot_be_measured_is_refused_in_one_line(
    tmp_path: Path, behaviour: Behaviour, asked: dict[str, Any], said: str
) -> None:
    with vllm_server(behaviour) as server, pytest.raises(UsageError) as caught:
        measured(plan_for(tmp_path, server.url, **asked))
    assert str(caught.value) == f"{server.url}: {said}"
    assert server.bodies == []


def test_the_key_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = ", api_key_env: THE_KEY"
    with vllm_server(Behaviour(key="secret")) as server:
        plan = plan_for(tmp_path, server.url, more=more)
        with pytest.raises(UsageError, match=r"target\.api_key_env: the environment has no THE_KEY"):
            open_target(plan)
        monkeypatch.setenv("THE_KEY", "sec\nret")
        with pytest.raises(UsageError, match="what THE_KEY holds cannot be sent in a header"):
            open_target(plan)
        monkeypatch.setenv("THE_KEY", "secret\n")  # as `cat key.txt` gives it
        assert by_id(measured(plan))["a"].error is None
    assert "secret" not in json.dumps(plan.model_dump(mode="json"))


def test_the_suite_in_the_documentation_loads(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "servers.md").read_text()
    (tmp_path / "suite.yaml").write_text(page.split("```yaml\n")[1].split("```")[0])
    (tmp_path / "prompts.yaml").write_text(PROMPTS)
    assert load_suite(tmp_path / "suite.yaml").suite.target.model == "my-model"


def test_a_plan_moves_to_another_url(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, "http://one:1")
    moved = at_url(plan, "https://two:2/v1/")
    assert moved.target.model_dump() == {**plan.target.model_dump(), "url": "https://two:2"}
    with pytest.raises(UsageError, match=r"^two: is no URL such as http://localhost:8000$"):
        at_url(plan, "two")
