"""Recorder: writes what an engine shows to a file, for `evewatch replay`.

What there is reaches the operating system once a second, so a process that is killed loses no more
than that. A new segment begins every half minute: seeking unpacks one segment.
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

from console.recording.file import SCHEMA, SCHEMA_KEY, SEGMENT_BYTES, WINDOW_LOG
from console.recording.line import line_of
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.paths import open_private, private_folder, replace_file, sync_folder, user_folder
from engine.snapshot import SCHEMA as SNAPSHOT_SCHEMA
from engine.snapshot import Snapshot
from playbooks.objectives.file import Objectives

SUFFIX = ".everec"
FLUSH_S = 1.0
SEGMENT_S = 30.0
LEVEL = 9
"""Of zstd: an hour gets a fifth smaller than at 3, for a fifth of a millisecond a second."""
FOLDER_BYTES = 256 << 20
"""Recordings made from the console are kept up to this size together."""


@dataclass(frozen=True)
class About:
    """What is known before the first frame."""

    target: str
    hz: float
    config: EngineConfig | None = None
    objectives: Objectives | None = None
    """What is promised of it, where its counts are to be played, too."""

    def head(self, created: float) -> bytes:
        config = None if self.config is None else asdict(self.config)
        about = {
            SCHEMA_KEY: SCHEMA,
            "snapshot_schema": SNAPSHOT_SCHEMA,
            "created": round(created, 3),
            "hz": self.hz,
            "target": self.target,
            "config": config,
            "objectives": None if self.objectives is None else asdict(self.objectives),
        }
        return json.dumps(about, default=str).encode() + b"\n"


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
        self._last: Snapshot | None = None
        self._now = self._segment_until = self._flush_at = 0.0
        self._zstd = _compressor()
        self._pack: zstandard.ZstdCompressionObj
        self._unpacked = 0
        """Bytes of the segment so far."""
        self._packed = b""
        """What is not written yet."""
        self._segments: list[int] = []
        """Where each begins in the file."""
        self._head = self._zstd.compress(about.head(clock()))
        self._file = self._guard(self._open)
        self._guard(lambda: self._write(self._head))

    # writing

    def add(self, snapshot: Snapshot) -> None:
        """Does nothing for one that was added before."""
        last = self._last
        if last is not None and (snapshot is last or _is_same(snapshot, last)):
            return
        now = self._now = max(self._clock(), self._now)
        if now >= self._segment_until or self._unpacked >= SEGMENT_BYTES:
            self._begin_segment(now)
        before = frozenset(last.events) if last is not None else frozenset(snapshot.events)
        line = line_of(snapshot, now, sum(event not in before for event in snapshot.events))
        self._packed += self._pack.compress(line)
        self._unpacked += len(line)
        self._last, self.frames = snapshot, self.frames + 1
        if now >= self._flush_at:
            self._flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
            self._flush_at = now + FLUSH_S

    def close(self) -> None:
        """Idempotent."""
        if not self._file.closed:
            try:
                self._end_segment()
                self._guard(lambda: os.fsync(self._file.fileno()))
            finally:
                self._guard(self._file.close)

    def _begin_segment(self, now: float) -> None:
        self._end_segment()
        if self._max_bytes is not None and self.bytes > self._max_bytes:
            self._guard(self._drop_oldest)
        self._segments.append(self.bytes)
        self._pack, self._unpacked = self._zstd.compressobj(), 0
        self._segment_until = now + SEGMENT_S

    def _end_segment(self) -> None:
        if self._unpacked:
            self._flush(zstandard.COMPRESSOBJ_FLUSH_FINISH)
            self._unpacked = 0

    def _flush(self, how: int) -> None:
        """Hand what there is to the operating system."""
        data, self._packed = self._packed + self._pack.flush(how), b""
        self._guard(lambda: self._write(data))

    # the file

    def _open(self) -> IO[bytes]:
        private_folder(self.path.parent)
        file = open_private(self.path)
        sync_folder(self.path.parent)
        return file

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._file.flush()
        self.bytes += len(data)

    def _drop_oldest(self) -> None:
        """Keep the newest segments, up to half of what is allowed, in a file of the same name."""
        room = (self._max_bytes or 0) // 2
        start = next((s for s in self._segments if self.bytes - s <= room), self._segments[-1])
        if start == self._segments[0]:
            return
        data = self._head + self.path.read_bytes()[start:]
        self._file.close()
        replace_file(self.path, data)
        self._file = open_private(self.path, "ab")
        self._segments = [s - start + len(self._head) for s in self._segments if s >= start]
        self.bytes = len(data)

    def _guard(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except FileExistsError as error:
            raise ConfigError(f"{self.path}: exists already; choose another name") from error
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be written ({error.strerror})") from error


def _compressor() -> zstandard.ZstdCompressor:
    parameters = zstandard.ZstdCompressionParameters.from_level(
        LEVEL, window_log=WINDOW_LOG, write_checksum=True, write_content_size=False
    )
    return zstandard.ZstdCompressor(compression_params=parameters)


def _is_same(a: Snapshot, b: Snapshot) -> bool:
    return (a.seq, a.time, a.source) == (b.seq, b.time, b.source)


class SnapshotSource(Protocol):
    """Whatever has Snapshots."""

    def watch_pages(self) -> None: ...

    def snapshot(self) -> Snapshot: ...


class RecorderThread:
    """Records `source` at `hz` on a thread of its own until stopped; `error` says why it ended
    before that."""

    def __init__(self, source: SnapshotSource, recorder: Recorder, hz: float) -> None:
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
        due = time.monotonic()
        try:
            while not self._ended.is_set():
                self._source.watch_pages()
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
