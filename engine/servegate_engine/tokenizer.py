"""Text to token ids and back: from ``tokenizer.json``, or rebuilt from a GGUF file's metadata."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from servegate_engine.errors import ModelFileError
from servegate_engine.gguf_file import GgufFile
from servegate_engine.model_store import file_digest

_GPT2_BYTES = (*range(33, 127), *range(161, 173), *range(174, 256))


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-in for each byte, as every byte-level BPE vocabulary spells its tokens."""
    alphabet = {chr(byte): byte for byte in _GPT2_BYTES}
    others = (byte for byte in range(256) if byte not in _GPT2_BYTES)
    return alphabet | {chr(256 + i): byte for i, byte in enumerate(others)}


_BYTE_OF = _byte_alphabet()
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Tokenizer:
    """Text to ids, ids to bytes.

    ``decode`` is the UTF-8 reading of the concatenated :meth:`token_bytes`, so that a stream which adds up
    bytes and the final text can never disagree.
    """

    def __init__(self, inner: tokenizers.Tokenizer, digest: str, where: Path) -> None:
        self._inner = inner
        self.digest = digest
        """SHA-256 of what defines the tokenizer."""
        spec = json.loads(inner.to_str())
        added = {token["id"]: token for token in spec["added_tokens"]}
        self.special_ids = frozenset(i for i, token in added.items() if token["special"])
        """Ids of control tokens: they are not part of an answer's text."""
        spell = _speller(spec, where)
        size = inner.get_vocab_size(with_added_tokens=True)
        self._bytes: list[bytes] = []
        for i in range(max(size, max(added, default=-1) + 1)):
            if i in added:
                self._bytes.append(added[i]["content"].encode())
            else:
                token = inner.id_to_token(i)
                self._bytes.append(b"" if token is None else spell(token))

    @classmethod
    def from_directory(cls, directory: Path) -> Tokenizer:
        """From ``tokenizer.json``."""
        path = directory / "tokenizer.json"
        if not path.is_file():
            raise ModelFileError(f"{directory}: no tokenizer.json")
        try:
            inner = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise ModelFileError(f"{path}: not a readable tokenizer: {str(error).splitlines()[0]}") from error
        inner.no_padding()
        inner.no_truncation()
        return cls(inner, file_digest(path), path)

    @classmethod
    def from_gguf(cls, file: GgufFile) -> Tokenizer:
        """From GGUF metadata: byte-level BPE with the pre-tokenizers listed in ``_PRE_TOKENIZERS``."""
        inner, digest = _from_gguf(file)
        return cls(inner, digest, file.path)

    @property
    def vocab_size(self) -> int:
        return len(self._bytes)

    def encode(self, text: str, add_special: bool = False) -> list[int]:
        """Token ids. ``add_special`` adds what the model wants around a plain prompt, such as its BOS.

        Special tokens written out in ``text`` become their ids.
        """
        ids: list[int] = self._inner.encode(text, add_special_tokens=add_special).ids
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token adds to a text, at times part of a character; none for a special or unused id."""
        return b"" if token_id in self.special_ids else self._spelling(token_id)

    def _spelling(self, token_id: int) -> bytes:
        return self._bytes[token_id] if 0 <= token_id < len(self._bytes) else b""

    def decode(self, token_ids: Iterable[int], skip_special: bool = True) -> str:
        """Text of the ids; bytes that are not UTF-8 become U+FFFD."""
        spell = self.token_bytes if skip_special else self._spelling
        return b"".join(map(spell, token_ids)).decode(errors="replace")

    def token_id(self, token: str) -> int | None:
        """Id of a token by its own spelling, such as ``<|im_end|>``."""
        found: int | None = self._inner.token_to_id(token)
        return found


def _speller(spec: Mapping[str, Any], where: Path) -> Any:
    """How a vocabulary spells bytes, told from its decoder: byte-level BPE, or SentencePiece's pieces."""
    decoder = json.dumps(spec["decoder"])
    if '"ByteLevel"' in decoder:
        return lambda token: bytes(_BYTE_OF[char] for char in token if char in _BYTE_OF)
    if '"ByteFallback"' in decoder or '"Metaspace"' in decoder:
        return _piece_bytes
    raise ModelFileError(f"{where}: unsupported decoder (byte-level and SentencePiece are supported)")


