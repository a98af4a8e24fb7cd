"""The bytes of every id of a vocabulary, which make decoding a table."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import tokenizers
from tokenizers import pre_tokenizers

from engine.errors import ModelError


def byte_alphabet() -> dict[str, int]:
    """Byte-level BPE writes each byte as one visible character: character -> byte.

    Printable Latin-1 stands for itself; the rest follows from U+0100 on, in byte order.
    """
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = (byte for byte in range(256) if byte not in visible)
    return {chr(b): b for b in visible} | {chr(0x100 + n): b for n, b in enumerate(hidden)}


BYTE_CHARS = {byte: char for char, byte in byte_alphabet().items()}
"""Byte -> its character there."""


def pieces_of(
    inner: tokenizers.Tokenizer, literal: dict[int, bytes], where: str
) -> tuple[list[bytes], bool]:
    """Bytes of every id, and whether a text's first space is not part of it."""
    steps = _decoder_steps(inner)
    kinds = {step["type"] for step in steps}
    vocab = inner.get_vocab(with_added_tokens=True)
    pieces = [b""] * (max(vocab.values(), default=-1) + 1)
    if "ByteLevel" in kinds:
        spell, strips = _byte_level_speller(), False
    elif kinds & {"ByteFallback", "Metaspace"}:
        spell, strips = _sentencepiece_bytes, any(map(_strips_space, steps))
    else:
        raise ModelError(
            f"{where}: tokenizer decoder {sorted(kinds) or 'none'} is not supported; "
            "byte-level BPE and SentencePiece are"
        )
    for token, i in vocab.items():
        pieces[i] = literal[i] if i in literal else spell(token)
    return pieces, strips


def _decoder_steps(inner: tokenizers.Tokenizer) -> list[dict[str, Any]]:
    if inner.decoder is None:
        return []
    decoder = json.loads(inner.decoder.__getstate__())
    return decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]


def _byte_level_speller() -> Callable[[str], bytes]:
    table = byte_alphabet()

    def spell(token: str) -> bytes:
        try:
            return bytes(map(table.__getitem__, token))
        except KeyError:
            return token.encode()  # a token that was added as plain text

    return spell


def _sentencepiece_bytes(token: str) -> bytes:
    if re.fullmatch(r"<0x[0-9A-Fa-f]{2}>", token):
        return bytes([int(token[3:5], 16)])
    return token.replace("▁", " ").encode()


def _strips_space(step: dict[str, Any]) -> bool:
    if step["type"] == "Metaspace":
        return step.get("prepend_scheme", "always") != "never"
    return step["type"] == "Strip" and step.get("content") == " " and step.get("start", 0) > 0


def take_first_space(inner: tokenizers.Tokenizer) -> bool:
    """Turn off Metaspace's space before a text's start; True if `encode` is to write it.

    The library would put it before every part of a chat that `encode_trusted` encodes.
    """
    metaspace = inner.pre_tokenizer
    if not isinstance(metaspace, pre_tokenizers.Metaspace) or metaspace.prepend_scheme != "first":
        return False
    inner.pre_tokenizer = pre_tokenizers.Metaspace(
        metaspace.replacement, prepend_scheme="never", split=metaspace.split
    )
    return True
