"""Silences: what is not to be told for a while, until when, and why."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from checklists.tomlfile import STRICT, adapter
from engine.errors import ConfigError
from engine.paths import private_folder, replace_file, user_folder


@dataclass(frozen=True)
class Silence:
    __pydantic_config__ = STRICT
    rule: str
    """A name, or a pattern: `*` is all."""
    target: str
    until: float
    """Unix seconds."""
    reason: str

    def covers(self, rule: str, target: str, now: float) -> bool:
        fits = fnmatch.fnmatchcase(rule, self.rule) and fnmatch.fnmatchcase(target, self.target)
        return fits and now < self.until


def silenced(silences: Iterable[Silence], rule: str, target: str, now: float) -> bool:
    return any(one.covers(rule, target, now) for one in silences)


class Silences:
    """In a file of the user's own."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or user_folder() / "silences.json"

    def read(self) -> tuple[Silence, ...]:
        """Raises ConfigError for a file of something else."""
        try:
            found: tuple[Silence, ...] = adapter(tuple[Silence, ...]).validate_json(
                self.path.read_bytes()
            )
        except FileNotFoundError:
            return ()
        except (OSError, ValueError) as error:
            why = str(error).splitlines()[0]
            raise ConfigError(f"{self.path}: no file of silences ({why}); remove it") from error
        return found

    def add(self, silence: Silence, now: float) -> None:
        """Those that are over go."""
        kept = [asdict(one) for one in (*self.read(), silence) if one.until > now]
        private_folder(self.path.parent)
        replace_file(self.path, json.dumps(kept, indent=1).encode())
