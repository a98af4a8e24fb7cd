"""The figures of healthy runs on the disk: one small file for each kind of run.

A kind is a fingerprint: engine, version, model, format, machine, playbook. Settings that may be
changed are not in it: what they do to the figures is what a later run is asked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from checklists.tomlfile import misfit
from engine.errors import ConfigError
from engine.paths import private_folder, replace_file, user_folder
from playbooks.optlog.provenance import config_hash
from playbooks.reports.text import json_values

SCHEMA = 1
KEPT = 10
"""Newest runs of a kind."""
SUFFIX = ".json"


@dataclass(frozen=True)
class KeptRun:
    when: float
    """Unix seconds."""
    kind: dict[str, Any]
    """The fingerprint's parts."""
    figures: dict[str, float]
    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    accepted: bool = False
    """Somebody said that this is usual from now on."""


_RUNS = TypeAdapter(tuple[KeptRun, ...])


def own_place() -> Path:
    return user_folder() / "usual"


def path_in(place: Path, kind: Mapping[str, Any]) -> Path:
    """`place` itself where it is a file; in a folder, that of the kind."""
    if place.suffix == SUFFIX:
        return place
    return place / f"{kind['playbook']}-{config_hash(dict(kind))}{SUFFIX}"


class KeptRuns:
    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> tuple[KeptRun, ...]:
        """The oldest first; none where there is no file. Raises ConfigError."""
        try:
            data = json.loads(self.path.read_text("utf-8"))
            if data["kind"] != "usual" or data["schema"] != SCHEMA:
                raise ValueError("it is of another kind or schema")
            return _RUNS.validate_python(data["runs"])
        except FileNotFoundError:
            return ()
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(map(str, problem["loc"]))
            raise self._wrong(f"{where}: {misfit(dict(problem))}") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._wrong(str(error)) from error

    def _wrong(self, why: str) -> ConfigError:
        return ConfigError(
            f"usual {self.path}: no file of usual figures ({why}); give another with --usual, or "
            "remove it"
        )

    def add(self, run: KeptRun) -> None:
        """An accepted run takes the place of all before it. Raises ConfigError."""
        before = () if run.accepted else self.read()
        runs = [asdict(one) for one in (*before, run)[-KEPT:]]
        text = json.dumps(json_values({"schema": SCHEMA, "kind": "usual", "runs": runs}))
        try:
            private_folder(self.path.parent)
            replace_file(self.path, text.encode())
        except OSError as error:
            raise ConfigError(f"usual {self.path}: cannot be written ({error.strerror})") from error
