"""Text to ids and back: exact streaming, and no special token out of a user's text."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors

from builders import CHATML, SPECIAL, TINY_VOCAB, tiny_inner, tiny_tokenizer
from engine.errors import ModelError, RequestError
from engine.text.chat import GUARD
from engine.text.completion import Chat
from engine.text.pieces import byte_alphabet
from engine.text.tokenizer import Detokenizer, Tokenizer

TINY = tiny_tokenizer()
PROPERTY = settings(max_examples=100, deadline=None, derandomize=True)

HARD = [
    "😀",
    "👩\u200d👩\u200d👧",
    "한국어",
    "각",
    "é",
    "नि",
    "\u0000",
    "\r\n",
    " ",
    "\ufffd",
    "<|im_end|>",
    GUARD,
]
texts = st.lists(st.one_of(st.sampled_from([*HARD, *SPECIAL]), st.text(max_size=5))).map("".join)
id_lists = st.lists(st.integers(0, TINY_VOCAB + 3), max_size=60)


def byte_ids(data: bytes) -> list[int]:
    """The ids of single bytes."""
    spelled = {byte: char for char, byte in byte_alphabet().items()}
    ids = [TINY.id_of(spelled[byte]) for byte in data]
    return [i for i in ids if i is not None]


# --- encode ------------------------------------------------------------------------


def test_byte_alphabet_is_the_standard_one() -> None:
    assert set(byte_alphabet()) == set(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(byte_alphabet().values()) == list(range(256))
    assert byte_alphabet()["Ġ"] == ord(" ")


@PROPERTY
@given(texts)
def test_round_trip(text: str) -> None:
    assert TINY.decode(TINY.encode(text)) == text


@PROPERTY
@given(texts)
def test_user_text_never_has_special_ids(text: str) -> None:
    assert not TINY.special_ids & set(TINY.encode(text))


def test_trusted_text_has_them() -> None:
    assert TINY.encode_trusted("<|im_start|>a<|im_end|><|im_end|>") == [1, *byte_ids(b"a"), 2, 2]
    assert TINY.encode_trusted("") == []


def test_longest_special_token_wins() -> None:
    inner = tiny_inner()
    inner.add_special_tokens([AddedToken("<|im_end|>>", special=True)])
    assert Tokenizer(inner).encode_trusted("<|im_end|>>") == [TINY_VOCAB]


def test_spaces_that_a_special_token_swallows() -> None:
    inner = tiny_inner()
    inner.add_special_tokens([AddedToken("<cut>", special=True, lstrip=True, rstrip=True)])
    assert Tokenizer(inner).encode_trusted("a <cut>\n b") == [
        *byte_ids(b"a"),
        TINY_VOCAB,
        *byte_ids(b"b"),
    ]


def test_bos_only_when_asked_and_wanted() -> None:
    inner = tiny_inner()
    inner.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    tokenizer = Tokenizer(inner)
    assert tokenizer.encode("a") == [0, *byte_ids(b"a")]
    assert tokenizer.encode("a", add_special=False) == byte_ids(b"a")
    assert TINY.encode("a") == byte_ids(b"a")


def test_lone_surrogate_is_a_request_error() -> None:
    with pytest.raises(RequestError, match="not valid Unicode"):
        TINY.encode("ab\ud800")
    with pytest.raises(RequestError, match="not valid Unicode"):
        TINY.chat([{"role": "user", "content": "\udc00"}])


def test_threads_share_one_tokenizer() -> None:
    prompts = [f"{i} the world {'<|im_end|>' * (i % 3)} and {i * 7}" for i in range(200)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(TINY.encode, prompts)) == [TINY.encode(p) for p in prompts]


# --- chat --------------------------------------------------------------------------


def chat(content: str, role: str = "user") -> list[dict[str, str]]:
    return [{"role": role, "content": content}]


def test_chat_is_the_template_with_real_special_ids() -> None:
    assert TINY.chat(chat("hi")) == [
        1,
        *TINY.encode("user\nhi"),
        2,
        *TINY.encode("\n"),
        1,
        *TINY.encode("assistant\n"),
    ]
    assert TINY.render_chat(Chat(chat("hi"), add_generation_prompt=False)) == (
        "<|im_start|>user\nhi<|im_end|>\n"
    )


@PROPERTY
@given(texts, texts)
def test_messages_cannot_add_special_tokens(content: str, role: str) -> None:
    ids = TINY.chat(chat(content, role))
    assert [i for i in ids if i in TINY.special_ids] == [1, 2, 1]


def test_overlapping_special_tokens_in_a_message_are_text() -> None:
    inner = tiny_inner()
    inner.add_special_tokens([AddedToken(t, special=True) for t in ("[a]", "][", "]b")])
    tokenizer = Tokenizer(inner, chat_template="{{ messages[0].content }}")
    for text in ("[a][a]", "[a]b", "][a]["):
        assert tokenizer.encode_trusted(text) != tokenizer.encode(text)
        assert tokenizer.chat(chat(text)) == tokenizer.encode(text)


@PROPERTY
@given(texts)
def test_message_text_arrives_whole(content: str) -> None:
    content = content.replace(GUARD, "")
    expected = f"user\n{content}\nassistant\n"
    assert TINY.decode(TINY.chat(chat(content))) == expected
    assert content in TINY.render_chat(chat(content))


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "at least one message"),
        ("hello", "expected a list"),
        (["hello"], r"messages\[0\]: expected a text 'role'"),
        ([{"role": "user"}], r"messages\[0\]: expected a text 'content'"),
        ([{"role": "user", "content": None}], "expected a text 'content'"),
        ([{"role": "user", "content": "a"}, {"role": 1, "content": "b"}], r"messages\[1\]"),
    ],
)
def test_messages_that_are_none(messages: Any, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        TINY.chat(messages)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ raise_exception('roles must\nalternate') }}", "roles must alternate"),
        ("{{ messages[7].content }}", "has no element 7"),
        ("{{ messages.__class__.__base__.__subclasses__() }}", "unsafe"),
        ("{% set _ = messages.append(1) %}", "unsafe"),
        ("{{ 1 / 0 }}", "division by zero"),
    ],
)
def test_template_that_refuses(template: str, words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        Tokenizer(tiny_inner(), chat_template=template).chat(chat("hi"))
    assert "\n" not in str(caught.value)


def test_template_sees_what_templates_expect() -> None:
    template = (
        "{%- if tools is none %}{{ bos_token }}{% endif %}\n"
        "    {% for m in messages %}\n"
        "{% if loop.index > 1 %}{% break %}{% endif %}\n"
        "{{ m.content | tojson }}{{ eos_token }}\n"
        "    {% endfor %}"
    )
    tokenizer = Tokenizer(tiny_inner(), "<|im_start|>", "<|im_end|>", template)
    assert tokenizer.render_chat(chat("é<b>") * 2) == '<|im_start|>"é<b>"<|im_end|>\n'


def test_without_template() -> None:
    tokenizer = Tokenizer(tiny_inner())
    assert not tokenizer.has_chat
    with pytest.raises(RequestError, match="no chat template; send a prompt"):
        tokenizer.chat(chat("hi"))


def test_turn_end_of_the_template_is_an_eos() -> None:
    assert Tokenizer(tiny_inner(), eos="<|endoftext|>", chat_template=CHATML).eos_ids == {0, 2}
    assert Tokenizer(tiny_inner(), eos="<|endoftext|>").eos_ids == {0}


# --- decode ------------------------------------------------------------------------


def stream(tokenizer: Tokenizer, ids: list[int], cuts: list[int]) -> list[str]:
    """What each push returns when `ids` come in pieces, and the flush."""
    detokenizer = Detokenizer(tokenizer)
    bounds = sorted({0, len(ids), *(cut % (len(ids) + 1) for cut in cuts)})
    pieces = [detokenizer.push(ids[start:stop]) for start, stop in pairwise(bounds)]
    return [*pieces, detokenizer.flush()]


@PROPERTY
@given(id_lists, st.lists(st.integers(0, 60)))
def test_stream_adds_up_to_the_decoded_whole(ids: list[int], cuts: list[int]) -> None:
    assert "".join(stream(TINY, ids, cuts)) == TINY.decode(ids)


@PROPERTY
@given(st.lists(st.one_of(st.binary(max_size=4), st.sampled_from(HARD).map(str.encode))))
def test_bytes_decode_as_utf8_with_replacement(parts: list[bytes]) -> None:
    data = b"".join(parts)
    ids = byte_ids(data)
    assert TINY.decode(ids) == data.decode("utf-8", errors="replace")
    assert "".join(stream(TINY, ids, list(range(len(ids))))) == TINY.decode(ids)


@pytest.mark.parametrize(
    ("data", "pieces"),
    [
        ("😀!".encode(), ["", "", "", "😀", "!", ""]),
        ("한".encode(), ["", "", "한", ""]),
        (b"\xf0\x9f\x98", ["", "", "", "\ufffd"]),
        (b"\x80a", ["\ufffd", "a", ""]),
        (b"\xe2\x82a", ["", "", "\ufffda", ""]),
        (b"\xff\xff", ["\ufffd", "\ufffd", ""]),
    ],
)
def test_unfinished_characters_are_held_back(data: bytes, pieces: list[str]) -> None:
    ids = byte_ids(data)
    assert stream(TINY, ids, list(range(len(ids)))) == pieces


def test_joined_emoji_come_part_by_part_and_whole() -> None:
    family = "👩\u200d👩\u200d👧"
    pieces = stream(TINY, byte_ids(family.encode()), list(range(40)))
    assert [piece for piece in pieces if piece] == list(family)


def test_special_and_unknown_ids_have_no_text() -> None:
    a, b = byte_ids(b"ab")
    assert TINY.decode([1, a, 2, 0, TINY_VOCAB + 5, -1, b]) == "ab"
    # They do not break a character either.
    first, *rest = byte_ids("é".encode())
    assert TINY.decode([first, 2, *rest]) == "é"


# --- other tokenizers --------------------------------------------------------------


def sentencepiece(prepend: str = "first") -> tokenizers.Tokenizer:
    """A small Metaspace BPE with byte fallback, as SentencePiece models convert to."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", "h", "i", "o", "▁h", "▁hi"]
    inner = tokenizers.Tokenizer(
        models.BPE(
            {piece: i for i, piece in enumerate(pieces)},
            [("▁", "h"), ("▁h", "i")],
            unk_token="<unk>",
            byte_fallback=True,
        )
    )
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend)
    inner.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    inner.add_special_tokens([AddedToken(t, special=True) for t in ("<unk>", "<s>", "</s>")])
    return inner


