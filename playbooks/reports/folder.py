"""The folder of one run's report: always whole, from its first step to its last.

The JSON is replaced in one move after every step, so that whatever ends the process (Ctrl-C,
kill -9, power) leaves what was done until then. Markdown and HTML follow at the end.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.errors import ConfigError
from engine.paths import private_folder, replace_file, user_folder
from playbooks.reports.text import json_text

KEPT = 50
"""Folders under the user's own; the oldest go."""
NAME = "report"


def own_folder(name: str) -> Path:
    """A new one under the user's folder, named by time. Raises ConfigError."""
    parent = user_folder() / "checks"
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    path = parent / f"{stamp}-{os.getpid()}-{name}"
    _make(path)
    for old in sorted(p for p in parent.iterdir() if p.is_dir())[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return path


def _make(path: Path) -> None:
    try:
        private_folder(path)
    except OSError as error:
        raise ConfigError(f"report folder {path}: cannot be made ({error.strerror})") from error


class ReportFolder:
    """Raises ConfigError when it cannot be written, which is tried at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        _make(path)
        self.write({"state": "started"})

    @property
    def json(self) -> Path:
        return self.path / f"{NAME}.json"

    @property
    def files(self) -> list[Path]:
        """Of a finished report."""
        return [self.path / f"{NAME}.{tail}" for tail in ("json", "md", "html")]

    def write(self, report: Mapping[str, Any]) -> None:
        """The JSON as it stands now; its values are those that JSON has."""
        self._replace(self.json, json_text(report, indent=2) + "\n")

    def finish(self, report: dict[str, Any]) -> None:
        """All three forms."""
        from playbooks.reports.formats import as_html, as_markdown

        self.write(report)
        self._replace(self.path / f"{NAME}.md", as_markdown(report))
        self._replace(self.path / f"{NAME}.html", as_html(report))

    def _replace(self, path: Path, text: str) -> None:
        try:
            replace_file(path, text.encode())
        except OSError as error:
            raise ConfigError(f"report {path}: cannot be written ({error.strerror})") from error
