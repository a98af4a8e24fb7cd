"""Recognises a text by its form, and says the same in another language.

A catalogue's `"{failed:n} of {requests:n} requests failed"` is the form of every text that it can
become. A text from the engine, a report or another process is English; the forms that share its
rarest word are tried, the one that says most first. A place keeps what stood in it, and is
translated itself only where that is a whole text of the catalogue: no word is ever replaced inside
a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping

from console.locale import dates
from console.locale.form import ANY_KEY, LITTLE, NUMBER, PLACE, WORD, Form, plain
from console.locale.words import VERDICTS

_PROSE = re.compile(r"(?<![\w./-])(?:[A-Za-z]{2,} [a-z]{2,}|[a-z]{2,} [A-Za-z]{2,})(?![\w/=-])")
"""Two words, not both with a capital: that is a name."""
_SIGN = re.compile(r"[▲✓✗?▶·•…☐☑☒○●◌×≠→~+-] ")
_COUNT = re.compile(rf"({NUMBER}) ([a-z][a-z ]*)")
"""A number of what has a name: "3 pass"."""
_VALUE = re.compile(rf"([^:;,]*[A-Za-z]) ([<>≈]? ?(?:{NUMBER})(?: ?%| [a-zA-Z/]{{1,5}})?)")
"""A label and its value: "load 89 %"."""
_UNIT = re.compile(r"(.+) \((tokens|ms|s|%|[KMG]iB)\)")
_ASIDE = re.compile(r"([^(]+) \(([^()]+)\)")
"""A text and what is added to it: "tokens p99 30 ms (worse)". Both are texts; what is
beside a name may be a name, but for counts: "pass (10 pass, 9 skip)"."""
_SHARE = re.compile(r"([\d.,]+ ?%) of ([\d,]+)")
"""A part of a whole: "9% of 512". Of counts, "3 of 40" may be the third."""
_SEVERAL = {"\n": "\n", "; ": "；", " · ": " · ", ". ": "。", ": ": "：", ", ": "、", " → ": " → "}
"""What joins several texts to one, and how the other language joins them."""
_COLUMNS = {"  ": "  "}
MOST_PARTS = 16
DEPTH = 5
"""Texts in places of texts."""
_QUOTED = re.compile(r"(?<!\w)'[^']*'(?!\w)|\"[^\"]*\"|“[^”]*”|`[^`]*`")
"""Words of others in a text of ours."""
_KEY = re.compile(r"([a-z][a-z0-9_]*): ")
_TORN = re.compile(r"^[;,:.)]\s|[;:,(]$")
"""What begins or ends amid a sentence: the form is another one."""
MOST_KNOWN = 20_000
"""Texts that are remembered."""
SURE = 10
"""Letters from which a form is taken though a place of it holds prose that is not known."""
SURE_OF_END = 6
"""The same where only what stands behind its last colon is not known."""
NAMES = {
    "any_key",
    "args",
    "causes",
    "field",
    "flag",
    "gates",
    "hints",
    "id",
    "judged",
    "key",
    "kinds",
    "known",
    "metrics",
    "name",
    "name_or_path",
    "names",
    "not_run",
    "option",
    "rule",
    "rules",
    "speculate",
    "steps",
    "target",
    "withheld",
}
"""Places of names. A name stays, though it be a word that a label has, too."""
_NAME = re.compile(rf"(?!(?:{'|'.join(VERDICTS)})$)[a-z][a-z0-9_.\[\]]*(, [a-z][a-z0-9_.\[\]]*)*")
_NAMES = re.compile(r"(?=.*[_.-])[a-z][\w.\[\]-]*(, [a-z][\w.\[\]-]*)+")
"""Several names: one of them at least is no word."""


def _turned(text: str) -> str:
    """With a capital where it has none: a text may stand first in a line, or not."""
    return text[:1].swapcase() + text[1:]


class Forms:
    """All texts of the catalogues: msgid -> translation."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._said = {re.sub(PLACE, r"{\1}", k): v for k, v in texts.items()}
        self._exact = {plain(k): plain(v) for k, v in texts.items() if not PLACE.search(k)}
        forms = [Form(k, v) for k, v in (*texts.items(), *_of_any_key(texts)) if PLACE.search(k)]
        counts: dict[str, int] = {}
        words = [form.words() for form in forms]
        for several in words:
            for word in several:
                counts[word] = counts.get(word, 0) + 1
        self._known: dict[tuple[str, int, bool], str | None] = {}
        self._by_word: dict[str, list[Form]] = {}
        for form, several in zip(forms, words, strict=True):
            if not form.letters:  # signs alone: only what names it is said so
                continue
            rarest = min(several, key=lambda w: (counts[w], -len(w)), default="")
            self._by_word.setdefault(rarest, []).append(form)

    def said(self, msgid: str) -> str | None:
        """The translation of a form, its places in it."""
        return self._said.get(msgid)

    def translate(self, text: str, depth: int = DEPTH, sure: bool = False) -> str | None:
        """None for what is no text of the catalogue, nor joined of such. How its blanks and lines
        were broken is of no account. `sure`: nothing in it is of others."""
        key = text, depth, sure
        known = self._known.get(key, "")
        if known == "":
            if len(self._known) > MOST_KNOWN:
                self._known.clear()
            known = self._known[key] = self._translated(text, depth, sure)
        return known

    def _translated(self, text: str, depth: int, sure: bool) -> str | None:
        joined = " ".join(text.split())
        if (found := dates.said(joined)) is not None:
            return found
        if (share := _SHARE.fullmatch(joined)) is not None:
            return f"{share[2]} 的 {share[1]}"
        if found := self._exact.get(joined) or self._exact.get(_turned(joined)):
            return found
        if (sign := _SIGN.match(joined)) and (found := self._exact.get(joined[sign.end() :])):
            return sign[0] + found
        if depth == 0 or not WORD.search(joined) or _NAMES.fullmatch(joined):
            return None
        if re.search(r"\S  +\S", text) and (found := self._joined(text, depth, _COLUMNS)):
            return found
        if "\n" in text.strip() and (found := self._joined(text, depth)) is not None:
            return found
        candidates = self._candidates(joined)
        return (
            self._first([c for c in candidates if not _swallows(*c, self._exact)], depth)
            or self._marked(joined, depth)
            or self._joined(joined, depth, sure=True)
            or self._first(candidates, depth)
            or (None if sure else self._surest(candidates, depth) or self._joined(joined, depth))
        )

    def translate_some(self, text: str) -> str | None:
        """Of clauses that are joined by "; " those that are known; the others are not ours."""
        parts = " ".join(text.split()).split("; ")
        said = [self.translate(part) for part in parts]
        if len(parts) == 1 or not any(said):
            return None
        return "；".join(other or part for other, part in zip(said, parts, strict=True))

    def _marked(self, text: str, depth: int) -> str | None:
        """A text behind a sign, "✓ pass", or with a stop behind it."""
        if (sign := _SIGN.match(text)) is not None:
            found = self.translate(text[sign.end() :], depth - 1)
            return found and sign[0] + found
        if (count := _COUNT.fullmatch(text)) is not None:
            found = self.translate(count[2], depth - 1)
            is_state = count[2] in VERDICTS or count[2].endswith("ed")
            return found and (f"{found} {count[1]}" if is_state else f"{count[1]} {found}")
        if (unit := _UNIT.fullmatch(text)) is not None:
            found = self.translate(unit[1], depth - 1)
            return found and f"{found}（{unit[2]}）"
        if (aside := _ASIDE.fullmatch(text)) is not None:
            several = [self.translate(part, depth - 1) for part in aside.groups()]
            told = [s or _wordless(part) for s, part in zip(several, aside.groups(), strict=True)]
            counted = several[1] is not None and _COUNT.match(aside[2])
            sure = counted or not _NAME.fullmatch(aside[1])
            if sure and any(several) and None not in told:
                return f"{told[0]}（{told[1]}）"
        if (dated := dates.LAST.fullmatch(text)) is not None:
            found = self.translate(dated[1], depth - 1)
            return found and f"{found} {dates.said(dated[2])}"
        if (value := _VALUE.fullmatch(text)) is not None:
            found = self.translate(value[1], depth - 1)
            return found and f"{found} {value[2]}"
        if text.endswith(".") and not text.endswith(".."):
            found = self.translate(text[:-1], depth - 1)
            return found and found + "。"
        return None

    def _candidates(self, text: str) -> list[tuple[Form, dict[str, str]]]:
        words = {"", *WORD.findall(text), *WORD.findall(_turned(text))[:1]}
        forms = [form for word in words for form in self._by_word.get(word, ())]
        forms.sort(
            key=lambda f: (
                -f.letters,
                not text.startswith(f.first),
                -f.numbers,
                -len(f.names),
                f.msgid,
            )
        )
        return [(f, values) for f in forms if (values := f.match(text)) is not None]

    def _first(self, found: list[tuple[Form, dict[str, str]]], depth: int) -> str | None:
        """By the form that says most, of those whose places hold nothing but what is known."""
        for form, values in found:
            said = self._values(form, values, depth)
            if None not in said.values():
                return form.say({name: text or "" for name, text in said.items()})
        return None

    def _surest(self, found: list[tuple[Form, dict[str, str]]], depth: int) -> str | None:
        """A place may hold the words of others: an error of the system, what a server answered."""
        for at, (form, values) in enumerate(found):
            said = self._values(form, values, depth)
            unknown = [name for name, text in said.items() if text is None]
            at_its_end = form.ends_with_words and unknown == form.names[-1:]
            enough = SURE_OF_END if at_its_end else SURE
            if form.letters >= enough and (at_its_end or at == 0):
                return form.say({n: values[n] if t is None else t for n, t in said.items()})
        return None

    def _values(self, form: Form, values: Mapping[str, str], depth: int) -> dict[str, str | None]:
        return {
            name: value
            if name in form.code
            or (name.rstrip("0123456789") in NAMES and _NAME.fullmatch(value.rpartition(": ")[2]))
            else self._value(value, depth)
            for name, value in values.items()
        }

    def _value(self, value: str, depth: int) -> str | None:
        if _QUOTED.fullmatch(value):
            return value
        if _TORN.search(value):
            return None
        found = self.translate(value, depth - 1)
        return found if found is not None else _wordless(value)

    def _joined(
        self, text: str, depth: int, signs: Mapping[str, str] = _SEVERAL, sure: bool = False
    ) -> str | None:
        """Several texts in one: each of them must be known, or have no words."""
        for sign, other in signs.items():
            for at in _places_of(sign, text):
                parts = text[:at], text[at + len(sign) :]
                named = sign == ": " and _NAME.fullmatch(parts[0]) and _PROSE.search(parts[1])
                first = None if named else self.translate(parts[0], depth - 1, sure)
                said = first, self.translate(parts[1], depth, sure)
                known = [s or _wordless(part) for s, part in zip(said, parts, strict=True)]
                if any(said) and None not in known:
                    return other.join(part or "" for part in known)
        return None


