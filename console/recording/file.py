"""The file of a recording: what is written where, and how far it can be trusted.

    MAGIC                                        one line of text
    HEAD  JSON: schema, created, hz, target, config, …
    KEYF  a segment begins: a whole state, then deltas     ┐ again and again,
    MORE  the segment goes on                              ┘ about one chunk a second

Each chunk has a head of its own: kind, length, CRC-32 of head and payload, the time of its first
frame, how many frames and new events are in it. So the heads are the index: a reader finds any
moment and any event without unpacking, a writer that is killed leaves nothing unfinished, and
every flipped or missing byte is noticed at its place. The payload is zstd, one stream a segment,
flushed at the end of each chunk; unpacked, each frame is a line of JSON: [milliseconds since
the first frame, delta].
"""

from __future__ import annotations

import json
import mmap
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from console.recording.codec import State, patched
from engine.errors import ConfigError

MAGIC = b"evewatch recording\n"
SCHEMA = 1
HEAD, KEYFRAME, MORE = b"HEAD", b"KEYF", b"MORE"
_FRONT = struct.Struct("<4sIIdHH")
LONGEST = 64 << 20
"""Bytes of a chunk, packed and unpacked; more is damage."""

Frame = tuple[float, State]
"""Seconds since the recording's first frame, and the state."""


@dataclass(frozen=True, slots=True)
class Chunk:
    kind: bytes
    at: int
    """Where it begins in the file."""
    length: int
    """Of its payload."""
    time: float
    """Unix seconds of its first frame."""
    frames: int
    events: int
    """New ones in its frames."""

    @property
    def end(self) -> int:
        return self.at + _FRONT.size + self.length


@dataclass(frozen=True, slots=True)
class Damage:
    """From here on nothing is played."""

    byte: int
    time: float | None
    """Unix seconds of the last frame before it; None when there is none."""
    reason: str


def packed(kind: bytes, payload: bytes, time: float, frames: int = 0, events: int = 0) -> bytes:
    """A chunk as it stands in the file."""
    fields = (time, min(frames, 0xFFFF), min(events, 0xFFFF))
    crc = zlib.crc32(payload, zlib.crc32(_FRONT.pack(kind, len(payload), 0, *fields)))
    return _FRONT.pack(kind, len(payload), crc, *fields) + payload


def read_chunk(data: bytes | mmap.mmap, at: int) -> Chunk | str:
    """The chunk that begins at `at`, or what is wrong with it."""
    if at + _FRONT.size > len(data):
        return "cut off"
    kind, length, crc, time, frames, events = _FRONT.unpack_from(data, at)
    chunk = Chunk(kind, at, length, time, frames, events)
    if kind not in (HEAD, KEYFRAME, MORE) or length > LONGEST:
        return "not a chunk"
    if chunk.end > len(data):
        return "cut off"
    bare = _FRONT.pack(kind, length, 0, time, frames, events)
    payload = data[at + _FRONT.size : chunk.end]
    return chunk if zlib.crc32(payload, zlib.crc32(bare)) == crc else "wrong checksum"


class Recording:
    """A file that was read and checked as far as it is whole.

    Raises ConfigError when it is no recording, is of a newer schema or has nothing in it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = _contents(path)
        self.about, at = self._head()
        self.damage: Damage | None = None
        self.chunks: list[Chunk] = []
        while at < len(self._data):
            chunk = read_chunk(self._data, at)
            if isinstance(chunk, str) or chunk.kind == HEAD or not self._follows(chunk):
                self.damage = Damage(at, None, chunk if isinstance(chunk, str) else "out of order")
                break
            self.chunks.append(chunk)
            at = chunk.end
        if self.damage is not None:
            last = self.began + self.length_s if self.chunks else None
            self.damage = Damage(at, last, self.damage.reason)
        if not self.chunks:
            what = f"damaged at byte {at} ({self.damage.reason})" if self.damage else "empty"
            raise ConfigError(f"{path}: nothing was recorded in it: {what}")

    def _head(self) -> tuple[dict[str, Any], int]:
        if not self._data:
            raise ConfigError(f"{self.path}: the file is empty")
        if self._data[: len(MAGIC)] != MAGIC:
            raise ConfigError(f"{self.path}: is no recording; `evewatch record` makes one")
        head = read_chunk(self._data, len(MAGIC))
        if isinstance(head, str):
            raise ConfigError(f"{self.path}: damaged at byte {len(MAGIC)} ({head})")
        try:
            about = json.loads(self._payload(head))
            schema = int(about["schema"])
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{self.path}: its head cannot be read ({error})") from error
        if schema > SCHEMA:
            raise ConfigError(
                f"{self.path}: recorded by a newer EveWatch (schema {schema}, this one reads "
                f"{SCHEMA}); update it"
            )
        return about, head.end

    def _follows(self, chunk: Chunk) -> bool:
        return chunk.kind == KEYFRAME or bool(self.chunks)

    def _payload(self, chunk: Chunk) -> bytes:
        return self._data[chunk.at + _FRONT.size : chunk.end]

    @property
    def length_s(self) -> float:
        """From the first frame to the last; unpacks the last segment."""
        frames = list(self.segment(len(self.segments) - 1))
        return frames[-1][0] if frames else max(0.0, self.chunks[-1].time - self.began)

    @property
    def began(self) -> float:
        """Unix seconds of the first frame."""
        return self.chunks[0].time

    @property
    def segments(self) -> list[list[Chunk]]:
        """Chunks that are unpacked together, a keyframe first."""
        found: list[list[Chunk]] = []
        for chunk in self.chunks:
            if chunk.kind == KEYFRAME:
                found.append([])
            found[-1].append(chunk)
        return found

    def segment(self, index: int) -> Iterator[Frame]:
        """Its frames. What cannot be unpacked ends it: see `damage`.

        Their times count from a first frame that may have been dropped since, with the oldest
        segments; a segment's head says when it began.
        """
        state: State | None = None
        unpack = zstandard.ZstdDecompressor().decompressobj()
        chunks, shift = self.segments[index], 0
        starts = round((chunks[0].time - self.began) * 1e3)
        for chunk in chunks:
            try:
                text = unpack.decompress(self._payload(chunk))
                for line in text.splitlines():
                    ms, delta = json.loads(line)
                    if state is None:
                        state, shift = delta, starts - ms
                    else:
                        state = patched(state, delta)
                    yield (ms + shift) / 1e3, state
            except (zstandard.ZstdError, ValueError, KeyError, TypeError, IndexError) as error:
                self._give_up(chunk, f"cannot be unpacked: {error}")
                return
        if state is None:
            self._give_up(chunks[0], "has no frames")

    def _give_up(self, chunk: Chunk, reason: str) -> None:
        """A chunk whose checksum is right and whose content is not: nothing after it is used."""
        if self.damage is None or chunk.at < self.damage.byte:
            self.damage = Damage(chunk.at, chunk.time, reason)
            self.chunks = [c for c in self.chunks if c.at < chunk.at]


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
