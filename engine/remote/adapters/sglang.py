"""SGLang (`--enable-metrics`): a series per rank, of which several may repeat the same work."""

from __future__ import annotations

from dataclasses import replace

from engine.remote.adapters.base import INSIDE, Adapter, prefixed
from engine.remote.metrics.metrics_page import Page
from engine.remote.metrics.scrape import Names, Scrape, read


class Sglang(Adapter):
    def read(self, page: Page) -> Scrape:
        scrape = read(page, self.names)
        asked = scrape.counters.get("prompt_tokens")
        if asked and "cache_hits" in scrape.counters:
            scrape.counters["cache_queries"] = asked
        # Its pages may be single tokens, and their size is not exported: count in tokens.
        scrape.pools = tuple(replace(pool, page_tokens=1.0) for pool in scrape.pools)
        return scrape


_named = prefixed("sglang:")
SGLANG = Sglang(
    name="sglang",
    title="SGLang",
    prefixes=("sglang:",),
    names=Names(
        running=_named("num_running_reqs"),
        waiting=_named("num_queue_reqs"),
        cap=_named("max_running_requests"),
        usage=_named("token_usage"),
        pages=_named("max_total_num_tokens"),
        counters={
            "output_tokens": _named("generation_tokens_total"),
            "prompt_tokens": _named("prompt_tokens_total"),
            "cache_hits": _named("cached_tokens_total"),
            "preemptions": _named("num_retracted_requests_total", "num_retracted_reqs_total"),
            "requests": _named("num_requests_total"),
            "aborted": _named("num_aborted_requests_total"),
        },
        histograms={
            "ttft": _named("time_to_first_token_seconds"),
            "tpot": _named("time_per_output_token_seconds", "inter_token_latency_seconds"),
            "itl": _named("inter_token_latency_seconds"),
            "e2e": _named("e2e_request_latency_seconds"),
            "queue": _named("queue_time_seconds"),
            "prompt_length": _named("prompt_tokens_histogram"),
            "output_length": _named("generation_tokens_histogram"),
        },
        gauges={
            "output_tok_s": _named("gen_throughput"),
            "hit_ratio": _named("cache_hit_rate"),
            "draft_ratio": _named("spec_accept_rate"),
            "draft_length": _named("spec_accept_length"),
        },
    ),
    cannot_know=(*INSIDE, "why requests ended"),
)
