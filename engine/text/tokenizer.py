"""Text to token ids and back.

Special tokens (those that a model reads as structure: end of turn, start of header) are
treated differently on each side of the trust line. Text of a user never yields one, in a
plain prompt or in a chat message: "<|im_end|>" typed by a user is ten ordinary characters.
Text of the model's own chat template does. On the way out they are not text and vanish.

Every supported tokenizer can name the bytes of each id, so decoding is a table and an
incremental UTF-8 decoder. That makes streaming exact and O(1) a token.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tokenizers

from engine.errors import ModelError, RequestError
from engine.text.chat import GUARD, ChatTemplate
from engine.text.completion import Chat, Messages, Prompt, as_chat, is_token_ids
from engine.text.control import mark_control, splitter
from engine.text.pieces import BYTE_CHARS, pieces_of, take_first_space

TURN_ENDS = (
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|end_of_text|>", "<|endoftext|>",
    "<|return|>", "<|eot|>", "<|end_of_turn|>", "<|END_OF_TURN_TOKEN|>", "<end_of_turn>",
    "<｜end▁of▁sentence｜>", "</s>",
)  # fmt: skip
"""End an answer when the chat template writes them, whatever a file says of its EOS: conversions
often name only the base model's."""


class Tokenizer:
    """Safe to use from several threads: nothing changes after construction."""

    def __init__(
        self,
        inner: tokenizers.Tokenizer,
        bos: str | None = None,
        eos: str | None = None,
        chat_template: str | None = None,
        where: str = "tokenizer",
        tokens: Mapping[str, object] | None = None,
        ends: Iterable[int] = (),
        notes: Iterable[str] = (),
    ) -> None:
        """`tokens`: more special tokens for the template, by its names. `ends`: ids that end an
        answer or begin a text, whatever their tokens are marked as."""
        notes = [*notes, *mark_control(inner, {*ends}, chat_template or "", where)]
        # Spelled-out special tokens are text; chat() puts the real ones in itself.
        inner.encode_special_tokens = True
        inner.no_truncation()
        inner.no_padding()
        self._inner = inner
        self._first_space = take_first_space(inner)
        added = inner.get_added_tokens_decoder()
        self._special = {token.content: i for i, token in added.items() if token.special}
        self._split = splitter([t for t in added.values() if t.special])
        literal = {i: token.content.encode() for i, token in added.items()}
        for special in self._special.values():
            literal[special] = b""
        self.pieces, self.strips_space = pieces_of(inner, literal, where)
        named = {"bos_token": bos or "", "eos_token": eos or "", **(tokens or {})}
        self._chat = ChatTemplate(chat_template, named, where) if chat_template else None
        self.eos_ids = self._find_eos(eos)
        self._letters = self._reached_by_letters()
        problem = self._chat and self._chat.problem
        told = [f"{problem}; prompts without it work"] if problem else []
        self.notes = (*notes, *told)
        """What whoever starts the model should know, one line each."""

    @classmethod
    def from_folder(cls, folder: Path, ends: Iterable[int] = ()) -> Tokenizer:
        """From tokenizer.json and, where there are, tokenizer_config.json and a template."""
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ModelError(f"{path}: missing; tokenizers in other formats are not read")
        try:
            inner = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the Rust side raises bare Exception
            raise ModelError(f"{path}: not a tokenizer ({error})") from error
        config = _read_config(folder / "special_tokens_map.json") | {
            key: value
            for key, value in _read_config(folder / "tokenizer_config.json").items()
            if value is not None
        }
        more = config.get("extra_special_tokens")
        config = (more if isinstance(more, dict) else {}) | config
        bos, eos = _token_text(config.get("bos_token")), _token_text(config.get("eos_token"))
        tokens = {
            key: [_token_text(item) for item in value] if isinstance(value, list) else text
            for key, value in config.items()
            if key.endswith(("_token", "_special_tokens"))
            and ((text := _token_text(value)) is not None or isinstance(value, list))
        }
        template, notes = _find_template(folder, config)
        return cls(inner, bos, eos, template, str(folder), tokens, ends, notes)

    @property
    def vocab_size(self) -> int:
        """Ids are below this."""
        return len(self.pieces)

    def same_vocabulary(self, other: Tokenizer) -> bool:
        """Every id stands for the same token."""
        return bool(self._inner.get_vocab() == other._inner.get_vocab())

    @property
    def special_ids(self) -> frozenset[int]:
        return frozenset(self._special.values())

    @property
    def has_chat(self) -> bool:
        return self._chat is not None and self._chat.works

    def id_of(self, token: str) -> int | None:
        """The id of a token as the vocabulary spells it."""
        return self._inner.token_to_id(token)

    def ids(self, prompt: Prompt, add_special: bool = True) -> list[int]:
        """Ids of whatever a prompt is. Raises what `encode` and `chat` raise."""
        if isinstance(prompt, str):
            return self.encode(prompt, add_special)
        return list(prompt) if is_token_ids(prompt) else self.chat(prompt)  # type: ignore[arg-type]

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        """Ids of a user's text. `add_special` puts BOS before it if the model wants one.

        RequestError for text that is not valid Unicode (a lone surrogate).
        """
        return self._encode(text, add_special, self._first_space)

    def encode_trusted(self, text: str) -> list[int]:
        """Ids of text in which special tokens are spelled out and meant; adds none."""
        ids: list[int] = []
        at = 0
        for match in self._split.finditer(text) if self._split else ():
            ids += self._encode_part(text, at, match.start())
            ids.append(self._special[match[match.lastindex or 0]])
            at = match.end()
        return ids + self._encode_part(text, at, len(text))

    def chat(self, chat: Chat | Messages) -> list[int]:
        """Ids of a conversation, in the model's own format, ready for its answer.

        Special tokens come from the template only; in roles and contents they are text.
        RequestError when there is no template or it refuses the messages.
        """
        return self.encode_trusted(self._render(chat))

    def render_chat(self, chat: Chat | Messages) -> str:
        """The conversation as text, to read. `chat` gives its ids."""
        return self._render(chat).replace(GUARD, "")

    @property
    def template(self) -> ChatTemplate | None:
        return self._chat

    def detokenizer(self) -> Detokenizer:
        """For one request's output."""
        return Detokenizer(self)

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids; special tokens and ids without a text give none, bad bytes U+FFFD."""
        detokenizer = self.detokenizer()
        return detokenizer.push(list(ids)) + detokenizer.flush()

    def _render(self, chat: Chat | Messages) -> str:
        if self._chat is None:
            raise RequestError("messages: this model has no chat template; send a prompt instead")
        chat = as_chat(chat)
        messages, names = self._guard(list(chat.messages)), self._guard(dict(chat.names))
        return self._chat.render(replace(chat, messages=messages, names=names))

    def _guard(self, value: Any) -> Any:
        """The same value with every spelled-out special token broken."""
        if isinstance(value, str) and self._split is not None:
            # Behind the last one too: it may begin another special token.
            return self._split.sub(lambda match: "".join(c + GUARD for c in match[0]), value)
        if isinstance(value, Mapping):
            return {self._guard(key): self._guard(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._guard(item) for item in value]
        return value

    def _encode_part(self, text: str, start: int, stop: int) -> list[int]:
        """Ids of text between two special tokens. Only a text's own start can want a space."""
        part = text[start:stop].replace(GUARD, "")
        return self._encode(part, False, self._first_space and start == 0) if part else []

    def _encode(self, text: str, add_special: bool, first_space: bool) -> list[int]:
        if first_space and text and not text.startswith(" "):
            text = " " + text
        try:
            encoded = self._inner.encode(text, add_special_tokens=add_special)
        except TypeError as error:
            raise RequestError("text: not valid Unicode (a lone surrogate)") from error
        if self._letters.isdisjoint(encoded.ids):
            return encoded.ids
        return self._spelt_out(encoded)

    def _reached_by_letters(self) -> frozenset[int]:
        """Special ids that the vocabulary's own merges make of a user's letters; mostly none."""
        unknown = getattr(self._inner.model, "unk_token", None)
        return frozenset(
            i
            for token, i in self._special.items()
            if token != unknown and i in self._inner.encode(token, add_special_tokens=False).ids
        )

    def _spelt_out(self, encoded: tokenizers.Encoding) -> list[int]:
        """Special ids as their single bytes, but for those that frame the text."""
        texts = {i: token.encode() for token, i in self._special.items() if i in self._letters}
        out: list[int] = []
        for i, is_frame in zip(encoded.ids, encoded.special_tokens_mask, strict=True):
            is_letters = i in texts and not is_frame
            out += [self._byte_id(byte) for byte in texts[i]] if is_letters else [i]
        return out

    def _byte_id(self, byte: int) -> int:
        for spelling in (BYTE_CHARS[byte], f"<0x{byte:02X}>"):
            found = self.id_of(spelling)
            if found is not None and self.pieces[found] == bytes([byte]):
                return found
        raise RequestError(
            f"text: spells a control token, and the vocabulary has no token for byte {byte}"
        )

    def _find_eos(self, eos: str | None) -> frozenset[int]:
        template = self._chat.source if self._chat else ""
        names = [name for name in TURN_ENDS if name in self._special and name in template]
        ids = [self.id_of(name) for name in (*names, eos) if name]
        return frozenset(i for i in ids if i is not None)


