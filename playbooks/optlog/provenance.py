"""Where a result comes from: versions, device, git revision, and a hash of the settings."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from engine.config import EngineConfig

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("evewatch", "torch", "triton", "numpy")
GIT_WAIT_S = 5.0


def provenance_of(config: EngineConfig | dict[str, Any] | None = None) -> dict[str, Any]:
    """Facts that a later reader needs to tell whether a result still applies. No torch."""
    found: dict[str, Any] = {
        "python": platform.python_version(),
        **{name: version_of(name) for name in PACKAGES},
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "git": git_revision(),
    }
    if config is not None:
        settings = config if isinstance(config, dict) else config.to_dict()
        found |= {
            "model": settings.get("model"),
            "device": settings.get("device"),
            "config_hash": config_hash(settings),
        }
    return found


def config_hash(settings: dict[str, Any]) -> str:
    """Twelve letters that are the same for the same settings."""
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def git_revision(root: Path = ROOT) -> str | None:
    """Of this program's checkout, with "+changes" when files differ; None without one."""
    top = _git(root, "rev-parse", "--show-toplevel")
    revision = _git(root, "rev-parse", "--short=12", "HEAD")
    if top is None or revision is None or Path(top).resolve() != root:
        return None  # no checkout, or somebody else's around us
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    return f"{revision}+changes" if changed else revision


def _git(root: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(root), *words],
            capture_output=True, text=True, timeout=GIT_WAIT_S, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout.strip()


def version_of(package: str) -> str | None:
    """As it is installed; None: it is not."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
