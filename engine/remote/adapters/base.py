"""What an adapter is, and the names that vLLM's imitators share with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.remote.metrics.metrics_page import Page
from engine.remote.metrics.scrape import Names, Scrape, read

INSIDE = (
    "KV pages by state, tail waste, what contiguous memory would fit",
    "where a step's time goes and what bounds it",
    "single requests",
)
"""What no metrics page tells."""
NO_CAP = "the batch cap"


@dataclass(frozen=True)
class Adapter:
    name: str
    """As in reports and fleet files: vllm."""
    title: str
    prefixes: tuple[str, ...]
    """Of metrics that only this engine exports."""
    names: Names = field(default_factory=Names)
    cannot_know: tuple[str, ...] = INSIDE
    """What its metrics do not tell, for the operator."""
    chats: bool = True
    """It answers /v1/chat/completions."""
    also: tuple[str, ...] = ()
    """Samples that `read` looks at beside those of `names`."""

    def reads(self) -> set[str]:
        """The samples it needs of a page."""
        return self.names.samples() | set(self.also)

    def scrape(self, page: Page, model: str | None = None) -> Scrape:
        """What the page says of one of its models, by default the first."""
        several = self.models(page)
        chosen = model or (several[0] if several else None)
        scrape = self.read(page.of_model(chosen, several))
        scrape.models = tuple(several)
        if len(several) > 1:
            scrape.notes.append(f"{chosen} is one of {len(several)} models on this page")
        elif model and several != [model]:
            scrape.notes.append(f"no model {model} is on this page")
        for name, spelt in list(page.spelt.items())[:1]:
            scrape.notes.append(f"the page spells {self.title}'s names otherwise: {spelt}, {name}")
        return scrape

    def models(self, page: Page) -> list[str]:
        return page.models(*self.names.running)

    def read(self, page: Page) -> Scrape:
        return read(page, self.names)


def prefixed(prefix: str) -> Callable[..., tuple[str, ...]]:
    """A function that puts it before names."""
    return lambda *names: tuple(prefix + name for name in names)


def vllm_names(prefix: str) -> Names:
    """vLLM's names, newest first; LMDeploy took them over, TensorRT-LLM for the most part."""
    named = prefixed(prefix)
    return Names(
        running=named("num_requests_running"),
        waiting=named("num_requests_waiting"),
        also_waiting=named("num_requests_swapped"),
        usage=named("kv_cache_usage_perc", "gpu_cache_usage_perc", "kv_cache_utilization"),
        finished=named("request_success_total"),
        counters={
            "output_tokens": named("generation_tokens_total"),
            "prompt_tokens": named("prompt_tokens_total"),
            "preemptions": named("num_preemptions_total"),
            "cache_queries": named("prefix_cache_queries_total", "gpu_prefix_cache_queries_total"),
            "cache_hits": named("prefix_cache_hits_total", "gpu_prefix_cache_hits_total"),
            "steps": named("iteration_tokens_total_count"),
            "drafts": named("spec_decode_num_drafts_total"),
            "draft_tokens": named("spec_decode_num_draft_tokens_total"),
            "accepted_tokens": named("spec_decode_num_accepted_tokens_total"),
        },
        histograms={
            "ttft": named("time_to_first_token_seconds"),
            # The old name holds the gaps between tokens: the best there is for both.
            "tpot": named("request_time_per_output_token_seconds", "time_per_output_token_seconds"),
            "itl": named("inter_token_latency_seconds", "time_per_output_token_seconds"),
            "e2e": named("e2e_request_latency_seconds"),
            "queue": named("request_queue_time_seconds"),
            "prefill": named("request_prefill_time_seconds"),
            "decode": named("request_decode_time_seconds"),
            "prompt_length": named("request_prompt_tokens"),
            "output_length": named("request_generation_tokens"),
            "step_length": named("iteration_tokens_total"),
        },
        gauges={"hit_ratio": named("gpu_prefix_cache_hit_rate")},  # before its counters
    )
