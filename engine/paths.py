"""Where the user's own state lives. Standard library only."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def user_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """EVEWATCH_HOME, or the platform's folder for user data."""
    if home := environment.get("EVEWATCH_HOME"):
        return Path(home)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "evewatch"
    base = environment.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "evewatch"
