"""The append-only file of the log: JSON lines, one writer at a time, fsynced, chained.

    {"artifacts":[],…,"id":"9f2c…","prev":null,…}\n
    {"artifacts":[],…,"id":"41ab…","prev":"<SHA-256 of the line above>",…}\n
    {"artifacts":[],"claim":"mea                       <- torn: the power went here

A line is stored in its canonical form, so the hash of a record is the hash of its line. What
is torn is not thrown away: the next append moves it to a file beside the log.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from hmac import compare_digest
from pathlib import Path
from typing import Any

from engine.errors import ConfigError
from engine.paths import open_private, private_folder, sync_folder, user_folder
from playbooks.optlog.record import Record, canonical, content_id, digest, seal_of
from playbooks.reports.text import json_values

KEY_VARIABLE = "EVEWATCH_LOG_KEY"
BLOCK = 1 << 16
WRITER_WAIT_S = 60.0
READER_WAIT_S = 2.0
"""After it a reader reads without the lock: a writer that hangs must not hide the log."""
FIRST_BYTES = b'{"artifacts":'
"""Every record begins so, in its canonical form."""


@dataclass(frozen=True)
class LogDamage:
    """Something in the file that is not as it was written."""

    line: int
    kind: str
    """torn | unreadable | altered | chain | unsealed"""
    text: str
    id: str | None = None
    """Of the record that it is about, as far as it can be read."""


@dataclass(frozen=True)
class Reading:
    """What is in the log. A record that was altered is in `records`, and named in `damage`."""

    records: tuple[Record, ...] = ()
    damage: tuple[LogDamage, ...] = ()
    hashes: tuple[str, ...] = ()
    """Of the records, in their order: what the next one's `prev` must be."""
    seals_checked: bool = False
    """With the log's key; else a seal is only counted."""

    @property
    def head(self) -> str | None:
        """Hash of the last record. Kept elsewhere, it shows later whether records are missing."""
        return self.hashes[-1] if self.hashes else None

    @property
    def sealed(self) -> int:
        return sum(record.seal is not None for record in self.records)

    @property
    def intact(self) -> bool:
        """The chain holds. A torn last line is no break: what is before it is whole."""
        return all(damage.kind == "torn" for damage in self.damage)

    def find(self, name: str) -> Record:
        """By id or the beginning of one; `last`, or a number from the end (-1). ConfigError."""
        if not self.records:
            raise ConfigError("log: there are no records yet")
        if name == "last":
            return self.records[-1]
        if name.startswith("-") and name[1:].isdigit() and 0 < int(name[1:]) <= len(self.records):
            return self.records[int(name)]
        found = [r for r in self.records if name and r.id.startswith(name.lower())]
        if len(found) != 1:
            many = f"{len(found)} records begin so" if found else "no record has this id"
            raise ConfigError(f"log: {name!r}: {many}; `evewatch log list` names them")
        return found[0]


class OptLog:
    """The log in the file `path`, by default the user's own.

    Safe under threads and processes that append at once. `notices` holds a line for each thing
    that an append found and repaired, for the caller to show.
    """

    def __init__(self, path: Path | None = None, key: bytes | None = None) -> None:
        """`key` seals what is written and checks what is read; None: that of EVEWATCH_LOG_KEY."""
        self.path = path or user_folder() / "optlog.jsonl"
        self._key = key or os.environ.get(KEY_VARIABLE, "").encode() or None
        self.notices: list[str] = []

    @property
    def torn_path(self) -> Path:
        """Where torn lines are kept, one a line."""
        return self.path.with_name(self.path.name + ".torn")

    def set_aside(self) -> int:
        """How many torn lines are kept."""
        try:
            return self.torn_path.read_bytes().count(b"\n")
        except OSError:
            return 0

    # --- writing --------------------------------------------------------------------------

    def append(self, record: Record) -> Record:
        """Write a record and return it with its id, time and place in the chain.

        It is on the disk when this returns. Raises ConfigError when it cannot be written; the
        log is then as it was.
        """
        try:
            with self._writing() as fd:
                end = self._mend(fd)
                stored = record.stamped(_now(), self._last_hash(fd, end), self._key)
                self._write(fd, canonical(json_values(stored.to_dict())) + b"\n")
        except OSError as error:
            raise ConfigError(f"log {self.path}: cannot be written ({error.strerror})") from error
        return stored

    @contextmanager
    def _writing(self) -> Iterator[int]:
        """The file, opened and locked against all other writers."""
        deadline = time.monotonic() + WRITER_WAIT_S
        private_folder(self.path.parent)
        while True:
            is_new = not self.path.exists()
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                if not _lock(fd, fcntl.LOCK_EX, deadline - time.monotonic()):
                    raise ConfigError(
                        f"log {self.path}: another process has been writing it for "
                        f"{WRITER_WAIT_S:.0f} s; end it and try again"
                    )
                if not _is_still(fd, self.path):
                    continue  # it was moved away while we waited
                if is_new:
                    sync_folder(self.path.parent)
                yield fd
                return
            finally:
                os.close(fd)  # and with it the lock

    def _mend(self, fd: int) -> int:
        """Leave the file ending in a whole line, and return its size."""
        size = os.fstat(fd).st_size
        tail = next(_lines_backwards(fd, size), b"")
        if tail == b"":
            return size
        if _parsed(tail) is not None:
            self._write(fd, b"\n")  # only its newline was lost
            return size + 1
        whole = size - len(tail)
        is_ours = tail.startswith(FIRST_BYTES[: len(tail)]) or not tail.strip(b"\0")
        if not is_ours and self._last_hash(fd, whole) is None:
            self._refuse()
        self._set_aside(tail)
        os.ftruncate(fd, whole)
        os.fsync(fd)
        return whole

    def _set_aside(self, tail: bytes) -> None:
        with open_private(self.torn_path, "ab") as aside:
            aside.write(tail + b"\n")
            aside.flush()
            os.fsync(aside.fileno())
        self.notices.append(
            f"log {self.path}: the last line was torn ({len(tail)} bytes of a record that was "
            f"never whole); it is kept in {self.torn_path.name}"
        )

    def _last_hash(self, fd: int, end: int) -> str | None:
        """Of the last record that can be read, found from the end."""
        for line in _lines_backwards(fd, end):
            stored = _parsed(line) if line else None
            if stored is not None:
                return stored.hash
        if end > 0:
            self._refuse()
        return None

    def _refuse(self) -> None:
        raise ConfigError(
            f"log {self.path}: there is no record in this file, so it is left alone; "
            "move it away, or name another"
        )

    def _write(self, fd: int, line: bytes) -> None:
        """All of it or nothing, and then on to the disk."""
        size = os.fstat(fd).st_size
        try:
            left = memoryview(line)
            while left:
                left = left[os.write(fd, left) :]
            _sync(fd)
        except BaseException:
            os.ftruncate(fd, size)
            raise

    # --- reading --------------------------------------------------------------------------

    def read(self) -> Reading:
        """Every record, and all that is wrong with the file. Raises ConfigError."""
        try:
            with self.path.open("rb") as file:
                _lock(file.fileno(), fcntl.LOCK_SH, READER_WAIT_S)
                return _read(file, self._key)
        except FileNotFoundError:
            return Reading()
        except OSError as error:
            raise ConfigError(f"log {self.path}: cannot be read ({error.strerror})") from error


