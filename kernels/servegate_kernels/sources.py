"""The kernels' source text and the list of every instantiation that exists.

A kernel file is handed to a compiler as one string, its project headers written in place: CuPy's cache is
keyed by that string, so that an edited header can never meet a stale binary.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Literal

Element = Literal["float", "double", "f16", "bf16"]

ELEMENTS: tuple[Element, ...] = ("float", "f16", "bf16", "double")
"""Element types by their C++ names."""

ELEMENT_BYTES: dict[Element, int] = {"float": 4, "f16": 2, "bf16": 2, "double": 8}

HEAD_SIZES = (64, 80, 96, 128, 256)

SPLIT_TOKENS = 256
"""Tokens of one attention split (``SPLIT`` in attention.cu): part of the numerics, like the tile sizes."""

FLAGS = ("-std=c++17", "-fmad=false")
"""Contraction is off in every build, so that each fused multiply-add is one that the source names."""

_INCLUDE = re.compile(r'^#include "(\w+\.cuh)"$', re.MULTILINE)


def narrow_vectors() -> int:
    """(row, head) pairs that a decode block of attention_split computes at once."""
    return 4


def wide_vectors(element: Element, head_size: int) -> int:
    """The same of a prefill block: the most, up to 16, whose queries fit into 8 KiB of shared memory."""
    accumulator_bytes = max(ELEMENT_BYTES[element], 4)
    vectors = 16
    while vectors * head_size * accumulator_bytes > 8192:
        vectors //= 2
    return vectors


def _attention() -> tuple[str, ...]:
    names = []
    for element in ELEMENTS:
        for head_size in HEAD_SIZES:
            for vectors in sorted({narrow_vectors(), wide_vectors(element, head_size)}):
                names.append(f"attention_split<{element}, {head_size}, {vectors}>")
        names.append(f"attention_merge<{element}>")
    return tuple(names)


def _matmul() -> tuple[str, ...]:
    scalar = [f"matmul_scalar<{element}, {rows}>" for element in ("float", "double") for rows in (1, 4)]
    tensor = [
        f"matmul_tensor<{element}, {out}, {tile}>"
        for element in ("f16", "bf16")
        for out in (element, "float")
        for tile in ("DecodeTile", "MediumTile", "LargeTile")
    ]
    return tuple(scalar + tensor)


CATALOGUE: dict[str, tuple[str, ...]] = {
    "attention.cu": _attention(),
    "rows.cu": (
        "embedding",
        "kv_write",
        *(f"{kernel}<{element}>" for kernel in ("rms_norm", "rope", "silu_mul") for element in ELEMENTS),
    ),
    "logprobs.cu": tuple(f"log_softmax<{element}>" for element in ELEMENTS),
    "sampling.cu": tuple(f"sample<{element}>" for element in ELEMENTS),
    "matmul.cu": _matmul(),
}
"""Kernel file -> the name expressions of every kernel in it that may be launched."""


@cache
def file_of(expression: str) -> str:
    """The kernel file that holds a name expression. KeyError: no such instantiation."""
    for file, expressions in CATALOGUE.items():
        if expression in expressions:
            return file
    raise KeyError(expression)


def read(file: str) -> str:
    """The text of one source file of this package, such as ``"attention.cu"`` or ``"shim/fibers.h"``."""
    return resources.files("servegate_kernels").joinpath(file).read_text(encoding="utf-8")


def assemble(file: str, *, omit: frozenset[str] = frozenset()) -> str:
    """A kernel file with every project header written in place, once, but for those in ``omit``."""
    return inline(read(file), omit=omit)


def inline(text: str, *, omit: frozenset[str] = frozenset()) -> str:
    """``text`` with its project headers written in place, each at its first include."""
    seen = set(omit)

    def expand(text: str) -> str:
        def replace(match: re.Match[str]) -> str:
            header = match.group(1)
            if header in seen:
                return ""
            seen.add(header)
            return expand(read(header).replace("#pragma once\n", ""))

        return _INCLUDE.sub(replace, text)

    return expand(text)
