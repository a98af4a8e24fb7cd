"""Which tokens are control: what a vocabulary marks as such, and what it only spells so.

Files often mark a turn's end as a normal token. Taken at their word, a user's letters would become
it, and an answer would run past it.
"""

from __future__ import annotations

import re

import tokenizers

_SPELLED = re.compile(r"<[|｜][^<>|｜\s]+[|｜]>")
"""How vocabularies spell control tokens, and nothing else."""
_KNOWN = re.compile(
    r"</?s>|<(bos|eos|pad|unk|mask|sep|cls)>|<(start|end)_of_[a-z_]+>|<SPECIAL_\d+>|"
    r"\[/?[A-Z][A-Z_]{2,}\]|\[CONTROL_\d+\]"
)
"""The same for tokens that a file adds to its vocabulary, or that its chat template writes; else
they may be text."""


def mark_control(
    inner: tokenizers.Tokenizer, ends: set[int], template: str, where: str
) -> list[str]:
    """Make special what is control whatever its type says, and name it.

    That is a token that is spelled as control, or one of `ends`, if it is more than one character:
    a single one is text too.
    """
    added = inner.get_added_tokens_decoder()
    special = {token.content for token in added.values() if token.special}
    plain = {token.content: token for token in added.values()}
    odd = [
        token
        for token, i in inner.get_vocab(with_added_tokens=True).items()
        if token not in special
        and (
            _SPELLED.fullmatch(token)
            or (_KNOWN.fullmatch(token) and (token in plain or token in template))
            or (i in ends and len(token) > 1)
        )
    ]
    if not odd:
        return []
    inner.add_special_tokens([_control(token, plain.get(token)) for token in odd])
    shown = ", ".join(sorted(odd)[:4]) + (f" and {len(odd) - 4} more" if len(odd) > 4 else "")
    return [f"{where}: {shown}: control by spelling or use, but not marked so; taken as control"]


def _control(token: str, was: tokenizers.AddedToken | None) -> tokenizers.AddedToken:
    """It keeps its id, and the spaces that it swallows."""
    lstrip, rstrip = (was.lstrip, was.rstrip) if was else (False, False)
    return tokenizers.AddedToken(
        token, special=True, normalized=False, lstrip=lstrip, rstrip=rstrip
    )


def splitter(special: list[tokenizers.AddedToken]) -> re.Pattern[str] | None:
    """Matches any special token, the longest first, with the spaces it swallows around it.

    Each alternative has one group: the token itself.
    """
    if not special:
        return None
    longest_first = sorted(special, key=lambda token: -len(token.content))
    return re.compile(
        "|".join(
            r"\s*" * token.lstrip + f"({re.escape(token.content)})" + r"\s*" * token.rstrip
            for token in longest_first
        )
    )
