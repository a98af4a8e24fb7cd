"""Files of any size in bounded memory: lines of text, and the items of a JSON array."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from engine.errors import ConfigError

MAX_LINE = 16 << 20
"""Bytes of the longest line or JSON item that is read."""
CHUNK = 1 << 20
HEAD = 1 << 16
PACKED = (
    b"\x1f\x8b", b"\x1f\x9d", b"PK\x03\x04", b"BZh", b"\xfd7zXZ", b"7z\xbc\xaf",
    b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18",
)  # fmt: skip
"""How gzip, compress, zip, bzip2, xz, 7z, zstd and lz4 begin."""
BOM = b"\xef\xbb\xbf"


def head_of(path: Path, what: str = "trace") -> bytes:
    """The first bytes, without a byte order mark and white space. Raises ConfigError.

    `what` names the file in messages.
    """
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError as error:
        raise ConfigError(f"{what} {path}: cannot be read ({error.strerror})") from error
    if head.startswith(PACKED):
        raise ConfigError(f"{what} {path}: is compressed; unpack it first")
    if head.startswith(b"PAR1"):
        raise ConfigError(f"{what} {path}: is a Parquet file; save it as CSV or JSON lines")
    if head.startswith(b"version https://git-lfs"):
        raise ConfigError(
            f"{what} {path}: only points to the file (Git LFS); fetch the file itself"
        )
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ConfigError(f"{what} {path}: is UTF-16; save it as UTF-8")
    if b"\0" in head:
        raise ConfigError(f"{what} {path}: is a binary file, not a {what}")
    if head.lstrip().startswith(b"<"):
        raise ConfigError(f"{what} {path}: is an HTML page, not a {what}")
    if b"\r" in head.rstrip() and b"\n" not in head:
        raise ConfigError(f"{what} {path}: its lines end in CR alone; save it with LF")
    return head.removeprefix(BOM).lstrip()


def lines_of(path: Path) -> Iterator[tuple[int, str | None]]:
    """(line number, text) of every line that is not blank; None for one that is no text."""
    with path.open("rb") as file:
        for number, line in enumerate(_raw_lines(file), 1):
            if line is None:
                yield number, None
                continue
            text = _decoded(line.removeprefix(BOM) if number == 1 else line)
            if text is None or text.strip():
                yield number, text


def _raw_lines(file: IO[bytes]) -> Iterator[bytes | None]:
    """Lines; None for one that is too long, and its rest is skipped."""
    while line := file.readline(MAX_LINE):
        whole = len(line) < MAX_LINE or line.endswith(b"\n")
        while len(line) == MAX_LINE and not line.endswith(b"\n"):
            line = file.readline(MAX_LINE)
        yield line if whole else None


def _decoded(line: bytes) -> str | None:
    try:
        return line.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        return None


def array_items(path: Path) -> Iterator[tuple[int, Any]]:
    """(line number, item) of the items of a JSON array. Raises ConfigError where it breaks."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        scanner = _ArrayScanner(file, path)
        scanner.expect("[")
        if scanner.skip_if("]"):
            return
        while True:
            line = scanner.line
            yield line, scanner.item()
            if scanner.skip_if("]"):
                return
            scanner.expect(",")


class _ArrayScanner:
    """A window on the text that moves forward over one item after the other."""

    def __init__(self, file: IO[str], path: Path) -> None:
        self._file, self._path = file, path
        self._text, self._at = "", 0
        self._decoder = json.JSONDecoder()
        self.line = 1

    def expect(self, mark: str) -> None:
        if not self.skip_if(mark):
            raise self._broken(f"expected {mark!r}")

    def skip_if(self, mark: str) -> bool:
        """Step over white space, and over `mark` if it is next; also over space behind it."""
        self._skip_space()
        if not self._text.startswith(mark, self._at):
            return False
        self._at += 1
        self._skip_space()
        return True

    def item(self) -> Any:
        """Parse the value that is next, with as much more text as it needs."""
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if len(self._text) - self._at > MAX_LINE or not self._more():
                    raise self._broken(error.msg) from error
                continue
            if end == len(self._text) and self._more():
                continue  # a number may go on
            self.line += self._text.count("\n", self._at, end)
            self._at = end
            return value

    def _skip_space(self) -> None:
        while True:
            while self._at < len(self._text) and self._text[self._at].isspace():
                self.line += self._text[self._at] == "\n"
                self._at += 1
            if self._at < len(self._text) or not self._more():
                return

    def _more(self) -> bool:
        """Drop what is behind and read as much again as is left, a chunk at least."""
        left = self._text[self._at :]
        new = self._file.read(max(CHUNK, len(left)))
        self._text, self._at = left + new, 0
        return bool(new)

    def _broken(self, why: str) -> ConfigError:
        return ConfigError(
            f"trace {self._path}: is not valid JSON from line {self.line} on ({why})"
        )