def _read(lines: Any, key: bytes | None = None) -> Reading:
    records: list[Record] = []
    damage: list[LogDamage] = []
    hashes: list[str] = []
    before_was_altered = False
    for number, line in enumerate(lines, 1):
        stored = _parsed(line.rstrip(b"\n"))
        if stored is None:
            damage.append(_unreadable(number, line))
            continue
        record = stored.record
        altered = _altered(number, stored, key)
        if altered is not None:
            damage.append(altered)
        elif not before_was_altered and record.prev != (hashes[-1] if hashes else None):
            damage.append(_broken(number, record, records[-1] if records else None))
        before_was_altered = altered is not None
        records.append(record)
        hashes.append(stored.hash)
    if key is not None and records and records[-1].seal is None:
        damage.append(_unsealed(records))
    return Reading(tuple(records), tuple(damage), tuple(hashes), key is not None)


def _unreadable(number: int, line: bytes) -> LogDamage:
    if line.endswith(b"\n"):
        return LogDamage(number, "unreadable", f"line {number} is no record ({len(line)} bytes)")
    text = f"the last line, {number}, is torn after {len(line)} bytes; all before it is whole"
    return LogDamage(number, "torn", text)


def _altered(number: int, stored: _Stored, key: bytes | None) -> LogDamage | None:
    """What the record says of itself, its schema included, decides nothing about its check."""
    record = stored.record
    where = f"record {record.id} (line {number}, {record.title!r})"
    if record.id != content_id(stored.data):
        text = f"{where} was altered: its content is not what its id was made from"
    elif key and record.seal and not compare_digest(record.seal, seal_of(stored.data, key)):
        text = f"{where} was altered, or sealed with another key than that of {KEY_VARIABLE}"
    else:
        return None
    return LogDamage(number, "altered", text, record.id)


def _unsealed(records: list[Record]) -> LogDamage:
    """A seal covers all records before it, by the chain; so the last one must have one."""
    last = records[-1]
    text = (
        f"the last record, {last.id} ({last.title!r}), has no seal: it was written without "
        f"{KEY_VARIABLE}, and so may everything after the last sealed record"
    )
    return LogDamage(len(records), "unsealed", text, last.id)


def _broken(number: int, record: Record, before: Record | None) -> LogDamage:
    where = f"record {record.id} (line {number}, {record.title!r})"
    if before is None:
        text = f"{where} is not the first that was written: what was before it is gone"
    else:
        text = (
            f"{where} was written after another record than {before.id} (line {number - 1}): that "
            "one was changed, or records between them were taken out, added or moved"
        )
    return LogDamage(number, "chain", text, record.id)


@dataclass(frozen=True)
class _Stored:
    """A line that holds a record."""

    record: Record
    data: dict[str, Any]
    """As it is in the file: an older or newer schema has other fields than the record."""
    hash: str


def _parsed(line: bytes) -> _Stored | None:
    """None where the line holds no record."""
    try:
        data = json.loads(line, parse_constant=_no_constant, object_pairs_hook=_no_twins)
        return _Stored(Record.from_dict(data), data, digest(data))
    except (ValueError, RecursionError, AttributeError):  # text without UTF-8 is no record either
        return None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


def _lines_backwards(fd: int, end: int) -> Iterator[bytes]:
    """What is after the last newline (perhaps nothing), then the lines before it, last first."""
    part = b""
    while end > 0:
        begin = max(0, end - BLOCK)
        part = os.pread(fd, end - begin, begin) + part
        end = begin
        *whole, first = reversed(part.split(b"\n"))
        yield from whole
        part = first
    yield part


def _lock(fd: int, kind: int, wait_s: float) -> bool:
    """Try for so long; the lock goes with the file's descriptor, and so with its process."""
    deadline, pause = time.monotonic() + wait_s, 0.0005
    while True:
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(pause)
            pause = min(2 * pause, 0.02)


def _is_still(fd: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    here = os.fstat(fd)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _sync(fd: int) -> None:
    full = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync stops at the drive's own cache
    if full is not None:
        fcntl.fcntl(fd, full)
    else:
        os.fsync(fd)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
