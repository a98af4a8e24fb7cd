"""Tokenizers rebuilt from GGUF metadata."""

from __future__ import annotations

from typing import Any

import pytest

from builders import MERGES, SPECIAL, tiny_inner, tiny_spec
from engine.errors import ModelError
from engine.models.gguf_tokenizer import build_tokenizer
from engine.text.tokenizer import Tokenizer
from model_files import gguf_metadata

TOKENS = sorted(tiny_inner().get_vocab(), key=tiny_inner().get_vocab().__getitem__)


def byte_level(**changes: Any) -> Tokenizer:
    keys = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": TOKENS,
        "token_type": [3] * len(SPECIAL) + [1] * (len(TOKENS) - len(SPECIAL)),
        "merges": MERGES,
        "bos_token_id": 1,
        "eos_token_id": 2,
    } | changes
    return build_tokenizer({f"tokenizer.ggml.{k}": v for k, v in keys.items()}, "m.gguf")


@pytest.mark.parametrize(
    ("pre", "parts"),
    [
        ("gpt-2", ["I", "'ve", " 1234", " x", "\n\n", "\n", "AbcDEF", "!"]),
        ("smollm", ["I", "'ve", " ", "1", "2", "3", "4", " x", "\n\n", "\n", "AbcDEF", "!"]),
        ("llama-bpe", ["I", "'ve", " ", "123", "4", " x", "\n\n\n", "AbcDEF", "!"]),
        ("qwen2", ["I", "'ve", " ", "1", "2", "3", "4", " x", "\n\n\n", "AbcDEF", "!"]),
        ("tekken", ["I", "'ve", " ", "1", "2", "3", "4", " x", "\n\n\n", "Abc", "DEF", "!"]),
    ],
)
def test_pre_tokenizers_split_as_their_models_do(pre: str, parts: list[str]) -> None:
    inner = byte_level(pre=pre)._inner
    split = inner.pre_tokenizer.pre_tokenize_str("I've 1234 x\n\n\nAbcDEF!")
    spelled = [part.replace("Ġ", " ").replace("Ċ", "\n") for part, _ in split]
    assert spelled == parts


def test_same_ids_as_the_tokenizer_it_came_from() -> None:
    text = "the land and <|im_end|> wörld 😀"
    assert byte_level().encode(text) == Tokenizer(tiny_inner()).encode(text)


def test_qwen2_composes_characters() -> None:
    decomposed = "e\u0301"
    assert byte_level(pre="qwen2").encode(decomposed) == byte_level().encode("é")
    assert byte_level().encode(decomposed) != byte_level().encode("é")


def test_bos_and_eos_as_the_file_asks() -> None:
    a = byte_level().encode("a")
    assert len(a) == 1
    assert byte_level(add_bos_token=True).encode("a") == [1, *a]
    assert byte_level(add_bos_token=True, add_eos_token=True).encode("a") == [1, *a, 2]
    assert byte_level(pre="llama-bpe").encode("a") == [1, *a]
    assert byte_level(pre="llama-bpe", add_bos_token=False).encode("a") == a


def test_whole_words_come_before_merges() -> None:
    """A llama-bpe token that no merge leads to is still used."""
    tokens = [*TOKENS, "xyz"]
    types = [3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL))
    changes = {"tokens": tokens, "token_type": types, "add_bos_token": False}
    assert byte_level(pre="llama-bpe", **changes).encode("xyz") == [len(TOKENS)]
    assert len(byte_level(pre="gpt-2", **changes).encode("xyz")) == 3


def test_user_defined_tokens_are_found_in_text_and_have_text() -> None:
    tokens = [*TOKENS, "<think>"]
    types = [3] * len(SPECIAL) + [1] * (len(TOKENS) - len(SPECIAL)) + [4]
    tokenizer = byte_level(tokens=tokens, token_type=types)
    assert tokenizer.encode("<think>") == [len(TOKENS)]
    assert tokenizer.decode([len(TOKENS)]) == "<think>"


SPM = [
    *(("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)),
    *((f"<0x{byte:02X}>", 0.0, 6) for byte in range(256)),
    *(("▁a", -1.0, 1), ("ab", -0.5, 1), ("abc", -2.0, 1), ("▁", -9.0, 1)),
    *(("a", -9.0, 1), ("b", -9.0, 1), ("c", -9.0, 1)),
]


def sentencepiece(**changes: Any) -> Tokenizer:
    keys = {
        "model": "llama",
        "tokens": [token for token, _, _ in SPM],
        "scores": [score for _, score, _ in SPM],
        "token_type": [kind for _, _, kind in SPM],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
    } | changes
    return build_tokenizer({f"tokenizer.ggml.{k}": v for k, v in keys.items()}, "m.gguf")


def spell(tokenizer: Tokenizer, text: str) -> list[str]:
    return [SPM[i][0] for i in tokenizer.encode(text)]


def test_sentencepiece_merges_the_best_score_first() -> None:
    tokenizer = sentencepiece()
    # "ab" scores above "▁a", so the space stays alone; then "ab" and "c" join.
    assert spell(tokenizer, "abc") == ["<s>", "▁", "abc"]
    assert spell(tokenizer, "a b") == ["<s>", "▁a", "▁", "b"]
    assert spell(tokenizer, "é") == ["<s>", "▁", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(tokenizer.encode("abc é a")) == "abc é a"


def test_sentencepiece_without_space_prefix() -> None:
    tokenizer = sentencepiece(add_space_prefix=False, add_bos_token=False)
    assert spell(tokenizer, "abc") == ["abc"]
    assert tokenizer.decode(tokenizer.encode(" a")) == " a"


def test_sentencepiece_text_never_becomes_special() -> None:
    assert not {0, 1, 2} & set(sentencepiece(add_bos_token=False).encode("</s> <s> <unk>"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scores": [0.0]}, "266 tokens but 1 scores"),
        ({"scores": None}, "scores is missing"),
        ({"tokens": [1, 2]}, "tokens is not a list of str"),
        ({"unknown_token_id": None, "token_type": "x"}, "token_type is not a list of int"),
    ],
)
def test_incomplete_metadata(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        sentencepiece(**changes)


def test_a_file_that_names_no_pre_tokenizer_is_told() -> None:
    metadata = gguf_metadata(tiny_spec())
    assert build_tokenizer(metadata, "m.gguf").notes == ()
    del metadata["tokenizer.ggml.pre"]
    (note,) = build_tokenizer(metadata, "m.gguf").notes
    assert note == "m.gguf: names no pre-tokenizer; text is split as GPT-2's"
