"""External engines: vLLM, SGLang, llama.cpp, LMDeploy, TGI, TensorRT-LLM, Triton, EveWatch.

Their metrics and APIs become Snapshots, so that panels, gates and playbooks need not know where
the numbers are from. No torch. Names load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.remote.engine import RemoteEngine, attach
    from engine.remote.errors import NotAvailable

__all__ = ["NotAvailable", "RemoteEngine", "attach"]

_HOME = {
    "NotAvailable": "engine.remote.errors",
    "RemoteEngine": "engine.remote.engine",
    "attach": "engine.remote.engine",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'engine.remote' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
