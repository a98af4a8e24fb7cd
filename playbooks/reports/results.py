"""Results that were measured here, kept under the user's folder: one JSON file each.

The option matrix takes its figures from them, and a quality verdict need not be measured twice.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.errors import ConfigError
from engine.paths import private_folder, replace_file, user_folder
from playbooks.reports.text import json_text

KEPT = 200
"""Files of one kind; the oldest go."""


def folder() -> Path:
    return user_folder() / "results"


def save(report: dict[str, Any]) -> Path:
    """Write a report for later. Raises ConfigError when the folder cannot be written."""
    kind, name = report["kind"], _plain(str(report.get("name", "")))
    seconds, rest = divmod(time.time_ns(), 1_000_000_000)
    stamp = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(seconds))}-{rest:09}"
    tail = f"-{name}.json" if name else ".json"
    try:
        path = private_folder(folder()) / f"{kind}-{stamp}{tail}"  # names sort by time
        replace_file(path, f"{json_text(report)}\n".encode())
        for old in files(kind)[KEPT:]:
            old.unlink()
    except OSError as error:
        raise ConfigError(f"{folder()}: cannot be written ({error.strerror})") from error
    return path


def files(kind: str) -> list[Path]:
    """Of a kind, the newest first; whether they hold one is for who reads them to see."""
    return sorted(folder().glob(f"{kind}-*.json"), reverse=True)


def saved(kind: str) -> Iterator[dict[str, Any]]:
    """Reports of a kind, the newest first; files that are none are passed over."""
    for path in files(kind):
        try:
            report = json.loads(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError, json.JSONDecodeError):
            continue
        if isinstance(report, dict) and report.get("kind") == kind:
            yield report


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-")[:60]
