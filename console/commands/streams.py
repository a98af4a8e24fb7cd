"""Standard output and error, whatever is behind them: any encoding, a reader that has gone, a full
disk, nothing at all."""

from __future__ import annotations

import codecs
import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from console.locale.lang import _
from engine.errors import ConfigError
from playbooks.reports.text import clean, clean_lines

ERRORS = "evewatch"
"""Name of the error handler that writes what an encoding has not in letters that it has."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
PLAIN = {
    "–": "-", "—": "-", "−": "-", "…": "...", "×": "x", "÷": "/", "≥": ">=", "≤": "<=", "→": "->",
    "←": "<-", "•": "*", "·": "-", "±": "+-", "Δ": "d", "σ": "s", "µ": "u", "☐": "[ ]", "☑": "[x]",
    "☒": "[!]", "┊": ":", "│": "|", "─": "-", "█": "#", "░": ".", "▒": ":", "▓": "%",
    "▞": "&", "▚": "@",
    "▘": "'", "▗": ",", "▖": ";", "“": '"',
    "”": '"', "’": "'", "²": "2", "⁻": "-", "°": " deg",
}  # fmt: skip


def _in_plain_letters(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError), "only writing needs it"
    missing = error.object[error.start : error.end]
    return "".join(PLAIN.get(char, "?") for char in missing), error.end


def take_any() -> None:
    """From now on no text ends this process for the encoding of where it goes, and a stream that
    was closed before us leads nowhere: else the next file that is opened would be that stream."""
    codecs.register_error(ERRORS, _in_plain_letters)
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it takes the lowest number that is free
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=ERRORS)


def say(text: str) -> None:
    """A line on standard error, in which nothing of others steers the terminal. That nobody
    reads it any more, or that there is no room for it, is no failure."""
    try:
        print(clean_lines(_(text)), file=sys.stderr, flush=True)
    except OSError:
        _drop(2)


def is_live() -> bool:
    """Whether standard error is a terminal on which a line can be written over."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


class StatusLine:
    """Progress on standard error: a line that is written over, and lines that stay.

    Without a terminal only those that stay are written. A context: at its end the line is wiped.
    """

    def __init__(self, quiet: bool) -> None:
        self.live = not quiet and is_live()
        self._quiet = quiet

    def __enter__(self) -> StatusLine:
        return self

    def __exit__(self, *error: object) -> None:
        if self.live:
            self._write("")

    def stay(self, text: str) -> None:
        if not self._quiet:
            self._write(f"{clean(_(text))}\n")

    def pass_by(self, text: str) -> None:
        if self.live:
            self._write(clean(_(text)))

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(("\r\x1b[K" if self.live else "") + text)
            sys.stderr.flush()
        except OSError:
            _drop(2)


@contextmanager
def whole_output() -> Iterator[None]:
    """Raises ConfigError when standard output could not take all that was written; that its reader
    has gone is no error. Everything has left the process at the end, so nothing fails after it."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        drop_output()
    except OSError as error:
        if error.filename is not None or error.errno not in NO_ROOM:
            raise
        drop_output()
        raise ConfigError(f"standard output cannot be written ({error.strerror})") from None


def show(text: str) -> None:
    """A line on standard output."""
    sys.stdout.write(f"{_(text)}\n")


def drop_output() -> None:
    """The reader of standard output has gone: what follows goes nowhere."""
    _drop(1)


def _drop(number: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)
