"""One adapter per external engine, in the order of recognition (EveWatch speaks vLLM's names
too, so it is asked first)."""

from __future__ import annotations

import re
from functools import lru_cache

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
_RESPELT = {name.replace(":", "_"): name for name in _READ if name not in COMMON}


@lru_cache(maxsize=1 << 14)
def canonical(name: str) -> str | None:
    """The name by which an adapter reads samples of this name; None: no adapter does.

    Collectors respell: Ray and OpenTelemetry write _ for :, put words before the engine's name
    and leave _total away or write it twice.
    """
    if name in _READ:
        return name
    plain = re.sub(r"[:.]", "_", name).replace("_total_total", "_total")
    while plain:
        for spelling in (plain, f"{plain}_total"):
            if spelling in _RESPELT:
                return _RESPELT[spelling]
        plain = plain.partition("_")[2]
    return None


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
