"""The tokenizer rebuilt from GGUF metadata against Hugging Face's, and its bytes against its text."""

from __future__ import annotations

import random
import unicodedata
from pathlib import Path
from typing import Any

import gguf
import pytest
import tokenizers
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers
from toy import toy_config, toy_weights, write_gguf

from servegate_engine.errors import ModelFileError
from servegate_engine.gguf_file import GgufFile
from servegate_engine.tokenizer import Tokenizer, _byte_alphabet

SPELLING = {byte: letter for letter, byte in _byte_alphabet().items()}
PROSE = [
    "", " ", "  \n\n\t x  ", "Hello, world! It's 2024-05-17 and I'll pay $1,234.56.", "a    b", "\r\n\r\n",
    "naïve café — „Grüße“ … ½ ² ③ Ⅷ", "Привет, мир! Ещё 42 рубля.", "你好，世界。今天是三月七日，共128人。",
    "日本語のテキストと123と４５６", "مرحبا بالعالم ١٢٣", "नमस्ते दुनिया १२३", "ſ ﬁ ﷺ Ａ", "'S'T'RE'VE'M'LL'D",
    "🙂👩‍👩‍👧‍👦🇩🇪 e\u0301 \u200b\ufeff", "\x00\x01\x7f\x80\xa0\u2028",
    "def f(x):\n    return x**2  # 0x1F, 1e-9\n", '{"key": [1, 2.5, null]}',
    "<|im_start|>user\nhi<|im_end|>\n<|endoftext|>", "<|im_start", "https://example.org/a?b=c&d=%20e#f",
]  # fmt: skip


def corpus() -> list[str]:
    """Prose, code of this repository, and random text from every part of Unicode."""
    chance = random.Random(5)
    texts = list(PROSE)
    for path in sorted(Path(__file__).parent.glob("*.py"))[:12]:
        texts.append(path.read_text())
    assigned = [chr(c) for c in range(0x30000) if unicodedata.category(chr(c)) not in ("Cs", "Cn", "Co")]
    for _ in range(300):
        pool = assigned if chance.random() < 0.5 else "aeinst AEI 0123 .,'\n\t"
        texts.append("".join(chance.choices(pool, k=chance.randrange(1, 60))))
    return texts


@pytest.fixture(scope="module")
def ours(smollm2: Path) -> Tokenizer:
    return Tokenizer.from_gguf(GgufFile(smollm2))


@pytest.fixture(scope="module")
def theirs(smollm2: Path) -> tokenizers.Tokenizer:
    """Transformers' conversion of the same file.

    Its generic conversion does not know that SmolLM2 splits digits, so that one step is set as in the
    model's own ``tokenizer.json``.
    """
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(str(smollm2.parent), gguf_file=smollm2.name)
    inner = loaded.backend_tokenizer
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return inner


def test_ids_equal_transformers(ours: Tokenizer, theirs: tokenizers.Tokenizer) -> None:
    for text in corpus():
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids, repr(text)
        assert ours.encode(text, add_special=True) == theirs.encode(text).ids


def test_text_equals_transformers(ours: Tokenizer, theirs: tokenizers.Tokenizer) -> None:
    chance = random.Random(6)
    for _ in range(300):
        ids = [chance.randrange(ours.vocab_size) for _ in range(chance.randrange(1, 30))]
        assert ours.decode(ids, skip_special=False) == theirs.decode(ids, skip_special_tokens=False)
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)


def test_decode_undoes_encode(ours: Tokenizer) -> None:
    for text in corpus():
        assert ours.decode(ours.encode(text), skip_special=False) == text


@settings(max_examples=100, deadline=None)
@given(text=st.text())
def test_any_text_comes_back(ours: Tokenizer, text: str) -> None:
    # The vocabulary has no token for some rare bytes; Hugging Face drops those too.
    assume(all(ours.token_id(letter) is not None for letter in map(SPELLING.__getitem__, text.encode())))
    assert ours.decode(ours.encode(text), skip_special=False) == text


def test_known_ids(ours: Tokenizer) -> None:
    assert ours.vocab_size == 49152
    assert ours.encode("<|im_start|>user\n") == [1, 4093, 198]
    assert ours.encode("What is the capital of France?") == [1780, 314, 260, 3575, 282, 4649, 47]
    assert ours.token_id("<|im_end|>") == 2
    assert ours.token_id("no such token") is None
    assert ours.special_ids == frozenset(range(17))


def test_digits_are_single(ours: Tokenizer) -> None:
    assert [ours.decode([i]) for i in ours.encode("2024")] == ["2", "0", "2", "4"]


def test_token_bytes(ours: Tokenizer) -> None:
    smile = ours.encode("🙂")
    assert len(smile) > 1, "the character is split: each token holds some of its bytes"
    assert b"".join(map(ours.token_bytes, smile)) == "🙂".encode()
    assert ours.token_bytes(2) == b"", "a special token adds nothing to a text"
    assert ours.token_bytes(-1) == ours.token_bytes(49152) == b""
    assert ours.token_bytes(ours.encode("\n")[0]) == b"\n"


