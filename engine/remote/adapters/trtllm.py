"""TensorRT-LLM (trtllm-serve, at /prometheus/metrics): vLLM's names and more of the KV cache."""

from __future__ import annotations

from dataclasses import replace

from engine.remote.adapters.base import INSIDE, Adapter, prefixed, vllm_names

_SHARED = vllm_names("trtllm_")


_named = prefixed("trtllm_")
TRTLLM = Adapter(
    name="trtllm",
    title="TensorRT-LLM",
    prefixes=("trtllm_",),
    names=replace(
        _SHARED,
        cap=_named("max_batch_size_runtime", "max_num_active_requests"),
        cap_max=_named("max_batch_size_static"),
        pages=_named("kv_cache_max_blocks"),
        page_tokens=_named("kv_cache_tokens_per_block"),
        free_pages=_named("kv_cache_free_blocks"),
        counters={
            **_SHARED.counters,
            "cache_queries": _named("prompt_tokens_total"),
            "cache_hits": _named("prompt_cached_tokens_total"),
        },
        gauges={
            "step_s": _named("iteration_latency_seconds"),
            "hit_ratio": _named("kv_cache_hit_rate"),
            "device_used_bytes": _named("gpu_memory_usage_bytes"),
        },
    ),
    cannot_know=(*INSIDE, "preemptions"),
)
