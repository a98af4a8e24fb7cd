"""One adapter per external engine, in the order of recognition (EveWatch speaks vLLM's names
too, so it is asked first)."""

from __future__ import annotations

from engine.remote.adapters.base import Adapter
from engine.remote.adapters.evewatch import EVEWATCH
from engine.remote.adapters.llamacpp import LLAMACPP
from engine.remote.adapters.lmdeploy import LMDEPLOY
from engine.remote.adapters.sglang import SGLANG
from engine.remote.adapters.tgi import TGI
from engine.remote.adapters.triton import TRITON
from engine.remote.adapters.trtllm import TRTLLM
from engine.remote.adapters.vllm import VLLM
from engine.remote.metrics.metrics_page import COMMON, Page

ADAPTERS: tuple[Adapter, ...] = (
    EVEWATCH, VLLM, SGLANG, LMDEPLOY, LLAMACPP, TGI, TRTLLM, TRITON,
)  # fmt: skip
NAMES = tuple(adapter.name for adapter in ADAPTERS)
_PREFIXES = tuple(prefix for adapter in ADAPTERS for prefix in adapter.prefixes)
_READ = frozenset(COMMON).union(*(adapter.reads() for adapter in ADAPTERS))


def wanted(name: str) -> bool:
    """Whether some adapter reads samples of this name."""
    return name in _READ


def known(name: str) -> bool:
    """Whether the name is one of an engine that we know."""
    return name.startswith(_PREFIXES)


def recognise(page: Page) -> Adapter | None:
    """Whose page it is; None: of no engine that we know."""
    for adapter in ADAPTERS:
        if any(name.startswith(adapter.prefixes) for name in page.names):
            return adapter
    return None


def by_name(name: str) -> Adapter:
    return next(adapter for adapter in ADAPTERS if adapter.name == name)
