"""What a row of each trace format says. One parser a format; detection by content.

A parser gets a row (fields of a CSV line, or a JSON object), returns a TraceRow, and raises
ValueError with the reason when the row is malformed.
"""

from __future__ import annotations

import csv
import json
import math
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
    "(Timestamp,Model,Request tokens,Response tokens,…), Mooncake JSON lines (timestamp, "
    "input_length, output_length), Bailian JSON lines (the same with chat_id), ShareGPT JSON "
    "(conversations), or recordings of `load --jsonl`"
)
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


def detect(path: Path, count_tokens: CountTokens | None = None) -> Format:
    """What a file is, by its beginning. Raises ConfigError."""
    head = head_of(path)
    if not head:
        raise ConfigError(f"trace {path}: is empty")
    text_row = _sharegpt(count_tokens or estimate_tokens)
    if head.startswith(b"["):
        return Format("sharegpt", False, array_items, text_row)
    first = head.split(b"\n", 1)[0].decode("utf-8", "replace").strip()
    if first.startswith("{"):
        return _json_lines(path, first, text_row)
    columns = [name.strip().lower() for name in next(csv.reader([first]))]
    for name, named, unit in CSV_FORMATS:
        if set(named) <= set(columns):
            at = tuple(map(columns.index, named))
            if unit is None and _is_number(head, at[0]):
                unit = "s"
            when = _clock_time if unit is None else _counted_time
            return Format(name, True, _csv_rows, _csv_row(at, when), unit)
    raise ConfigError(f"trace {path}: format not known; it reads {KNOWN}")


def _json_lines(path: Path, first: str, text_row: RowOf) -> Format:
    for name, key, has_times, row, unit in (
        ("bailian", '"chat_id"', True, _blocks, "s"),
        ("mooncake", '"input_length"', True, _blocks, "ms"),
        ("recording", '"scheduled_s"', True, _recording, None),
        ("sharegpt", '"conversations"', False, text_row, None),
    ):
        if key in first:
            return Format(name, has_times, _object_rows, row, unit)
    raise ConfigError(f"trace {path}: format not known; it reads {KNOWN}")


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str] | None]]:
    rows = lines_of(path)
    next(rows)  # the header
    for number, line in rows:
        yield number, None if line is None else next(csv.reader([line]))


def _object_rows(path: Path) -> Iterator[tuple[int, Any]]:
    for number, line in lines_of(path):
        try:
            yield number, None if line is None else json.loads(line)
        except (ValueError, RecursionError):
            yield number, None


# --- the formats -----------------------------------------------------------------------


def _csv_row(at: tuple[int, ...], when: Callable[[str], float]) -> RowOf:
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


def _clock_time(text: str) -> float:
    """`2023-11-16 18:15:46.6805900` and ISO 8601 in general, as Unix seconds."""
    moment = datetime.fromisoformat(text.strip())
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _is_number(head: bytes, column: int) -> bool:
    """Whether that column of the first row is a plain number."""
    row = next(csv.reader(head.decode("utf-8", "replace").split("\n")[1:2]), [])
    return len(row) > column and row[column].strip().replace(".", "", 1).isdigit()


def _counted_time(text: str) -> float:
    return _time(_number(text))


def _blocks(row: Any) -> TraceRow:
    """Mooncake's rows, and Bailian's that took them over."""
    return TraceRow(
        _time(row["timestamp"]),
        _tokens(row["input_length"], least=1),
        _tokens(row["output_length"]),
    )


def _recording(row: Any) -> TraceRow:
    return TraceRow(
        _time(row["scheduled_s"]),
        _tokens(row["prompt_tokens"], least=1),
        _tokens(row["output_tokens"]),
    )


def _sharegpt(count_tokens: CountTokens) -> RowOf:
    def row(item: Any) -> TraceRow:
        turns = item["conversations"]
        if not isinstance(turns, list):
            raise ValueError("conversations is no list")
        for ask, answer in pairwise(turns):
            if ask["from"] in HUMAN and answer["from"] in MODEL:
                prompt = _tokens(count_tokens(ask["value"]), least=1)
                return TraceRow(None, prompt, _tokens(count_tokens(answer["value"])))
        return TraceRow(None, 1, 0)  # nobody answered: like a failed request

    return row


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


CSV_FORMATS: tuple[tuple[str, tuple[str, str, str], str | None], ...] = (
    ("azure", ("timestamp", "contexttokens", "generatedtokens"), None),
    ("burstgpt", ("timestamp", "request tokens", "response tokens"), "s"),
)
"""Name, the columns of time, prompt and output in lower case, and the unit of times;
None where they are dates (seconds where they are plain numbers all the same)."""
