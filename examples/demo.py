"""`make demo`: the main job on a real model, passing first, then failing for a good reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path("examples/quickstart")
CHANGE = """\
A pull request makes the answers friendlier. A few words more in the prompt template:

  - Answer in one short sentence.
  + Answer in one short, friendly sentence and explain why.
"""


def check(suite: Path, out: str) -> int:
    print(f"$ servegate check {suite}", flush=True)
    command = [sys.executable, "-m", "servegate", "check", str(suite), "--out", out]
    return subprocess.run(command, check=False).returncode


def main() -> int:
    print("1. The suite as it stands, against the committed baselines.\n", flush=True)
    passed = check(EXAMPLE / "servegate.yaml", "servegate-out/before")
    if passed != 0:
        print(f"\nThis should have passed, and exited with {passed}: please report it with the output above.")
        return 1
    print(f"\n2. {CHANGE}", flush=True)
    failed = check(EXAMPLE / "pull-request.yaml", "servegate-out/after")
    if failed != 1:
        print(f"\nThis should have failed with exit code 1, and gave {failed}: please report it.")
        return 1
    print("\nThat red verdict is the demo. Next: `servegate init` in your own repository; README.md goes on.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
