"""Where settings come from: file, then environment, then flags; later wins."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.config import EngineConfig, parse_field
from engine.errors import ConfigError
from engine.paths import user_folder

if TYPE_CHECKING:
    from playbooks.objectives.file import Objectives

PREFIX = "EVEWATCH_"
RESERVED = {
    "EVEWATCH_HOME",
    "EVEWATCH_API_KEY",
    "EVEWATCH_LOG_KEY",
    "EVEWATCH_LANG",
    "EVEWATCH_THEME",
}
FILE = "evewatch.toml"


def engine_config(
    flags: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> EngineConfig:
    """The engine's settings. Flags that are None were not given.

    `defaults` are a command's own, below the file. Raises ConfigError.
    """
    overrides = from_environment(environment)
    overrides |= {key: value for key, value in flags.items() if value is not None}
    path = settings_file(environment)
    if path is None:
        return EngineConfig.from_dict({**(defaults or {}), **overrides})
    return EngineConfig.from_toml(path, defaults=defaults, **overrides)


def settings_file(environment: Mapping[str, str] = os.environ) -> Path | None:
    """evewatch.toml of the current folder, else the user's, else None."""
    for folder in (Path.cwd(), user_folder(environment)):
        if (folder / FILE).is_file():
            return folder / FILE
    return None


def from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """EVEWATCH_MAX_BATCH=32 -> {"max_batch": 32}; an unknown name is an error."""
    found = {}
    for name, text in environment.items():
        if name.startswith(PREFIX) and name not in RESERVED:
            key = name.removeprefix(PREFIX).lower()
            try:
                found[key] = parse_field(key, text)
            except ConfigError as error:
                raise ConfigError(f"environment variable {name}: {error}") from error
    return found


def objectives(
    file: Path | None = None, environment: Mapping[str, str] = os.environ
) -> Objectives | None:
    """Those of `file`, a fleet file say, else of evewatch.toml; None where there are none.
    Raises ConfigError."""
    own = settings_file(environment)
    candidates = [path for path in (file, own) if path is not None]
    if not candidates:
        return None
    from playbooks.objectives.file import load

    return next((found for path in candidates if (found := load(path)) is not None), None)


def alerts_file(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The file of alerts that evewatch.toml names, if it does. Raises ConfigError."""
    own = settings_file(environment)
    if own is None:
        return None
    from playbooks.alerts.file import configured

    return configured(own)
