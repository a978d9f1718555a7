"""What every kernel takes on every architecture, as a committed table (resources.json).

``python -m servegate_kernels.resources`` compiles what has changed and rewrites the table; it needs no GPU,
and two minutes for everything. A test holds the table to the sources by their digest, so that a kernel cannot
change without it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import astuple
from pathlib import Path
from typing import Any

from servegate_kernels import nvrtc, sources
from servegate_kernels.cache import made_once

ARCHITECTURES = (80, 86, 89, 90, 100)
"""Compute capabilities that the checks compile for; others from 80 on are compiled when met."""

TABLE = Path(__file__).with_name("resources.json")


def digest() -> str:
    """Of everything that determines the machine code, but for the compiler's version."""
    texts = {file: sources.assemble(file) for file in sources.CATALOGUE}
    everything = (sources.FLAGS, ARCHITECTURES, sources.CATALOGUE, texts)
    return hashlib.sha256(repr(everything).encode()).hexdigest()


def compiler() -> str:
    """The compiler's version, such as ``"13.0"``: figures hold for one only."""
    return ".".join(map(str, nvrtc.version()))


def load() -> dict[str, Any]:
    """The committed table: ``nvrtc``, ``digest`` and ``kernels``, the latter expression -> architecture ->
    [registers, static shared bytes, stack bytes, spilled bytes]."""
    table: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return table


def measure(file: str, architecture: int) -> dict[str, list[int]]:
    """Compiles the kernels of one file for one architecture, unless that was done before: expression ->
    figures as in the table."""
    source, expressions = sources.assemble(file), sources.CATALOGUE[file]

    def make(folder: Path) -> None:
        compiled = nvrtc.compile_resources(source, expressions, architecture)
        figures = {expression: astuple(found) for expression, found in compiled.items()}
        (folder / "figures.json").write_text(json.dumps(figures), encoding="utf-8")

    folder = made_once("resources", (source, expressions, sources.FLAGS, architecture, compiler()), make)
    figures: dict[str, list[int]] = json.loads((folder / "figures.json").read_text(encoding="utf-8"))
    return figures


def main() -> None:
    """Rewrites the table, whatever its figures are: the test judges them."""
    kernels: dict[str, dict[str, list[int]]] = {}
    for file in sources.CATALOGUE:
        for architecture in ARCHITECTURES:
            for expression, figures in measure(file, architecture).items():
                kernels.setdefault(expression, {})[str(architecture)] = figures
    head = {
        "nvrtc": compiler(),
        "digest": digest(),
        "figures": ["registers", "shared", "stack", "spills"],
    }
    rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(figures)}" for name, figures in kernels.items())
    TABLE.write_text(json.dumps(head)[:-1] + ',\n"kernels": {\n' + rows + "\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
