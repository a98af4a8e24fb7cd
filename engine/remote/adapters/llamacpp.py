"""llama.cpp's server (`--metrics`, and `/slots` for the context in use).

Two of its gauges start again at every scrape, whoever scrapes: rates come from its counters.
"""

from __future__ import annotations

from typing import Any

from engine.remote.adapters.base import Adapter, prefixed
from engine.remote.metrics.metrics_page import Page
from engine.remote.metrics.numbers import Pool
from engine.remote.metrics.scrape import Names, Scrape, add_mean, read

_SPENT = "llamacpp:tokens_predicted_seconds_total"


class LlamaCpp(Adapter):
    def read(self, page: Page) -> Scrape:
        scrape = read(page, self.names)
        counters = scrape.counters
        computed, cached = counters.get("prompt_tokens"), counters.get("cache_hits")
        if computed and cached:  # the first leaves out what came from the cache
            counters["cache_queries"] = {
                key: value + cached.get(key, 0.0) for key, value in computed.items()
            }
        spent = page.values(_SPENT)
        add_mean(scrape, "tpot", spent, counters.get("output_tokens", {}))
        return scrape


def read_slots(slots: Any, scrape: Scrape) -> None:
    """Add what `/slots` says: the cap, and how much of the context processing slots hold.

    A slot that waits keeps its last prompt, but gives it up at once: it counts as free.
    """
    if not isinstance(slots, list) or not slots or not all(isinstance(s, dict) for s in slots):
        return
    scrape.cap = float(len(slots))
    sizes = [_count(slot.get("n_ctx")) for slot in slots]
    if any(not size for size in sizes):
        return
    total = float(sum(size for size in sizes if size))
    held = [_held(slot) for slot in slots if _works(slot)]
    known = all(tokens is not None for tokens in held)
    used = sum(tokens for tokens in held if tokens is not None)
    usage = min(1.0, used / total) if known else None
    free = max(0.0, total - used) if known else None
    scrape.pools = (Pool("", usage=usage, pages=total, page_tokens=1.0, free=free),)


def _works(slot: dict[str, Any]) -> bool:
    """Older versions number the state, 0 for idle; one that says nothing may be at work."""
    return bool(slot.get("is_processing", slot.get("state", True)))


def _held(slot: dict[str, Any]) -> int | None:
    """Tokens of a slot's prompt and answer; None when this version does not say."""
    prompt = _count(slot.get("n_prompt_tokens"))
    state = slot.get("next_token")
    state = state[0] if isinstance(state, list) and state else state
    decoded = _count(state.get("n_decoded")) if isinstance(state, dict) else None
    return None if prompt is None or decoded is None else prompt + decoded


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 53 else None


_named = prefixed("llamacpp:")
LLAMACPP = LlamaCpp(
    name="llamacpp",
    title="llama.cpp server",
    prefixes=("llamacpp:",),
    also=(_SPENT,),
    names=Names(
        running=_named("requests_processing"),
        waiting=_named("requests_deferred"),
        counters={
            "output_tokens": _named("tokens_predicted_total"),
            "prompt_tokens": _named("prompt_tokens_total"),
            "cache_hits": _named("prompt_tokens_cached_total"),
            "steps": _named("n_decode_total"),
        },
    ),
    cannot_know=(
        "KV pages by state (without --slots also how much of the context is used)",
        "percentiles: it exports no histograms, only the mean time per token",
        "time to first token, waiting times, how many requests ended",
        "where a step's time goes and what bounds it",
    ),
)
