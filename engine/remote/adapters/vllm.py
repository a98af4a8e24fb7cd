"""vLLM: a series per data-parallel engine, the size of the KV cache as labels of an info metric."""

from __future__ import annotations

from dataclasses import replace

from engine.remote.adapters.base import INSIDE, NO_CAP, Adapter, vllm_names
from engine.remote.metrics.metrics_page import Page
from engine.remote.metrics.numbers import Pool
from engine.remote.metrics.owners import Labels, owner_of
from engine.remote.metrics.scrape import Scrape, read


class Vllm(Adapter):
    def read(self, page: Page) -> Scrape:
        scrape = read(page, self.names)
        caches = {owner_of(key): dict(key) for key in page.values("vllm:cache_config_info")}
        if caches:
            scrape.pools = tuple(_sized(pool, caches) for pool in scrape.pools)
        return scrape


def _sized(pool: Pool, caches: dict[Labels, dict[str, str]]) -> Pool:
    """With the size of its rank's cache; older versions have one info for all."""
    labels = caches.get(pool.owner) or {}
    if not labels and len(caches) == 1:
        labels = next(iter(caches.values()))
    dtype = labels.get("cache_dtype", "auto")
    return replace(
        pool,
        pages=_whole(labels.get("num_gpu_blocks")),
        page_tokens=_whole(labels.get("block_size")),
        bytes=_whole(labels.get("kv_cache_memory_bytes")),
        format=None if dtype in ("auto", "None") else dtype,
    )


def _whole(text: str | None) -> float | None:
    sound = text is not None and text.isascii() and text.isdigit() and len(text) < 20
    return float(text) if sound and text else None


VLLM = Vllm(
    name="vllm",
    title="vLLM",
    prefixes=("vllm:",),
    names=vllm_names("vllm:"),
    cannot_know=(*INSIDE, NO_CAP),
    also=("vllm:cache_config_info",),
)