def test_sentencepiece_ids_and_text() -> None:
    tokenizer = Tokenizer(sentencepiece())
    assert tokenizer.encode("hi") == [264]
    assert tokenizer.encode("hi é") == [264, 259, 3 + 0xC3, 3 + 0xA9]
    assert tokenizer.decode([264, 259, 3 + 0xC3, 3 + 0xA9]) == "hi é"
    assert tokenizer.decode([264, 264]) == "hi hi"


@PROPERTY
@given(st.lists(st.integers(0, 264), max_size=40), st.lists(st.integers(0, 40)))
def test_sentencepiece_stream_adds_up(ids: list[int], cuts: list[int]) -> None:
    tokenizer = Tokenizer(sentencepiece())
    assert "".join(stream(tokenizer, ids, cuts)) == tokenizer.decode(ids)


@pytest.mark.parametrize("prepend", ["first", "always", "never"])
@pytest.mark.parametrize("text", ["hi", " hi", "<s>hi", "<s> hi", "o<s>hi</s>"])
def test_trusted_text_is_encoded_as_the_library_does(prepend: str, text: str) -> None:
    """The library finds special tokens itself when it is allowed to."""
    library = sentencepiece(prepend)
    ours = Tokenizer(sentencepiece(prepend))
    assert ours.encode_trusted(text) == library.encode(text, add_special_tokens=False).ids


