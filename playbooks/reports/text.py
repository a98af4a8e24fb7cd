"""Text of others (names, errors, answers of a model), and values of any kind, before they are
shown or written.

What is not ours must not steer a terminal, break a table, or become a formula in a spreadsheet.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from html import escape
from pathlib import Path
from typing import Any

from playbooks.reports.language import say

_STEERING = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def clean(text: str) -> str:
    """Text that cannot steer the terminal: control and invisible characters made visible."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _visible(c) for c in text)


def _visible(char: str) -> str:
    if unicodedata.category(char) == "Zs" or char in "\t\n\r":
        return " "
    code = ord(char)
    return chr(0x2400 + code) if code < 0x20 else "�"


def clean_lines(text: str) -> str:
    """The same for a text of several lines."""
    return "\n".join(map(clean, text.split("\n")))


def html(text: str) -> str:
    """For a page or a drawing, in the reader's language: nothing in it is markup."""
    return escape(clean(say(text)))


def one_line(text: str, width: int) -> str:
    """Clean, at most `width` characters: the middle goes, for what is asked comes last."""
    text = clean(" ".join(text.split()))
    half = width // 2
    return text if len(text) <= width else f"{text[:half]} … {text[-half:]}"


def csv_cell(value: object) -> object:
    """Numbers as they are; a text that a spreadsheet would compute begins with an apostrophe."""
    if not isinstance(value, str):
        return "" if value is None else value
    text = clean_lines(value)
    return f"'{text}" if text.startswith(_FORMULA) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[+-]?[\d.,]+%?", text) is not None


def markdown(text: str) -> str:
    """One line in the reader's language, in which nothing is taken for HTML or for a list, a
    heading or a quote."""
    text = " ".join(clean(say(text)).split()).replace("&", "&amp;").replace("<", "&lt;")
    text = re.sub(r"([*`\[\]])", r"\\\1", text)
    return re.sub(r"^(\d*)([#>+.)-])(?=\s)", r"\1\\\2", text)


def json_text(value: Any, indent: int | None = None, ascii_only: bool = False) -> str:
    """JSON without NaN; what could steer a terminal, or no encoding can write, is escaped."""
    text = json.dumps(
        value, indent=indent, allow_nan=False, ensure_ascii=ascii_only, default=_plain
    )
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def json_values(value: Any) -> Any:
    """Values as JSON has them: NaN and infinities become null, paths and others text."""
    if isinstance(value, bool) or value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()  # a lone surrogate has no UTF-8
    if isinstance(value, Mapping):
        return {json_values(str(key)): json_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_values(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((json_values(item) for item in value), key=str)
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: json_values(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Path):
        return json_values(str(value))
    if hasattr(value, "tolist"):
        return json_values(value.tolist())  # numbers and arrays of numpy's or torch's
    return json_values(str(value))


def _plain(value: object) -> object:
    return sorted(value) if isinstance(value, set | frozenset) else str(value)