class Detokenizer:
    """Streams the text of one request's ids.

    The pieces that `push` and `flush` return add up to `Tokenizer.decode` of all ids. Bytes
    of a character that is not whole yet are held back, at most three.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._pieces = tokenizer.pieces
        self._drop_space = tokenizer.strips_space
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._whole = not self._drop_space
        """No character has begun that is not whole yet, and no space is to be dropped."""

    def push(self, ids: Sequence[int]) -> str:
        """Text that became complete with these ids."""
        pieces = self._pieces
        if self._whole and len(ids) == 1 and 0 <= ids[0] < len(pieces):
            data = pieces[ids[0]]
            if data.isascii():  # most tokens: nothing to decode, nothing to remember
                return data.decode("ascii")
        data = b"".join([pieces[i] for i in ids if 0 <= i < len(pieces)])
        if self._drop_space and data:
            self._drop_space = False
            data = data.removeprefix(b" ")
        text = self._decoder.decode(data)
        self._whole = not self._drop_space and not self._decoder.getstate()[0]
        return text

    def flush(self) -> str:
        """What was held back; an unfinished character becomes U+FFFD."""
        return self._decoder.decode(b"", final=True)


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text("utf-8")) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: not readable JSON ({error})") from error
    if not isinstance(config, dict):
        raise ModelError(f"{path}: expected an object, got {type(config).__name__}")
    return config


def _token_text(value: object) -> str | None:
    """Configurations write a token as its text or as an object that has it."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _find_template(folder: Path, config: dict[str, Any]) -> tuple[str | None, list[str]]:
    """A file of its own wins; of several named templates the default one. And notes."""
    file = folder / "chat_template.jinja"
    try:
        if file.is_file():
            return file.read_text("utf-8"), []
    except (OSError, ValueError) as error:
        raise ModelError(f"{file}: not readable text ({error})") from error
    older = _read_config(folder / "chat_template.json").get("chat_template")
    value = config.get("chat_template", older)
    if isinstance(value, list):
        named = {item.get("name"): item.get("template") for item in value if isinstance(item, dict)}
        value = named.get("default")
        if not isinstance(value, str):
            return None, [
                f"{folder}: none of the chat templates is named default; chats are refused"
            ]
    return (value, []) if isinstance(value, str) else (None, [])