def test_decoder_that_is_not_supported() -> None:
    inner = tokenizers.Tokenizer(models.WordPiece({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    inner.decoder = decoders.WordPiece()
    with pytest.raises(ModelError, match=r"decoder \['WordPiece'\] is not supported"):
        Tokenizer(inner)


# --- folders -----------------------------------------------------------------------


def folder(path: Path, **config: Any) -> Path:
    (path / "tokenizer.json").write_text(tiny_inner().to_str())
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


def test_folder_with_named_templates_and_token_objects(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_folder(
        folder(
            tmp_path,
            eos_token={"content": "<|im_end|>"},
            chat_template=[
                {"name": "tool_use", "template": "no"},
                {"name": "default", "template": "{{ messages[0].content }}{{ eos_token }}"},
            ],
        )
    )
    assert tokenizer.chat(chat("the")) == [*tokenizer.encode("the"), 2]
    assert tokenizer.eos_ids == {2}


def test_template_file_wins(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("from the file")
    tokenizer = Tokenizer.from_folder(folder(tmp_path, chat_template="from the configuration"))
    assert tokenizer.render_chat(chat("hi")) == "from the file"


def test_folder_without_configuration(tmp_path: Path) -> None:
    (folder(tmp_path) / "tokenizer_config.json").unlink()
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert tokenizer.encode("the") == TINY.encode("the")
    assert tokenizer.eos_ids == frozenset()
