"""Recorder: writes what an engine shows to a file, for `evewatch replay`.

About one chunk a second reaches the operating system, so a process that is killed loses no more
than that. A keyframe begins a new segment now and then: seeking unpacks one segment.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import zstandard

from console.recording.codec import State, difference, state_of
from console.recording.file import HEAD, KEYFRAME, MAGIC, MORE, SCHEMA, packed, read_chunk
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.paths import user_folder
from engine.snapshot import SCHEMA as SNAPSHOT_SCHEMA
from engine.snapshot import Snapshot

SUFFIX = ".everec"
CHUNK_S = 1.0
SEGMENT_S = 30.0
LEVEL = 7
"""Of zstd: an hour gets a third smaller than at 3, for a tenth of a millisecond a second."""
FOLDER_BYTES = 256 << 20
"""Recordings made from the console are kept up to this size together."""


@dataclass(frozen=True)
class About:
    """What is known before the first frame."""

    target: str
    hz: float
    config: EngineConfig | None = None

    def head(self, created: float) -> bytes:
        config = None if self.config is None else asdict(self.config)
        about = {
            "schema": SCHEMA,
            "snapshot_schema": SNAPSHOT_SCHEMA,
            "created": round(created, 3),
            "hz": self.hz,
            "target": self.target,
            "config": config,
        }
        return json.dumps(about, default=str).encode("utf-8")


class Recorder:
    """`add` Snapshots in the order of time, then `close`.

    With `max_bytes` the oldest segments are dropped when the file grows beyond it. `clock` is
    Unix seconds. Raises ConfigError when the file cannot be made or written.
    """

    def __init__(
        self,
        path: Path,
        about: About,
        clock: Callable[[], float] = time.time,
        max_bytes: int | None = None,
    ) -> None:
        self.path, self.frames, self.bytes = path, 0, 0
        self._clock, self._max_bytes = clock, max_bytes
        self._began: float | None = None
        self._state: State | None = None
        self._last: Snapshot | None = None
        self._segment_until = self._chunk_until = 0.0
        self._pack = zstandard.ZstdCompressor(level=LEVEL).compressobj()
        self._kind, self._payload, self._chunk_time = MORE, bytearray(), 0.0
        self._chunk_frames = self._chunk_events = 0
        self._head = MAGIC + packed(HEAD, about.head(clock()), clock())
        self._file = self._guard(self._open)
        self._guard(lambda: self._write(self._head))

    # writing

    def add(self, snapshot: Snapshot) -> None:
        """Does nothing for one that was added before."""
        last = self._last
        if last is not None and (snapshot is last or _is_same(snapshot, last)):
            return
        self._last = snapshot
        now = self._clock()
        if self._began is None:
            self._began = now
        if now >= self._segment_until:
            self._begin_segment(now)
        elif now >= self._chunk_until:
            self.flush()
        self._append(snapshot, now)

    def flush(self) -> None:
        """Hand what there is to the operating system."""
        if not self._chunk_frames:
            return
        self._payload += self._pack.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        chunk = packed(
            self._kind,
            bytes(self._payload),
            self._chunk_time,
            self._chunk_frames,
            self._chunk_events,
        )
        self._guard(lambda: self._write(chunk))
        self._kind, self._chunk_frames, self._chunk_events = MORE, 0, 0
        self._payload.clear()
        if self._max_bytes is not None and self.bytes > self._max_bytes:
            self._guard(self._drop_oldest)

    def close(self) -> None:
        """Idempotent."""
        if not self._file.closed:
            try:
                self.flush()
            finally:
                self._file.close()

    def _append(self, snapshot: Snapshot, now: float) -> None:
        state, before = state_of(snapshot), self._state
        delta = state if before is None else difference(before, state)
        ms = round((now - (self._began or now)) * 1e3)
        line = json.dumps([ms, delta], separators=(",", ":"), allow_nan=False) + "\n"
        if not self._chunk_frames:
            self._chunk_time, self._chunk_until = now, now + CHUNK_S
        self._payload += self._pack.compress(line.encode("utf-8"))
        self._chunk_frames += 1
        if before is not None and "events" in delta:
            self._chunk_events += len(delta["events"][1])
        self._state = state
        self.frames += 1

    def _begin_segment(self, now: float) -> None:
        self.flush()
        self._state, self._kind = None, KEYFRAME
        self._segment_until = now + SEGMENT_S
        self._pack = zstandard.ZstdCompressor(level=LEVEL).compressobj()

    # the file

    def _open(self) -> IO[bytes]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return self.path.open("xb", buffering=0)

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self.bytes += len(data)

    def _drop_oldest(self) -> None:
        """Keep the newest segments, up to half of what is allowed, in a file of the same name.

        The old file stays whole until the new one takes its place.
        """
        data = self.path.read_bytes()
        at, keyframes = len(self._head), []
        while not isinstance(chunk := read_chunk(data, at), str):
            if chunk.kind == KEYFRAME:
                keyframes.append(chunk.at)
            at = chunk.end
        room = (self._max_bytes or 0) // 2
        start = next((k for k in keyframes if len(data) - k <= room), keyframes[-1])
        if start == keyframes[0]:
            return
        part = self.path.with_name(self.path.name + ".part")
        part.write_bytes(self._head + data[start:])
        self._file.close()
        os.replace(part, self.path)
        self._file = self.path.open("ab", buffering=0)
        self.bytes = len(self._head) + len(data) - start

    def _guard(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except FileExistsError as error:
            raise ConfigError(f"{self.path}: exists already; choose another name") from error
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be written ({error.strerror})") from error


def _is_same(a: Snapshot, b: Snapshot) -> bool:
    return (a.seq, a.time, a.source) == (b.seq, b.time, b.source)


class Source(Protocol):
    """Whatever has Snapshots."""

    def snapshot(self) -> Snapshot: ...


class RecorderThread:
    """Records `source` at `hz` on a thread of its own until stopped; `error` says why it ended
    before that."""

    def __init__(self, source: Source, recorder: Recorder, hz: float) -> None:
        self.recorder = recorder
        self.error: ConfigError | None = None
        self._source, self._interval = source, 1.0 / hz
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="evewatch-recorder", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(10)

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def wait(self, seconds: float) -> bool:
        """Whether it has ended within that time."""
        self._thread.join(seconds)
        return not self.running

    def _run(self) -> None:
        watch_pages = getattr(self._source, "watch_pages", None)
        due = time.monotonic()
        try:
            while not self._ended.is_set():
                if watch_pages is not None:
                    watch_pages()
                self.recorder.add(self._source.snapshot())
                due = max(due + self._interval, time.monotonic() - self._interval)
                self._ended.wait(max(0.0, due - time.monotonic()))
        except ConfigError as error:
            self.error = error
        finally:
            with suppress(ConfigError):
                self.recorder.close()


def recordings_folder() -> Path:
    return user_folder() / "recordings"


def new_path(folder: Path, now: float) -> Path:
    """A name that sorts by time and is not taken."""
    stem = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    names = (f"{stem}{f'-{i}' if i else ''}{SUFFIX}" for i in range(10_000))
    return next(folder / name for name in names if not (folder / name).exists())


def prune(folder: Path, keep_bytes: int = FOLDER_BYTES) -> list[Path]:
    """Delete the oldest recordings until those that stay are small enough together."""
    files = sorted(folder.glob(f"*{SUFFIX}"), key=lambda path: path.name, reverse=True)
    total, gone = 0, []
    for path in files:
        with suppress(OSError):
            total += path.stat().st_size
            if total > keep_bytes:
                path.unlink()
                gone.append(path)
    return gone
