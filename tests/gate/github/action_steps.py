"""The Action as the runner runs it: its shell steps by bash, in a sandbox, with files and variables.

Nested actions are not run: what they are given is looked at instead.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from post_runs import outputs

ROOT = Path(__file__).parents[3]
ACTION = ROOT / ".github/actions/servegate/action.yml"


def action() -> dict[str, Any]:
    return dict(yaml.safe_load(ACTION.read_text()))


@dataclass
class Sandbox:
    """One use of the Action in a job."""

    folder: Path
    inputs: dict[str, str]
    servegate: str
    """Python that stands for the console script; its arguments are in ``sys.argv[1:]``."""
    environment: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    log: str = ""

    def __post_init__(self) -> None:
        self.workspace, self.temp = self.folder / "workspace", self.folder / "temp"
        tools = self.folder / "tools"
        for made in (self.workspace, self.temp, tools):
            made.mkdir()
        program = self.folder / "console_script.py"
        program.write_text(self.servegate)
        _script(
            tools / "python3",
            f"""
            [ "$1 $2" = "-m venv" ] || exit 9
            mkdir -p "$3/bin"
            printf '#!/bin/bash\\nprintf "%%s\\\\n" "$@" > "{self.folder}/pip"\\n' > "$3/bin/python"
            printf '#!/bin/bash\\nexec "{sys.executable}" "{program}" "$@"\\n' > "$3/bin/servegate"
            chmod +x "$3/bin/python" "$3/bin/servegate"
            """,
        )
        self.path = f"{tools}:{os.environ['PATH']}"

    def run(self) -> int:
        """Every step of the mode, in order; the exit code of the first that fails."""
        for index, step in enumerate(action()["runs"]["steps"]):
            condition = step.get("if", "")
            if "inputs.mode" in condition and f"inputs.mode == '{self.inputs['mode']}'" not in condition:
                continue
            if "run" in step:
                code = self._shell(step, step.get("id", str(index)))
                if code:
                    return code
        return 0

    def expand(self, text: str) -> str:
        """``${{ inputs.x }}`` and its like, as the runner fills them in: never within ``run``."""

        def value(found: re.Match[str]) -> str:
            match found[1].split("."):
                case ["inputs", name]:
                    return self.given(name)
                case ["steps", step, "outputs", name]:
                    return self.outputs.get(step, {}).get(name, "")
            raise ValueError(found[0])

        return re.sub(r"\$\{\{ ([\w.-]+) \}\}", value, text)

    def given(self, name: str) -> str:
        return self.inputs.get(name, action()["inputs"][name].get("default", ""))

    def _shell(self, step: dict[str, Any], name: str) -> int:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"]
        script, output = self.folder / f"{name}.sh", self.folder / f"{name}.out"
        script.write_text(step["run"])
        output.touch()
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=self.workspace,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
            env={
                "PATH": self.path,
                "GITHUB_ACTION_PATH": str(ACTION.parent),
                "GITHUB_WORKSPACE": str(self.workspace),
                "RUNNER_TEMP": str(self.temp),
                **self.environment,
                "GITHUB_OUTPUT": str(output),
                **{key: self.expand(value) for key, value in step.get("env", {}).items()},
            },
        )
        self.log += done.stdout + done.stderr
        self.outputs[name] = outputs(output.read_text())
        return done.returncode


def _script(path: Path, text: str) -> None:
    path.write_text("#!/bin/bash\nset -e\n" + "\n".join(line.strip() for line in text.strip().splitlines()))
    path.chmod(0o755)