def _wordless(text: str) -> str | None:
    return None if _PROSE.search(_QUOTED.sub("", text)) else text


def _swallows(form: Form, values: Mapping[str, str], known: Container[str]) -> bool:
    """It may be more than one text, of which the form is one: to be read otherwise if it can."""
    others = {name: value for name, value in values.items() if value not in known}
    return (
        form.of_any_key
        or any("; " in value for value in others.values())
        or (form.begins_with_place and ": " in others.get(form.names[0], ""))
    )


def _places_of(sign: str, text: str) -> Iterator[int]:
    """Where a text may be parted: not in a quotation, nor between brackets, nor a long list."""
    if text.count(sign) > MOST_PARTS:
        return
    quoted = [found.span() for found in _QUOTED.finditer(text)]
    for found in re.finditer(re.escape(sign), text):
        at, before = found.start(), text[: found.start()]
        if before.count("(") <= before.count(")") and not any(a < at < b for a, b in quoted):
            yield at


def _of_any_key(texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """ "requests: expected {n}" as "{any_key}: expected {n}" too."""
    for msgid, said in texts.items():
        key = _KEY.match(msgid)
        if key is not None and said.startswith(key[1]):
            rest = msgid[key.end() :]
            if sum(map(len, WORD.findall(PLACE.sub("", rest)))) >= LITTLE:
                yield ANY_KEY + rest, f"{{any_key}}{said[len(key[1]) :]}"
