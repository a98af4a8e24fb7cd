"""Text Generation Inference: per-request histograms, whose sums also count the tokens."""

from __future__ import annotations

from engine.remote.adapters.base import INSIDE, NO_CAP, Adapter
from engine.remote.metrics.metrics_page import Page
from engine.remote.metrics.scrape import Names, Scrape, read

_SUCCEEDED = ("tgi_request_success", "tgi_request_success_total")
_FAILED = ("tgi_request_failure", "tgi_request_failure_total")


class Tgi(Adapter):
    def read(self, page: Page) -> Scrape:
        scrape = read(page, self.names)
        succeeded = page.values(*_SUCCEEDED)
        failed = page.values(*_FAILED)
        if succeeded or failed:
            scrape.finished = {"success": succeeded, "failure": failed}
        return scrape


TGI = Tgi(
    name="tgi",
    title="Text Generation Inference",
    prefixes=("tgi_",),
    also=(*_SUCCEEDED, *_FAILED),
    names=Names(
        running=("tgi_batch_current_size",),
        waiting=("tgi_queue_size",),
        counters={
            "output_tokens": ("tgi_request_generated_tokens_sum",),
            "prompt_tokens": ("tgi_request_input_length_sum",),
            "arrivals": ("tgi_request_count", "tgi_request_count_total"),
        },
        histograms={
            "tpot": ("tgi_request_mean_time_per_token_duration",),
            "e2e": ("tgi_request_duration",),
            "queue": ("tgi_request_queue_duration",),
            "prompt_length": ("tgi_request_input_length",),
            "output_length": ("tgi_request_generated_tokens",),
        },
    ),
    cannot_know=(
        *INSIDE,
        NO_CAP,
        "KV cache usage",
        "time to first token",
        "tokens of requests that have not ended: its token rates come in steps",
    ),
)
