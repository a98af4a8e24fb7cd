"""The file of a recording: JSON lines in zstd frames, so that `zstdcat FILE | jq` reads it.

    head      a frame with one line: {"evewatch_recording": 2, "created", "hz", "target", …}
    segment   a frame with one line for each look (line.py)        ┐ again and again,
                                                                   ┘ every half minute

A frame's blocks have their sizes before them, so segments are found without unpacking and the
file needs no index: whatever a killed recorder leaves is whole up to its last block. A frame ends
with a checksum of its content; of one that fails it nothing is shown. What a frame may take in
memory and unpack to is limited.
"""

from __future__ import annotations

import json
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from console.recording.line import Moment
from engine.errors import ConfigError

SCHEMA = 2
SCHEMA_KEY = "evewatch_recording"
WINDOW_LOG = 22
"""Of zstd: matches reach back 4 MiB, which is all of a segment."""
SEGMENT_BYTES = 1 << WINDOW_LOG
"""Unpacked; after so many a recorder begins a new segment."""
LONGEST = 4 * SEGMENT_BYTES
"""Unpacked; a segment with more is damage."""
HEAD_BYTES = 64 << 10
LINE_HEAD = 64
"""Enough of a line to read its time."""
PIECE = 1 << 20
CUT_OFF = "cut off"
OLD_MAGIC = b"evewatch recording\n"


@dataclass(frozen=True, slots=True)
class Segment:
    begin: int
    """Where its frame lies in the file."""
    end: int
    at: float
    """Unix seconds of its first line."""


@dataclass(frozen=True, slots=True)
class BrokenAt:
    """From here on nothing is played."""

    byte: int
    reason: str
    time: float
    """Unix seconds of the last line before it."""


class Recording:
    """A file as far as it is whole.

    Raises ConfigError when it is no recording, is of another schema or has nothing in it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = _contents(path)
        self._broken: tuple[int, str] | None = None
        self._ended = (0, 0.0)
        """Of how many segments, and when."""
        self.about, at = self._head()
        self.segments = self._find_segments(at)
        if not self.segments or not self.moments(0):
            byte, reason = self._broken or (at, "empty")
            raise ConfigError(f"{path}: nothing was recorded in it: {reason} at byte {byte}")

    @property
    def began(self) -> float:
        """Unix seconds of the first line."""
        return self.segments[0].at

    @property
    def ended(self) -> float:
        """Unix seconds of the last line."""
        while self._ended[0] != (count := len(self.segments)):
            if last := self.moments(count - 1):  # else it has been given up; the first never is
                self._ended = (count, last[-1].at)
        return self._ended[1]

    @property
    def broken(self) -> BrokenAt | None:
        return None if self._broken is None else BrokenAt(*self._broken, self.ended)

    def moments(self, index: int) -> list[Moment]:
        """The lines of a segment; none when it is damaged, and then it and what is behind it are
        no longer in `segments`."""
        if index >= len(self.segments):
            return []
        segment = self.segments[index]
        try:
            text = self._unpacked(segment.begin, segment.end, LONGEST)
            found = [Moment.of(line) for line in text[: text.rfind(b"\n") + 1].splitlines()]
            if not found:
                raise ValueError("no lines")
        except (ValueError, zstandard.ZstdError) as error:
            self._broken = (segment.begin, f"cannot be unpacked ({error})")
            self.segments = self.segments[:index]
            return []
        return found

    # --- finding one's way -----------------------------------------------------------------

    def _head(self) -> tuple[dict[str, Any], int]:
        """What the first line says, and where the segments begin."""
        path, data = self.path, self._data
        if not data:
            raise ConfigError(f"{path}: the file is empty")
        if data[: len(OLD_MAGIC)] == OLD_MAGIC:
            raise ConfigError(
                f"{path}: a recording in the first format, which is no longer read; record anew"
            )
        end = _frame_end(data, 0)
        if isinstance(end, str):
            known = data[:4] == zstandard.FRAME_HEADER
            what = f"damaged at byte 0 ({end})" if known else "is no recording"
            raise ConfigError(f"{path}: {what}; `evewatch record` makes one")
        try:
            about = json.loads(self._unpacked(0, end, HEAD_BYTES))
            schema = int(about[SCHEMA_KEY])
        except (ValueError, KeyError, TypeError, RecursionError, zstandard.ZstdError) as error:
            raise ConfigError(f"{path}: its first line is no recording's ({error!r})") from error
        if schema != SCHEMA:
            raise ConfigError(
                f"{path}: recorded by a newer EveWatch (schema {schema}, this one reads "
                f"{SCHEMA}); update it"
            )
        return about, end

    def _find_segments(self, at: int) -> list[Segment]:
        """As far as the file is whole; the last one may be cut off."""
        found: list[Segment] = []
        while at < len(self._data):
            end = _frame_end(self._data, at)
            if end == CUT_OFF:
                self._broken = (len(self._data), CUT_OFF)
                end = len(self._data)
            try:
                if isinstance(end, str):
                    raise ValueError(end)
                first = Moment.of(self._first_bytes(at, end))
                if found and first.at < found[-1].at:
                    raise ValueError("out of order")
            except (ValueError, zstandard.ZstdError) as error:
                self._broken = (at, CUT_OFF if self._broken else str(error))
                break
            found.append(Segment(at, end, first.at))
            at = end
        return found

    def _first_bytes(self, begin: int, end: int) -> bytes:
        with self._reader(begin, end) as reader:
            return reader.read(LINE_HEAD)

    def _unpacked(self, begin: int, end: int, most: int) -> bytes:
        """ValueError when it is more than `most`; ZstdError when the checksum is wrong."""
        pieces, size = [], 0
        with self._reader(begin, end) as reader:
            while piece := reader.read(PIECE):
                pieces.append(piece)
                size += len(piece)
                if size > most:
                    raise ValueError(f"more than {most >> 10} KiB unpacked")
        return b"".join(pieces)

    def _reader(self, begin: int, end: int) -> zstandard.ZstdDecompressionReader:
        """One of its own for each: they are used on several threads."""
        zstd = zstandard.ZstdDecompressor(max_window_size=1 << WINDOW_LOG)
        return zstd.stream_reader(self._data[begin:end])


def _frame_end(data: bytes | mmap.mmap, at: int) -> int | str:
    """Where the zstd frame at `at` ends (RFC 8878: a head, blocks with their sizes, a checksum),
    or what is wrong with it."""
    head = data[at : at + 18]
    try:
        position = at + zstandard.frame_header_size(head)
        has_checksum = zstandard.get_frame_parameters(head).has_checksum
    except zstandard.ZstdError:
        return "not a frame" if len(head) == 18 or not _may_begin(head) else CUT_OFF
    if not has_checksum:
        return "a frame without a checksum"
    last = 0
    while not last:
        if position + 3 > len(data):
            return CUT_OFF
        block = int.from_bytes(data[position : position + 3], "little")
        last, kind, size = block & 1, block >> 1 & 3, block >> 3
        if kind == 3:
            return "not a block"
        position += 3 + (1 if kind == 1 else size)
    return CUT_OFF if position + 4 > len(data) else position + 4


def _may_begin(head: bytes) -> bool:
    return zstandard.FRAME_HEADER.startswith(head[:4])


def _contents(path: Path) -> bytes | mmap.mmap:
    try:
        with path.open("rb") as file:
            if not path.is_file():
                raise ConfigError(f"{path}: is no file")
            size = path.stat().st_size
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{path}: cannot be read ({reason})") from error
