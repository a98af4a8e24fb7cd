"""What a row of each trace format says. One parser a format; detection by content.

A parser gets a row (fields of a CSV line, or a JSON object), returns a TraceRow, and raises
ValueError with the reason when the row is malformed.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from engine.errors import ConfigError
from playbooks.load.lengths import MOST
from playbooks.load.lines import array_items, head_of, lines_of

KNOWN = (
    "Azure CSV (TIMESTAMP,ContextTokens,GeneratedTokens), BurstGPT CSV "
    "(Timestamp,Model,Request tokens,Response tokens,…), CSV with such columns of other names "
    "(arrival_time,input_tokens,output_tokens), Mooncake JSON lines (timestamp, "
    "input_length, output_length), Bailian JSON lines (the same with chat_id), ShareGPT JSON "
    "(conversations), or recordings of `load --jsonl`"
)
COLUMNS = (
    ("timestamp", "arrivaltime", "arrivaltimestamp", "arrivedat", "time"),
    ("contexttokens", "requesttokens", "prompttokens", "inputtokens", "numprefilltokens",
     "inputlength", "inputlen", "promptlength", "promptlen"),
    ("generatedtokens", "responsetokens", "completiontokens", "outputtokens", "numdecodetokens",
     "outputlength", "outputlen", "responselength", "decodelen"),
)  # fmt: skip
"""Names of a CSV's columns of time, prompt and output, in lower case, letters and digits alone."""
TURNS = ("conversations", "conversation", "messages", "items")
_DATE = re.compile(r"\d+[-/.]\d+[-/.]\d|\d{8}T")
CHARACTERS_PER_TOKEN = 4
"""Of English text: how ShareGPT's texts are measured without a tokenizer."""
HUMAN, MODEL = ("human", "user"), ("gpt", "assistant", "chatgpt", "bing", "bard")


class TraceRow(NamedTuple):
    """One request of a trace."""

    at_s: float | None
    """Seconds from a start that the format chose; None where it has no times."""
    prompt: int
    output: int
    """0: the request failed when it was recorded."""
    blocks: tuple[int, ...] | None = None
    """What the prompt's blocks of Format.block_tokens hold: equal numbers, equal text; None: the
    format does not say."""


CountTokens = Callable[[str], int]
RowOf = Callable[[Any], TraceRow]


@dataclass(frozen=True)
class Format:
    name: str
    has_times: bool
    raw_rows: Callable[[Path], Iterator[tuple[int, Any]]]
    """(line number, raw row) of a whole file; a raw row None is one that is no text."""
    row: RowOf
    """Its `at_s` is still in the file's unit."""
    unit: str | None = None
    """Of its times, as the format documents it; None: they say it themselves, and are seconds."""
    block_tokens: int | None = None
    """Of each block of its rows, where it has any."""


def detect(path: Path, count_tokens: CountTokens | None = None) -> Format:
    """What a file is, by its beginning. Raises ConfigError."""
    head = head_of(path)
    if not head:
        raise ConfigError(f"trace {path}: is empty")
    found = _json(path, head, count_tokens) if head[:1] in (b"[", b"{") else _csv(path, head)
    if found is None:
        raise ConfigError(f"trace {path}: format not known; it reads {KNOWN}")
    return found


def _json(path: Path, head: bytes, count_tokens: CountTokens | None) -> Format | None:
    """Lines of objects, or an array of them, known by the first one's keys."""
    raw_rows = array_items if head.startswith(b"[") else _object_rows
    first = next((row for _, row in raw_rows(path)), None)
    if not isinstance(first, dict):  # damaged: by what can be read of it
        first = dict.fromkeys(re.findall(r'"(\w+)"\s*:', head.decode("utf-8", "replace")))
    for name, key, unit, block in (
        ("bailian", "chat_id", "s", 16),
        ("mooncake", "input_length", "ms", 512),
    ):
        if key in first:
            counted = _is_counted(first.get("timestamp"))
            return Format(name, True, raw_rows, _blocks(counted), unit if counted else None, block)
    if "scheduled_s" in first:
        return Format("recording", True, raw_rows, _recording)
    if any(key in first for key in TURNS) or raw_rows is array_items:
        return Format("sharegpt", False, raw_rows, _sharegpt(count_tokens or estimate_tokens))
    return None