def test_the_digest_names_the_tokenizer(ours: Tokenizer, smollm2: Path, tmp_path: Path) -> None:
    assert ours.digest == Tokenizer.from_gguf(GgufFile(smollm2)).digest
    assert len(ours.digest) == 64
    config = toy_config()
    toy = Tokenizer.from_gguf(GgufFile(write_gguf(tmp_path / "toy.gguf", config, toy_weights(config))))
    assert toy.digest != ours.digest


def gguf_tokenizer(path: Path, pre: str, **extra: Any) -> Tokenizer:
    """A GGUF that holds only a tokenizer: bytes, a few merges, a control token and a user-defined one."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = ["1 2", "12 3", "h e", "l l", "he ll", "Ġ t"]
    tokens = [*letters, *(merge.replace(" ", "") for merge in merges), "<|bos|>", "<tool>"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (len(tokens) - 2) + [3, 4])
    writer.add_token_merges(extra.get("merges", merges))
    writer.add_bos_token_id(extra.get("bos", len(tokens) - 2))
    if "add_bos" in extra:
        writer.add_add_bos_token(extra["add_bos"])
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file):
        step()
    writer.close()
    return Tokenizer.from_gguf(GgufFile(path))


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.decode([i], skip_special=False) for i in tokenizer.encode(text)]


@pytest.mark.parametrize(
    ("pre", "digits"),
    [
        ("gpt-2", ["123", "12", "3"]),
        ("llama-bpe", ["123", "12", "3"]),
        ("qwen2", list("123123")),
        ("smollm", list("123123")),
    ],
)
def test_pre_tokenizers_cut_digits_as_their_models_do(pre: str, digits: list[str], tmp_path: Path) -> None:
    tokenizer = gguf_tokenizer(tmp_path / "t.gguf", pre)
    assert "".join(pieces(tokenizer, "123123")) == "123123"
    if pre in ("qwen2", "smollm"):
        assert pieces(tokenizer, "123123") == digits
    else:
        assert pieces(tokenizer, "123")[0] == "123"
    assert pieces(tokenizer, "hell <tool>x") == ["hell", " ", "<tool>", "x"]


def test_qwen2_normalises(tmp_path: Path) -> None:
    composed, split = unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é")
    qwen, gpt2 = gguf_tokenizer(tmp_path / "q.gguf", "qwen2"), gguf_tokenizer(tmp_path / "g.gguf", "gpt-2")
    assert qwen.encode(split) == qwen.encode(composed)
    assert gpt2.encode(split) != gpt2.encode(composed)


def test_bos_is_added_where_the_file_says_so(tmp_path: Path) -> None:
    with_bos = gguf_tokenizer(tmp_path / "a.gguf", "llama-bpe", add_bos=True)
    bos = with_bos.token_id("<|bos|>")
    assert with_bos.encode("he", add_special=True) == [bos, *with_bos.encode("he")]
    without = gguf_tokenizer(tmp_path / "b.gguf", "llama-bpe", add_bos=False)
    assert without.encode("he", add_special=True) == without.encode("he")


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ({"merges": ["nospace"]}, "do not fit together"),
        ({"merges": ["zz qq"]}, "merges are broken"),
        ({"bos": 100_000, "add_bos": True}, "bos_token_id' is 100000"),
    ],
)
def test_a_broken_gguf_tokenizer_is_one_line(extra: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=reason) as caught:
        gguf_tokenizer(tmp_path / "t.gguf", "smollm", **extra)
    assert "\n" not in str(caught.value)


def test_tokenizer_json(ours: Tokenizer, tmp_path: Path) -> None:
    """The same tokenizer by way of ``tokenizer.json``."""
    ours._inner.save(str(tmp_path / "tokenizer.json"))
    loaded = Tokenizer.from_directory(tmp_path)
    for text in PROSE:
        assert loaded.encode(text) == ours.encode(text)
    assert [loaded.token_bytes(i) for i in range(300)] == [ours.token_bytes(i) for i in range(300)]
    assert loaded.special_ids == ours.special_ids


def test_sentencepiece_bytes(tmp_path: Path) -> None:
    """Pieces with a leading mark for a space, and single bytes spelled out."""
    vocab = {"<unk>": 0, "▁": 1, "h": 2, "i": 3, "hi": 4, "▁hi": 5}
    vocab |= {f"<0x{byte:02X}>": 6 + byte for byte in range(256)}
    merges = [("h", "i"), ("▁", "hi")]
    inner = tokenizers.Tokenizer(
        models.BPE(vocab=vocab, merges=merges, byte_fallback=True, unk_token="<unk>")
    )
    inner.normalizer = normalizers.Replace(" ", "▁")
    inner.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    inner.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.from_directory(tmp_path)
    ids = tokenizer.encode("hi hi€")
    assert ids[:2] == [4, 5]
    assert [tokenizer.token_bytes(i) for i in ids] == [b"hi", b" hi", b"\xe2", b"\x82", b"\xac"]
    assert tokenizer.decode(ids) == "hi hi€"


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"model": 3}', "\x00\xff" * 50, "[" * 100_000])
def test_a_broken_tokenizer_json_is_one_line(content: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ModelFileError, match=r"tokenizer\.json: not a readable tokenizer") as caught:
        Tokenizer.from_directory(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_missing_or_unknown_tokenizer_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"no tokenizer\.json"):
        Tokenizer.from_directory(tmp_path)
    tokenizers.Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ModelFileError, match="unsupported decoder"):
        Tokenizer.from_directory(tmp_path)
