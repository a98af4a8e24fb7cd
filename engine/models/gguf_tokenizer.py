"""The tokenizer that a GGUF file describes in its metadata, rebuilt.

GGUF keeps the vocabulary and merges (or scores) and only *names* the pre-tokenizer, so the
split patterns of the supported families are written out here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from tokenizers import Tokenizer as Inner

from engine.errors import ModelError
from engine.text.tokenizer import Tokenizer

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4
"""Token types; all but the first stand apart from the vocabulary's text."""

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_LLAMA3 = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}{{1,3}}|{_TAIL}"
_QWEN2 = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}|{_TAIL}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|"
    rf"\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _gpt2() -> list[Any]:
    return [pre_tokenizers.ByteLevel(add_prefix_space=False)]


def _smollm() -> list[Any]:
    return [pre_tokenizers.Digits(individual_digits=True), *_gpt2()]


def _pattern(pattern: str) -> Callable[[], list[Any]]:
    return lambda: [
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]


_PRE: dict[str, Callable[[], list[Any]]] = {
    "default": _gpt2,
    "gpt-2": _gpt2,
    "smollm": _smollm,
    "llama-bpe": _pattern(_LLAMA3),
    "llama3": _pattern(_LLAMA3),
    "llama-v3": _pattern(_LLAMA3),
    "qwen2": _pattern(_QWEN2),
    "deepseek-r1-qwen": _pattern(_QWEN2),
    "tekken": _pattern(_TEKKEN),
}
_TIKTOKEN = {"llama-bpe", "llama3", "llama-v3", "tekken"}
"""Of this origin: a word that is a token is taken as it is, whether or not merges lead to it,
and prompts start with BOS unless the file says otherwise."""


def build_tokenizer(metadata: dict[str, Any], where: str) -> Tokenizer:
    """ModelError when the metadata is incomplete or of a kind that is not supported."""
    source = _Source(metadata, where)
    kind = metadata.get("tokenizer.ggml.model")
    if kind == "gpt2":
        inner = _byte_level(source)
    elif kind == "llama":
        inner = _sentencepiece(source)
    else:
        raise ModelError(
            f"{where}: tokenizer {kind!r} is not supported; supported: gpt2 (byte-level BPE), "
            "llama (SentencePiece)"
        )
    inner.add_special_tokens(source.added(_CONTROL, _UNKNOWN))
    inner.add_tokens(source.added(_USER_DEFINED))
    _frame(inner, source, bos_by_default=kind == "llama" or source.get("pre") in _TIKTOKEN)
    template = metadata.get("tokenizer.chat_template")
    if not isinstance(template, str):
        template = None
    roles = {"unk_token": "unknown", "pad_token": "padding", "sep_token": "seperator"}
    tokens = {name: text for name, role in roles.items() if (text := source.token(role))}
    ends = [source.get(f"{role}_token_id") for role in ("bos", "eos", "eot", "eom")]
    known = [i for i in ends if isinstance(i, int)]
    bos, eos = source.token("bos"), source.token("eos")
    silent = kind == "gpt2" and source.get("pre") is None
    notes = [f"{where}: names no pre-tokenizer; text is split as GPT-2's"] if silent else []
    return Tokenizer(inner, bos, eos, template, where, tokens, known, notes)


