"""The embedded engine. Names load on first use, so that importing this costs nothing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import kernels  # noqa: F401  before torch: it settles how idle OpenMP threads wait

if TYPE_CHECKING:
    from engine.config import EngineConfig
    from engine.core import Engine
    from engine.request import SamplingParams
    from engine.snapshot import Snapshot

__all__ = ["Engine", "EngineConfig", "SamplingParams", "Snapshot"]

_HOME = {
    "Engine": "engine.core",
    "EngineConfig": "engine.config",
    "SamplingParams": "engine.request",
    "Snapshot": "engine.snapshot",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'engine' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
