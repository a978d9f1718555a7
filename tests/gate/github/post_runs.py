"""A run of `servegate post` as the runner starts it: event, environment, checkout of the base, artifact."""

from __future__ import annotations

import io
import json
import subprocess
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import github_events as events
from github_fake import MERGE, REPOSITORY, FakeGitHub

from servegate.extract import facts
from servegate.files import canonical, write_facts
from servegate.fingerprint import Fingerprint
from servegate.record import RequestRecord, RoundRecord, RunRecord, Usage, WorkloadRecord
from servegate.suite.schema import Suite

SUITE = """\
version: 1
name: support
target: {kind: embedded, model: smollm2-135m}
prompts: {set: prompts.yaml}
workloads: {behaviour: {kind: closed}}
policy: {completion_tokens: {equal: true}}
"""
MARK = "<!-- servegate gate=default v=1"


def record(
    tokens: int = 3, *, suite: str = "support", text: str | None = None, prompt: str = "p0"
) -> RunRecord:
    """What a run measured: one prompt, answered with so many tokens."""
    request = RequestRecord(
        id=prompt,
        prompt_id=prompt,
        prompt_digest="d",
        scheduled_ns=0,
        sent_ns=0,
        arrivals_ns=tuple(range(1, tokens + 1)),
        ended_ns=tokens + 1,
        finish_reason="stop",
        token_ids=tuple(range(tokens)),
        text=text,
        logprobs=(-0.5,) * tokens,
        usage=Usage(prompt_tokens=5, cached_tokens=0, completion_tokens=tokens),
    )
    return RunRecord(
        suite=suite,
        suite_digest="s",
        prompt_set_digest="p",
        created="2026-10-13T00:00:00Z",
        fingerprint=Fingerprint(machine={"cpu": "test", "gpu": "none"}, software={}, served={}),
        workloads=(
            WorkloadRecord(
                name="behaviour",
                kind="closed",
                numerics="reference",
                offered={"concurrency": "1", "requests": "1"},
                rounds=(RoundRecord(wall_ns=100, requests=(request,)),),
            ),
        ),
    )


def zipped(content: RunRecord | bytes, name: str = "record.json") -> bytes:
    data = content if isinstance(content, bytes) else canonical(content).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return buffer.getvalue()


@dataclass
class Job:
    """One run, and what it left behind."""

    folder: Path
    github: FakeGitHub
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.base = self.folder / "base"
        self.base.mkdir()
        (self.base / "servegate.yaml").write_text(SUITE)
        (self.base / "prompts.yaml").write_text(
            "version: 1\nname: one\nprompts:\n  - id: p0\n    text: hello\n"
        )
        suite = Suite.model_validate({**_yaml(SUITE)})
        write_facts(self.base / "baselines/support/behaviour.json", facts(record(), suite))
        self.environment = {
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_RUN_ID": "77",
            "GITHUB_RUN_ATTEMPT": "1",
            "GITHUB_SHA": MERGE,
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_API_URL": self.github.url,
            "GITHUB_TOKEN": "ghs_secret",
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
            "GITHUB_OUTPUT": str(self.folder / "output"),
        }
        self.event("pull_request", events.pull_request())

    def event(self, name: str, payload: dict[str, Any]) -> None:
        path = self.folder / "event.json"
        path.write_text(json.dumps(payload))
        self.environment |= {"GITHUB_EVENT_NAME": name, "GITHUB_EVENT_PATH": str(path)}

    def measured(self, content: RunRecord | bytes, run: int = 77, name: str = "servegate") -> None:
        """Upload, as the job that measures does."""
        archive = content if isinstance(content, bytes) else zipped(content)
        self.github.artifacts.setdefault(run, []).append((name, archive))

    def commit_base(self) -> str:
        """The base checkout as a repository; returns its commit."""
        for arguments in (
            ["init", "-q"],
            ["add", "."],
            ["-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "base"],
        ):
            subprocess.run(["git", "-C", str(self.base), *arguments], check=True, timeout=60)
        head = subprocess.run(
            ["git", "-C", str(self.base), "rev-parse", "HEAD"],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return head.stdout.strip()

    @property
    def summary(self) -> str:
        path = self.folder / "summary.md"
        return path.read_text() if path.exists() else ""

    @property
    def outputs(self) -> dict[str, str]:
        return outputs(Path(self.environment["GITHUB_OUTPUT"]).read_text())


def outputs(text: str) -> dict[str, str]:
    """As the runner reads it: ``name=value``, or ``name<<delimiter`` up to that very line; the last wins."""
    found: dict[str, str] = {}
    lines = iter(text.split("\n"))
    for line in lines:
        name, mark, delimiter = line.partition("<<")
        if mark and "=" not in name:
            value = []
            for inner in lines:
                if inner == delimiter:
                    break
                value.append(inner)
            else:
                raise ValueError(f"no end of {name}")
            found[name] = "\n".join(value)
        elif "=" in line:
            name, _, value_text = line.partition("=")
            found[name] = value_text
    return found


def _yaml(text: str) -> dict[str, Any]:
    import yaml

    return dict(yaml.safe_load(text))