def _csv(path: Path, head: bytes) -> Format | None:
    """Columns known by their names, however these are spaced and spelt."""
    header = head.split(b"\n", 1)[0].decode("utf-8", "replace").strip()
    mark = max(",;\t", key=header.count)
    names = [
        re.sub(r"[\W_]", "", name).lower() for name in next(csv.reader([header], delimiter=mark))
    ]
    at = [next((i for i, name in enumerate(names) if name in known), None) for known in COLUMNS]
    time, prompt, output = at
    if time is None or prompt is None or output is None:
        return None

    def raw_rows(path: Path) -> Iterator[tuple[int, list[str] | None]]:
        return _csv_rows(path, mark)

    first = next((row for _, row in raw_rows(path) if row and len(row) > time), None)
    counted = first is None or _is_counted(first[time])
    row = _csv_row((time, prompt, output), _counted_time if counted else _clock_time)
    name = {"contexttokens": "azure", "requesttokens": "burstgpt"}.get(names[prompt], "csv")
    return Format(name, True, raw_rows, row, "s" if counted else None)


def _csv_rows(path: Path, mark: str) -> Iterator[tuple[int, list[str] | None]]:
    rows = lines_of(path)
    next(rows)  # the header
    for number, line in rows:
        try:
            yield number, None if line is None else next(csv.reader([line], delimiter=mark))
        except csv.Error:
            yield number, None


def _object_rows(path: Path) -> Iterator[tuple[int, Any]]:
    for number, line in lines_of(path):
        try:
            yield number, None if line is None else json.loads(line)
        except (ValueError, RecursionError):
            yield number, None


# --- the formats -----------------------------------------------------------------------


def _csv_row(at: tuple[int, int, int], when: Callable[[str], float]) -> RowOf:
    time, prompt, output = at

    def row(fields: list[str]) -> TraceRow:
        if len(fields) <= max(at):
            raise ValueError(f"has {len(fields)} fields")
        return TraceRow(
            when(fields[time]),
            _tokens(_number(fields[prompt]), least=1),
            _tokens(_number(fields[output])),
        )

    return row


def _is_counted(time: Any) -> bool:
    """Whether times are numbers, of some unit; else they are dates, which need none."""
    return not (isinstance(time, str) and _DATE.match(time.strip()))


def _clock_time(text: str) -> float:
    """`2023-11-16 18:15:46.6805900` and ISO 8601 in general, as Unix seconds."""
    try:
        moment = datetime.fromisoformat(re.sub(r"\s*(UTC|GMT)$", "+00:00", text.strip()))
    except ValueError:
        raise ValueError(f"time {text.strip()[:40]!r} is no date of ISO 8601") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _counted_time(text: str) -> float:
    return _time(_number(text))


def _blocks(counted: bool) -> RowOf:
    """Mooncake's rows, and Bailian's that took them over."""
    when = _time if counted else _clock_time

    def row(row: Any) -> TraceRow:
        return TraceRow(
            when(row["timestamp"]),
            _tokens(row["input_length"], least=1),
            _tokens(row["output_length"]),
            _block_ids(row.get("hash_ids")),
        )

    return row


def _block_ids(value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(block) is int for block in value):
        raise ValueError("hash_ids is no list of whole numbers")
    return tuple(value)


def _recording(row: Any) -> TraceRow:
    return TraceRow(
        _time(row["scheduled_s"]),
        _tokens(row["prompt_tokens"], least=1),
        _tokens(row["output_tokens"]),
    )


def _sharegpt(count_tokens: CountTokens) -> RowOf:
    def row(item: Any) -> TraceRow:
        turns = item[next((key for key in TURNS if key in item), TURNS[0])]
        if not isinstance(turns, list):
            raise ValueError("conversations is no list")
        for (asks, ask), (answers, answer) in pairwise(map(_turn, turns)):
            if asks in HUMAN and answers in MODEL:
                prompt = _tokens(count_tokens(ask), least=1)
                return TraceRow(None, prompt, _tokens(count_tokens(answer)))
        return TraceRow(None, 1, 0)  # nobody answered: like a failed request

    return row


def _turn(turn: Any) -> tuple[str, str]:
    """Who speaks, and what."""
    who, what = ("role", "content") if "role" in turn else ("from", "value")
    return turn[who], turn[what]


def estimate_tokens(text: str) -> int:
    return math.ceil(len(text) / CHARACTERS_PER_TOKEN)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text.strip()[:20]!r} is no number") from None


def _time(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"time {str(value)[:20]!r} is no number")
    return float(value)


def _tokens(value: Any, least: int = 0) -> int:
    """A whole number of tokens. `374.0` is one too."""
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not (least <= number <= MOST and number == int(number)):
        raise ValueError(f"length {str(value)[:20]} is not a whole number from {least} to {MOST}")
    return int(number)
