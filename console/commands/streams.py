"""Standard output and error, whatever is behind them: any encoding, or a reader that has gone."""

from __future__ import annotations

import codecs
import os
import sys

from playbooks.reports.text import clean, clean_lines

ERRORS = "evewatch"
"""Name of the error handler that writes what an encoding has not in letters that it has."""
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


def take_any_encoding() -> None:
    """From now on no text ends this process for the encoding of where it goes."""
    codecs.register_error(ERRORS, _in_plain_letters)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=ERRORS)


def say(text: str) -> None:
    """A line on standard error, in which nothing of others steers the terminal. That nobody
    reads it any more is no failure."""
    try:
        print(clean_lines(text), file=sys.stderr, flush=True)
    except BrokenPipeError:
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

    def __exit__(self, *_: object) -> None:
        if self.live:
            self._write("")

    def stay(self, text: str) -> None:
        if not self._quiet:
            self._write(f"{clean(text)}\n")

    def pass_by(self, text: str) -> None:
        if self.live:
            self._write(clean(text))

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(("\r\x1b[K" if self.live else "") + text)
            sys.stderr.flush()
        except BrokenPipeError:
            _drop(2)


def drop_output() -> None:
    """The reader of standard output has gone: what follows goes nowhere."""
    _drop(1)


def _drop(number: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)
