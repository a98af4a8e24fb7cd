"""Where the user's own state lives. Standard library only."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO


def user_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """EVEWATCH_HOME, or the platform's folder for user data."""
    if home := environment.get("EVEWATCH_HOME"):
        return Path(home)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "evewatch"  # not shown
    base = environment.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "evewatch"


# --- what is written there belongs to the user alone -----------------------------------------


def private_folder(path: Path) -> Path:
    """`path`, made where it is not there yet; only its owner may look into what is made."""
    if not path.is_dir():
        if path.parent != path:
            private_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
        sync_folder(path.parent)
    return path


def open_private(path: Path, mode: str = "xb") -> IO[bytes]:
    """Opened in that binary mode; a file that is made only its owner may read."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600))


def replace_file(path: Path, data: bytes) -> None:
    """`path` holds `data` or what it held before, whatever happens meanwhile."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open_private(part, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_private(path: Path, text: str) -> None:
    """Into a file that the user named: one that is there is overwritten and keeps its mode."""
    with open_private(path, "wb") as file:
        file.write(text.encode())


def sync_folder(path: Path) -> None:
    """A name that was made or moved in it outlasts a crash of the machine. Where folders cannot
    be synced (Windows, some network drives) nothing happens."""
    with suppress(OSError):
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