def _piece_bytes(token: str) -> bytes:
    raw = _BYTE_TOKEN.fullmatch(token)
    return bytes([int(raw[1], 16)]) if raw else token.replace("▁", " ").encode()


# What GGUF files call their pre-tokenizer, and how Hugging Face writes the same thing.
_LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_SPLIT = _LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")


def _gpt2() -> list[Any]:
    return [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]


def _smollm() -> list[Any]:
    return [pre_tokenizers.Digits(individual_digits=True), *_gpt2()]


def _split(pattern: str) -> list[Any]:
    return [
        pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]


_PRE_TOKENIZERS = {
    "gpt-2": _gpt2,
    "smollm": _smollm,
    "llama-bpe": lambda: _split(_LLAMA3_SPLIT),
    "qwen2": lambda: _split(_QWEN2_SPLIT),
}
_CONTROL, _USER_DEFINED = 3, 4


def _from_gguf(file: GgufFile) -> tuple[tokenizers.Tokenizer, str]:
    kind = file.get("tokenizer.ggml.model", str)
    pre = file.get("tokenizer.ggml.pre", str, "gpt-2")
    if kind != "gpt2" or pre not in _PRE_TOKENIZERS:
        file.fail(
            f"tokenizer {kind!r} with pre-tokenizer {pre!r} is not supported "
            f"(gpt2 with {', '.join(_PRE_TOKENIZERS)}); use a directory with tokenizer.json"
        )
    tokens = file.get("tokenizer.ggml.tokens", list)
    merges = file.get("tokenizer.ggml.merges", list)
    types = [int(kind) for kind in file.metadata.get("tokenizer.ggml.token_type", [1] * len(tokens))]
    pairs = [tuple(merge.split(" ")) for merge in merges]
    if len(types) != len(tokens) or len(set(tokens)) != len(tokens) or any(len(pair) != 2 for pair in pairs):
        file.fail("the tokenizer's lists do not fit together")
    add_bos = file.get("tokenizer.ggml.add_bos_token", bool, pre == "llama-bpe")
    bos_id = file.get("tokenizer.ggml.bos_token_id", int) if add_bos else 0
    if not 0 <= bos_id < max(len(tokens), 1):
        file.fail(f"'tokenizer.ggml.bos_token_id' is {bos_id}, the vocabulary has {len(tokens)} tokens")

    vocab = {token: i for i, token in enumerate(tokens)}
    try:
        bpe = models.BPE(vocab=vocab, merges=pairs, ignore_merges=pre == "llama-bpe")
    except Exception as error:  # the library raises bare Exception
        file.fail(f"the tokenizer's merges are broken: {str(error).splitlines()[0]}")
    inner = tokenizers.Tokenizer(bpe)
    if pre == "qwen2":
        inner.normalizer = normalizers.NFC()
    inner.pre_tokenizer = pre_tokenizers.Sequence(_PRE_TOKENIZERS[pre]())  # type: ignore[no-untyped-call]
    inner.decoder = decoders.ByteLevel()
    special = [t for t, k in zip(tokens, types, strict=True) if k == _CONTROL]
    inner.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    plain = [t for t, k in zip(tokens, types, strict=True) if k == _USER_DEFINED]
    inner.add_tokens([AddedToken(t, special=False, normalized=False) for t in plain])
    if add_bos:
        bos = tokens[bos_id]
        inner.post_processor = processors.TemplateProcessing(
            single=[bos, "$A"], pair=[bos, "$A", "$B"], special_tokens=[(bos, bos_id)]
        )
    facts = json.dumps([kind, pre, tokens, types, merges, bos_id if add_bos else None])
    return inner, hashlib.sha256(facts.encode()).hexdigest()
