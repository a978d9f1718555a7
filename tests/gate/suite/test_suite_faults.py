"""One thing wrong in a suite: one line that says where it is and what to do."""

from __future__ import annotations

import pytest
from suites import SUITE, Write, changed, faults


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "numerics: native",
            "concurency: 4",
            "7: workloads.latency.concurency: unknown key; did you mean 'concurrency'?",
        ),
        (
            "model: smollm2-135m}",
            "model: m, engine: {block_sise: 1}}",
            "3: target.engine.block_sise: unknown key; did you mean 'block_size'?",
        ),
        (
            "  set: prompts.yaml",
            "  set: prompts.yaml\n  zzz: 1",
            "6: prompts.zzz: unknown key; known: chat, set, system, template, variables",
        ),
        (
            "floor: 20ms",
            "flor: 20ms",
            "9: policy.ttft_p95.flor: unknown key; did you mean 'floor'?",
        ),
        ("name: support\n", "", "1: name: is missing"),
        (", model: smollm2-135m", "", "3: target.model: is missing"),
        (
            "kind: embedded, model: smollm2-135m",
            "kind: triton, url: x",
            "3: target.kind: 'triton' is not supported; supported: 'embedded' or 'vllm'",
        ),
        ("kind: embedded, model: smollm2-135m", "model: m", "3: target.kind: is missing"),
        (
            "kind: embedded, model: smollm2-135m",
            "kind: vllm, model: m",
            "3: target.url: is missing",
        ),
        (
            "kind: embedded, model: smollm2-135m",
            "kind: vllm, model: m, url: 'localhost:8000'",
            "3: target.url: is no URL such as http://localhost:8000",
        ),
        (
            "kind: embedded, model: smollm2-135m",
            "kind: vllm, model: m, url: 'http://me:key@host'",
            "3: target.url: holds credentials; name the variable that holds them with api_key_env",
        ),
        (
            "kind: embedded, model: smollm2-135m",
            "kind: vllm, model: m, url: 'http://host:99999'",
            "3: target.url: Port out of range 0-65535",
        ),
        (
            "kind: embedded, model: smollm2-135m",
            "kind: vllm, model: m, url: 'http://host/v1?x=1'",
            "3: target.url: is not the root of a server: it has a query or a fragment",
        ),
        (
            "kind: closed, numerics: native",
            "kind: trace, file: x.csv",
            "7: workloads.latency.kind: 'trace' is not supported; supported: 'closed'",
        ),
        ("version: 1", "version: 2", "1: version: 2 is not supported; supported: 1"),
        (
            "numerics: native",
            "repeat: 0",
            "7: workloads.latency.repeat: should be greater than or equal to 1, found 0",
        ),
        (
            "numerics: native",
            "repeat: 1_000",
            "7: workloads.latency.repeat: expected a whole number, found '1_000'",
        ),
        (
            "numerics: native",
            "repeat: 1.5",
            "7: workloads.latency.repeat: expected a whole number, found 1.5",
        ),
        (
            "set: prompts.yaml",
            "set: prompts.yaml\n  chat: on",
            "6: prompts.chat: expected true or false, found 'on'",
        ),
        (
            "policy:",
            "pins: {torch: 2.10}\npolicy:",
            "8: pins.torch: expected text, found 2.1; put it in quotes",
        ),
        (
            "name: support",
            "name: Support Chat",
            "2: name: should match pattern '^[a-z0-9][a-z0-9._-]{0,63}$', found 'Support Chat'",
        ),
        (
            "  latency: {",
            "  a.b: {",
            "7: workloads.a.b: should match pattern '^[a-z0-9][a-z0-9_-]{0,63}$', found 'a.b'",
        ),
        (
            "change: 10%",
            "change: 5",
            "9: policy.ttft_p95.change: 5 without a unit reads as 500%; write 5% if meant so",
        ),
        (
            "change: 10%",
            "change: -5%",
            "9: policy.ttft_p95.change: '-5%' is negative; a tolerance or limit is zero or more",
        ),
        ("change: 10%, floor: 20ms", "floor: 20ms", "9: policy.ttft_p95: 'floor' needs 'change'"),
        (
            "floor: 20ms",
            "floor: 20",
            "9: policy.ttft_p95.floor: 20 does not fit, the metric is a duration: write it like 20ms or 1.5s",
        ),
        (
            "ttft_p95: {change: 10%, floor: 20ms}",
            "error_rate: {max: 20ms}",
            "9: policy.error_rate.max: 20ms does not fit, the metric is a share: write it like 5% or 0.05",
        ),
        (
            "ttft_p95: {change: 10%, floor: 20ms}",
            "completion_tokens: {max: 5%}",
            "9: policy.completion_tokens.max: 5% does not fit, "
            "the metric's unit is 'tokens': write the number alone",
        ),
        (
            "ttft_p95:",
            "ttft_p9:",
            "9: policy.ttft_p9: no metric or setting 'ttft_p9'; did you mean 'ttft_p95'?",
        ),
        (
            "ttft_p95:",
            "latncy.ttft_p95:",
            "9: policy.latncy.ttft_p95: no workload 'latncy'; did you mean 'latency'?",
        ),
        (
            "ttft_p95:",
            "latency.tft_p95:",
            "9: policy.latency.tft_p95: no metric 'tft_p95'; did you mean 'ttft_p95'?",
        ),
        (
            "ttft_p95: {change: 10%, floor: 20ms}",
            "inconclusve: fail",
            "9: policy.inconclusve: no metric or setting 'inconclusve'; did you mean 'inconclusive'?",
        ),
        (
            "policy:",
            "quality:\n  - {prompt: refnd, contains: x}\npolicy:",
            "9: quality[0].prompt: no prompt 'refnd' in prompts.yaml; did you mean 'refund'?",
        ),
        (
            "policy:",
            "quality:\n  - {prompt: refund, regex: '('}\npolicy:",
            "9: quality[0].regex: is not a regular expression: "
            "missing ), unterminated subpattern at position 0",
        ),
        (
            "policy:",
            "quality:\n  - {prompt: refund, json_schema: {type: objekt}}\npolicy:",
            "9: quality[0].json_schema: is not a JSON Schema: "
            "type: 'objekt' is not valid under any of the given schemas",
        ),
        (
            "policy:",
            "quality:\n  - {prompt: refund, json_schema: {$ref: 'http://x/y'}}\npolicy:",
            "9: quality[0].json_schema: $ref 'http://x/y' leaves the schema; "
            "only references that start with # are followed",
        ),
        (
            "policy:",
            "quality:\n  - {prompt: refund, contains: a, exact: b}\npolicy:",
            "9: quality[0]: give exactly one of contains, regex, exact, json_schema",
        ),
        (
            "policy:",
            "prices: {machine_hour: 0, currency: EUR, source: s, date: 2026-10-01}\npolicy:",
            "8: prices.machine_hour: should be greater than 0, found 0",
        ),
        (
            "policy:",
            "prices: {machine_hour: 1, currency: EUR, source: s, date: October}\npolicy:",
            "8: prices.date: expected a date such as 2026-10-01, found 'October'",
        ),
        (
            "policy:",
            "sampling: {temperature: .nan}\npolicy:",
            "8: sampling.temperature: expected a number, found '.nan'",
        ),
        (
            "policy:",
            "sampling: {min_tokens: 9, max_tokens: 8}\npolicy:",
            "8: sampling: min_tokens 9 is above max_tokens 8",
        ),
        (
            "set: prompts.yaml",
            "set: p.yaml",
            "5: prompts.set: no such file: 'p.yaml' (looked in .)",
        ),
        ("set: prompts.yaml", "set: .", "5: prompts.set: no such file: '.' (looked in .)"),
        (
            "set: prompts.yaml",
            f"set: {'x' * 5000}",
            f"5: prompts.set: no such file: '{'x' * 56}... (looked in .)",
        ),
        ("set: prompts.yaml", 'set: "a\\0b"', r"5: prompts.set: no such file: 'a\x00b' (looked in .)"),
        (
            "set: prompts.yaml",
            "set: /p.yaml",
            "5: prompts.set: '/p.yaml' is absolute; write it relative to the suite",
        ),
        (
            "set: prompts.yaml",
            "set: prompts.yaml\n  variables: {a: 1}",
            "4: prompts: 'variables' need a 'template'; without one, prompts are sent as they stand",
        ),
        (
            "set: prompts.yaml",
            "set: prompts.yaml\n  variables: {a: [1]}\n  template: prompts.yaml",
            "6: prompts.variables.a: expected text, a number, or true or false",
        ),
        (
            "set: prompts.yaml",
            "set: prompts.yaml\n  system: Be brief.\n  chat: false",
            "4: prompts: 'system' needs 'chat: true'; write it into the template otherwise",
        ),
    ],
)
def test_one_fault_is_one_line(write: Write, old: str, new: str, message: str) -> None:
    assert faults(write(changed(old, new))) == ["suite.yaml:" + message]


def test_several_faults_are_told_together_in_the_order_of_the_file(write: Write) -> None:
    text = changed("name: support\n", "name: 3\n")
    text = changed("numerics: native", "repeat: 0", text)
    text = changed("ttft_p95", "ttft_95", text)
    assert [line.split(": ")[0] for line in faults(write(text))] == [
        "suite.yaml:2",
        "suite.yaml:7",
        "suite.yaml:9",
    ]


def test_no_workload_is_nothing_measured(write: Write) -> None:
    text = changed("workloads:\n  latency: {kind: closed, numerics: native}\n", "workloads: {}\n")
    assert faults(write(text)) == ["suite.yaml:6: workloads: is empty"]


def test_a_key_that_would_break_the_line_is_quoted(write: Write) -> None:
    text = SUITE + '"a\\n::error::b": 1\n'
    assert faults(write(text))[0].startswith(r"suite.yaml:10: 'a\n::error::b': unknown key; known: name")
