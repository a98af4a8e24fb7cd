"""A file of the past, whatever kind it is."""

from __future__ import annotations

from datetime import tzinfo
from pathlib import Path

from engine.errors import ConfigError
from playbooks.forecast.history.counts import Columns, read_counts
from playbooks.forecast.history.history import History
from playbooks.forecast.history.prometheus import is_answer, read_range
from playbooks.forecast.history.requests import read_trace
from playbooks.load.lines import head_of


def read_history(path: Path, zone: tzinfo, unit: str | None = None) -> History:
    """A CSV of counts, an answer of Prometheus' query_range, or a trace that `load` reads.

    `zone`: whose clocks times without an offset are by; `unit`: of a trace's times. Recordings
    are the console's: it makes a History of them. Raises ConfigError.
    """
    head = head_of(path, "history")
    if not head:
        raise ConfigError(f"history {path}: is empty: it has no counts")
    if is_answer(head):
        return read_range(path)
    header = head.split(b"\n", 1)[0].decode("utf-8", "replace").strip()
    if head[:1] not in (b"{", b"[") and Columns.of(header) is not None:
        return read_counts(path, zone)
    return read_trace(path, unit)
