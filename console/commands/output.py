"""Where a command's result goes: the log, files, standard output, in this order.

What was measured is kept before it is shown: a terminal that fails costs no measurement.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from console.commands.streams import drop_output, is_live, say
from engine.errors import ConfigError
from engine.paths import write_private

if TYPE_CHECKING:
    from playbooks.optlog import Record

FORMATS = (".json", ".jsonl", ".csv", ".md", ".html")
JSON = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
QUIET = Annotated[bool, typer.Option("--quiet", help="No progress on standard error.")]
NO_LOG = Annotated[bool, typer.Option("--no-log", help="Write nothing into the optimization log.")]
Report = dict[str, Any]
MakeRecords = Callable[[tuple[str, ...]], "Sequence[Record]"]
"""From the paths of the files that were written to the log's records."""


def _out(formats: tuple[str, ...]) -> Any:
    text = f"Write it to this file too ({' '.join(formats)}); may be repeated."
    return Annotated[list[Path] | None, typer.Option("--out", metavar="FILE", help=text)]


class Output:
    """--json, --out, --quiet and --no-log of one call. Raises ConfigError for a bad --out."""

    @staticmethod
    def options(logs: bool, also: tuple[str, ...]) -> dict[str, Any]:
        out = _out((*also, *FORMATS))
        log = {"no_log": NO_LOG} if logs else {}
        return {"as_json": JSON, "out": out, **log, "quiet": QUIET}

    def __init__(
        self,
        as_json: bool = False,
        out: Sequence[Path] | None = None,
        quiet: bool = False,
        no_log: bool = False,
        also: tuple[str, ...] = (),
    ) -> None:
        self.as_json, self.quiet, self.no_log = as_json, quiet, no_log
        self.files = tuple(out or ())
        for path in self.files:  # before a long measurement rather than after it
            check_name(path, (*also, *FORMATS))

    def take(self, suffix: str) -> Path | None:
        """The file of this kind, which the command writes itself."""
        found = [path for path in self.files if path.suffix.lower() == suffix]
        self.files = tuple(path for path in self.files if path not in found)
        if len(found) > 1:
            raise ConfigError(f"--out {found[1]}: one {suffix} file is enough")
        return found[0] if found else None

    def note(self, text: str) -> None:
        """For people who look on; nothing that must be known."""
        if not self.quiet:
            say(f"evewatch: {text}")

    @contextmanager
    def progress(self, what: str) -> Iterator[Callable[[int, int], None]]:
        """A bar on standard error; plain silence when it is no terminal or not wanted."""
        if self.quiet or not is_live():
            yield lambda done, total: None
            return
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)

    def finish(
        self,
        report: Report,
        keep: bool = False,
        log: MakeRecords | None = None,
        show: Callable[[], None] | None = None,
    ) -> None:
        """Keep the report for later commands, write its files and records, then show it.

        `show` prints it for people, instead of its document. Raises ConfigError when a file could
        not be written; it is shown all the same.
        """
        kept = self._keep(report) if keep else ()
        failed = self._write(report)
        if log is not None and not self.no_log:
            paths = (*kept, *self.files)
            self._log(lambda: log(tuple(str(path.resolve()) for path in paths)))
        try:
            self._show(report, show)
            sys.stdout.flush()
        except BrokenPipeError:  # nobody reads on; the exit code still tells what was found
            drop_output()
        if failed is not None:
            raise failed

    def _show(self, report: Report, show: Callable[[], None] | None) -> None:
        if self.as_json:
            sys.stdout.write(as_line(report))
        elif show is not None:
            show()
        else:
            from console.commands.terminal import show_report

            show_report(report)

    def _keep(self, report: Report) -> tuple[Path, ...]:
        from playbooks.reports import results

        try:
            return (results.save(report),)
        except ConfigError as error:  # the measurement itself is not lost for it
            self.note(f"not kept for later: {error}")
            return ()

    def _write(self, report: Report) -> ConfigError | None:
        failed = None
        for path in self.files:
            from playbooks.reports.formats import write

            try:
                write(report, path)
            except ConfigError as error:
                failed = failed or error
        return failed

    def _log(self, make: Callable[[], Sequence[Record]]) -> None:
        """What stops the log is said, and the measurement is not lost for it."""
        from playbooks.optlog import OptLog

        log, written = OptLog(), []
        try:
            written = [log.append(record) for record in make()]
        except ConfigError as error:
            say(f"evewatch: not in the log: {error}")
        for notice in log.notices:
            say(f"evewatch: {notice}")
        if written:
            ids = ", ".join(record.id[:8] for record in written)
            self.note(f"logged as {ids}; `evewatch log show {written[-1].id[:8]}`")


def check_name(path: Path, formats: Sequence[str]) -> None:
    """Raises ConfigError for a file that --out cannot write."""
    if path.suffix.lower() not in formats:
        raise ConfigError(f"--out {path}: expected a name ending in {', '.join(formats)}")
    if not path.parent.is_dir():
        raise ConfigError(f"--out {path}: there is no folder {path.parent}")


def file_format(fmt: str | None, out: Path | None, known: Sequence[str]) -> str:
    """That of --format, else of --out's ending, else Markdown. Raises ConfigError."""
    found = fmt or (out.suffix.lower().lstrip(".") if out is not None else "md")
    if found not in known:
        raise ConfigError(f"--format: {found!r} is not one of {', '.join(known)}")
    return found


def write_text(path: Path | None, text: str) -> None:
    """Into the file of --out, or on standard output."""
    if path is None:
        sys.stdout.write(text)
        return
    try:
        write_private(path, text)
    except OSError as error:
        raise ConfigError(f"--out {path}: cannot be written ({error.strerror})") from error


def as_line(report: Report) -> str:
    """The report as one line of JSON, in ASCII where standard output is not UTF-8."""
    from playbooks.reports.text import json_text

    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("_", "-")
    return json_text(report, ascii_only=encoding not in ("utf-8", "utf8")) + "\n"
