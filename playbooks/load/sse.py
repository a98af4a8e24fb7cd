"""Server-sent events, from bytes as they come over the wire."""

from __future__ import annotations

from collections.abc import Iterator

from playbooks.load.targets import Failed

MAX_EVENT = 4 << 20
"""Bytes of an event that are held at most."""


class EventReader:
    """`feed` it chunks cut anywhere, in the middle of a character too; it gives whole events.

    Raises Failed("bad_stream") for what is no event stream.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[str]:
        """The data of every event that this chunk completes."""
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) + sum(map(len, self._data)) > MAX_EVENT:
            raise Failed("bad_stream", f"an event of more than {MAX_EVENT >> 20} MiB")
        for line in lines:
            line = line.removesuffix(b"\r")
            if line:
                self._take(line)
            elif self._data:
                yield self._event()

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        elif name not in (b"", b"event", b"id", b"retry"):  # nothing before the colon: a comment
            raise Failed("bad_stream", f"a line that is no event: {line[:60]!r}")

    def _event(self) -> str:
        data, self._data = b"\n".join(self._data), []
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise Failed("bad_stream", f"not UTF-8 at byte {error.start} of an event") from error