class _Source:
    """Checked reads of `tokenizer.ggml.*`."""

    def __init__(self, metadata: dict[str, Any], where: str) -> None:
        self._metadata, self._where = metadata, where
        self.tokens: list[str] = self.items("tokens", str)
        no_types = [_NORMAL] * len(self.tokens)
        self.types: list[int] = self.items("token_type", int, no_types)
        self._same_length("token types", self.types)

    def get(self, key: str, default: Any = None) -> Any:
        return self._metadata.get(f"tokenizer.ggml.{key}", default)

    def items(self, key: str, kind: type, default: list[Any] | None = None) -> list[Any]:
        value = self.get(key, default)
        if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
            problem = "is missing" if value is None else f"is not a list of {kind.__name__}"
            raise ModelError(f"{self._where}: tokenizer.ggml.{key} {problem}")
        return value

    def merges(self) -> list[tuple[str, str]]:
        pairs = []
        for merge in self.items("merges", str):
            left, space, right = merge.partition(" ")
            if not space:
                raise ModelError(f"{self._where}: merge {merge!r} is not two tokens")
            pairs.append((left, right))
        return pairs

    def scores(self) -> dict[str, float]:
        """Of the tokens that text can become."""
        scores = self.items("scores", float)
        self._same_length("scores", scores)
        every = zip(self.tokens, scores, self.types, strict=True)
        return {token: score for token, score, kind in every if kind == _NORMAL}

    def _same_length(self, what: str, items: list[Any]) -> None:
        if len(items) != len(self.tokens):
            raise ModelError(f"{self._where}: {len(self.tokens)} tokens but {len(items)} {what}")

    def pre_tokenizer(self) -> str:
        name = self.get("pre", "default")
        if name not in _PRE:
            raise ModelError(
                f"{self._where}: pre-tokenizer {name!r} is not supported; "
                f"supported: {', '.join(_PRE)}"
            )
        return name

    def token(self, role: str) -> str | None:
        """Text of the BOS, EOS … token."""
        number = self.get(f"{role}_token_id")
        known = isinstance(number, int) and 0 <= number < len(self.tokens)
        return self.tokens[number] if known else None

    def added(self, *types: int) -> list[AddedToken]:
        special = _USER_DEFINED not in types
        return [
            AddedToken(token, special=special, normalized=False)
            for token, kind in zip(self.tokens, self.types, strict=True)
            if kind in types and token
        ]

    @property
    def vocab(self) -> dict[str, int]:
        return {token: i for i, token in enumerate(self.tokens)}

    def model(self, merges: list[tuple[str, str]], **options: Any) -> Inner:
        try:
            return Inner(models.BPE(self.vocab, merges, **options))
        except Exception as error:  # the Rust side raises bare Exception
            raise ModelError(f"{self._where}: vocabulary and merges disagree ({error})") from error


def _byte_level(source: _Source) -> Inner:
    name = source.pre_tokenizer()
    inner = source.model(source.merges(), ignore_merges=name in _TIKTOKEN)
    if name == "qwen2":
        inner.normalizer = normalizers.NFC()
    inner.pre_tokenizer = pre_tokenizers.Sequence(_PRE[name]())
    inner.decoder = decoders.ByteLevel()
    return inner


def _sentencepiece(source: _Source) -> Inner:
    """SentencePiece BPE: the pair whose merged piece scores best merges first."""
    inner = source.model(
        _merges_by_score(source.scores()),
        unk_token=source.token("unknown"),
        fuse_unk=True,
        byte_fallback=True,
    )
    prefix = source.get("add_space_prefix", True)
    before = [normalizers.Prepend("▁")] if prefix else []
    inner.normalizer = normalizers.Sequence([*before, normalizers.Replace(" ", "▁")])
    strip = [decoders.Strip(" ", 1, 0)] if prefix else []
    inner.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return inner


def _merges_by_score(scores: dict[str, float]) -> list[tuple[str, str]]:
    """Every way to join two pieces into a third, the best third first."""
    ranked = [
        (-score, cut, token)
        for token, score in scores.items()
        for cut in range(1, len(token))
        if token[:cut] in scores and token[cut:] in scores
    ]
    return [(token[:cut], token[cut:]) for _, cut, token in sorted(ranked)]


def _frame(inner: Inner, source: _Source, bos_by_default: bool) -> None:
    """Put BOS before and EOS after a prompt where the file asks for them."""
    before = source.token("bos") if source.get("add_bos_token", bos_by_default) else None
    after = source.token("eos") if source.get("add_eos_token", False) else None
    ends = [token for token in (before, after) if token]
    if ends:
        inner.post_processor = processors.TemplateProcessing(
            single=" ".join(filter(None, (before, "$A", after))),
            special_tokens=[(token, inner.token_to_id(token)) for token in ends],
        )
