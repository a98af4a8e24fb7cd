"""What is written belongs to the user alone, under any umask: files 0600, folders that are made
0700. A file that was there keeps its mode: its owner chose it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from console.commands.output import write_text
from playbooks.load.record import RecordFile
from playbooks.optlog import OptLog, Record
from playbooks.reports import formats, results
from playbooks.reports.folder import ReportFolder, own_folder

REPORT = {"schema": 1, "kind": "playbook_new", "file": "x", "from": "y"}


@contextmanager
def lax() -> Iterator[None]:
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def torn_log(home: Path) -> None:
    log = OptLog(home / "log.jsonl")
    log.append(Record(title="a", why="b"))
    with log.path.open("ab") as file:
        file.write(b'{"artifacts":')
    log.append(Record(title="c", why="d"))
    assert log.torn_path.exists()


WRITERS: dict[str, Callable[[Path], object]] = {
    "the log, and what is torn": torn_log,
    "a result kept for later": lambda home: results.save(REPORT),
    "a check's own folder": lambda home: ReportFolder(own_folder("quick")),
    "a check's folder elsewhere": lambda home: ReportFolder(home / "deep" / "er").finish(REPORT),
    "--jsonl": lambda home: RecordFile(home / "rows.jsonl"),
    "--out": lambda home: formats.write(REPORT, home / "out.json"),
    "an exported text": lambda home: write_text(home / "log.md", "text"),
}


@pytest.mark.parametrize("what", WRITERS)
def test_nobody_else_may_read_it(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("EVEWATCH_HOME", str(home / "user"))
    with lax():
        WRITERS[what](home)
    made = list(home.rglob("*"))
    assert any(path.is_file() for path in made)
    assert {path: oct(path.stat().st_mode & 0o077) for path in made} == dict.fromkeys(made, "0o0")


def test_a_file_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.touch(mode=0o644)
    path.chmod(0o644)
    formats.write(REPORT, path)
    assert path.stat().st_size > 0 and path.stat().st_mode & 0o777 == 0o644
