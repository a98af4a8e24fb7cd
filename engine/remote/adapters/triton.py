"""Triton Inference Server (port 8002), with what its TensorRT-LLM backend adds.

An ensemble counts a request at each of its models; only one of them is read: the one with the
LLM's metrics, else the one that has spent the most time on requests (the outermost).
"""

from __future__ import annotations

from engine.remote.adapters.base import INSIDE, Adapter
from engine.remote.metrics.metrics_page import Page
from engine.remote.metrics.numbers import Pool
from engine.remote.metrics.scrape import Names, Scrape, add_mean, read

_PENDING = "nv_inference_pending_request_count"
_REQUESTS = "nv_trt_llm_request_metrics"
_BLOCKS = "nv_trt_llm_kv_cache_block_metrics"
_DONE, _FAILED = "nv_inference_request_success", "nv_inference_request_failure"
_SPENT = {"queue": "nv_inference_queue_duration_us", "e2e": "nv_inference_request_duration_us"}
_FIRST = "nv_inference_first_response_histogram_ms"
_GPU_USED, _GPU_TOTAL = "nv_gpu_memory_used_bytes", "nv_gpu_memory_total_bytes"
_MICRO = 1e-6


class Triton(Adapter):
    def models(self, page: Page) -> list[str]:
        return []  # `read` chooses: several make an ensemble

    def read(self, page: Page) -> Scrape:
        model, models = _model(page), {dict(key).get("model") for key in page.values(_DONE)}
        page = page.only(lambda key: dict(key).get("model", model) == model)
        scrape = read(page, self.names)
        scrape.model = model
        _read_requests(page, scrape)
        blocks = _by(page, _BLOCKS, "kv_cache_block_type")
        if blocks:
            scrape.pools = (_pool(blocks),)
        used, total = page.values(_GPU_USED), page.values(_GPU_TOTAL)
        if used and used.keys() == total.keys():
            scrape.gauges["device_used_bytes"] = sum(used.values())
            scrape.gauges["device_total_bytes"] = sum(total.values())
        if len(models) > 1:
            scrape.notes.append(f"of {len(models)} models on this server: {model}")
        return scrape


def _model(page: Page) -> str | None:
    for name in (_BLOCKS, _REQUESTS):
        for key in sorted(page.values(name)):
            return dict(key).get("model")
    spent = page.values(_SPENT["e2e"]) or page.values(_DONE)
    by_time = sorted(spent, key=lambda key: (-spent[key], key))
    return dict(by_time[0]).get("model") if by_time else None


def _read_requests(page: Page, scrape: Scrape) -> None:
    """Counts, and the means of what Triton exports as sums of microseconds."""
    states = _by(page, _REQUESTS, "request_type")
    scrape.running = states.get("scheduled", states.get("active"))
    pending = page.values(_PENDING)  # of each version of the model
    scrape.waiting = states.get("waiting", sum(pending.values()) if pending else None)
    scrape.cap = states.get("max")
    done = page.values(_DONE)
    scrape.finished = {"success": done, "failure": page.values(_FAILED)}
    for name, metric in _SPENT.items():
        add_mean(scrape, name, page.values(metric), done, _MICRO)
    add_mean(scrape, "ttft", page.values(f"{_FIRST}_sum"), page.values(f"{_FIRST}_count"), 1e-3)


def _by(page: Page, name: str, label: str) -> dict[str, float]:
    return {dict(key).get(label, ""): n for key, n in page.values(name).items() if n >= 0}


def _pool(blocks: dict[str, float]) -> Pool:
    usage, total, used = blocks.get("fraction"), blocks.get("max"), blocks.get("used")
    if usage is None and total and used is not None:
        usage = used / total
    return Pool(
        "",
        usage=usage if usage is not None and 0 <= usage <= 1 else None,
        pages=total,
        page_tokens=blocks.get("tokens_per"),
        free=blocks.get("free"),
    )


TRITON = Triton(
    name="triton",
    title="Triton Inference Server",
    prefixes=("nv_inference_", "nv_trt_llm_", "nv_llm_", "nv_gpu_memory_"),
    names=Names(
        counters={
            "output_tokens": ("nv_llm_output_token_len_sum",),
            "prompt_tokens": ("nv_llm_input_token_len_sum",),
            "steps": ("nv_inference_exec_count",),
        },
    ),
    cannot_know=(
        *INSIDE,
        "percentiles: it exports sums, so there are only means",
        "time per output token",
        "the KV cache, unless its TensorRT-LLM backend serves the model",
    ),
    chats=False,
    also=(
        _PENDING,
        _REQUESTS,
        _BLOCKS,
        _DONE,
        _FAILED,
        *_SPENT.values(),
        f"{_FIRST}_sum",
        f"{_FIRST}_count",
        _GPU_USED,
        _GPU_TOTAL,
    ),
)
