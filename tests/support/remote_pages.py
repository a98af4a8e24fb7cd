"""Pages of engines of which there is no scrape at hand: the names their sources export, with
numbers that tell the fields apart."""

from __future__ import annotations


def histogram(name: str, labels: str, counts: dict[str, int], total: float) -> str:
    """Cumulative `counts` by bound."""
    comma = "," if labels else ""
    lines = [f'{name}_bucket{{{labels}{comma}le="{le}"}} {n}' for le, n in counts.items()]
    braces = f"{{{labels}}}" if labels else ""
    lines += [f"{name}_count{braces} {counts['+Inf']}", f"{name}_sum{braces} {total}"]
    return "\n".join(lines)


def sglang(running: int = 7, ranks: int = 1) -> bytes:
    """With `ranks` tensor-parallel ranks that repeat the same work."""
    lines = []
    for rank in range(ranks):
        labels = f'engine_type="unified",model_name="qwen",pp_rank="0",tp_rank="{rank}"'
        lines += [
            f"sglang:num_running_reqs{{{labels}}} {running}",
            f"sglang:num_queue_reqs{{{labels}}} 3",
            f"sglang:token_usage{{{labels}}} 0.28",
            f"sglang:max_total_num_tokens{{{labels}}} 161721",
            f"sglang:gen_throughput{{{labels}}} 86.5",
            histogram(
                "sglang:queue_time_seconds", labels, {"0.1": 40, "0.2": 80, "+Inf": 100}, 20.0
            ),
        ]
    one = 'model_name="qwen"'
    lines += [
        f"sglang:prompt_tokens_total{{{one}}} 8000",
        f"sglang:generation_tokens_total{{{one}}} 7500",
        f"sglang:cached_tokens_total{{{one}}} 2000",
        f"sglang:num_requests_total{{{one}}} 100",
        f"sglang:num_aborted_requests_total{{{one}}} 4",
        histogram(
            "sglang:time_to_first_token_seconds", one, {"0.1": 10, "0.2": 90, "+Inf": 100}, 16.0
        ),
        histogram(
            "sglang:inter_token_latency_seconds", one, {"0.02": 50, "0.04": 100, "+Inf": 100}, 2.0
        ),
    ]
    return ("\n".join(lines) + "\n").encode()


def sglang_priorities() -> bytes:
    lines = [
        'sglang:num_running_reqs{model_name="qwen",tp_rank="0",priority=""} 9',
        'sglang:num_running_reqs{model_name="qwen",tp_rank="0",priority="0"} 4',
        'sglang:num_running_reqs{model_name="qwen",tp_rank="0",priority="1"} 5',
        'sglang:num_queue_reqs{model_name="qwen",tp_rank="0",priority=""} 2',
        'sglang:num_queue_reqs{model_name="qwen",tp_rank="0",priority="0"} 2',
    ]
    return ("\n".join(lines) + "\n").encode()


def lmdeploy() -> bytes:
    labels = 'engine="0",model_name="internlm"'
    lines = [
        f"lmdeploy:num_requests_running{{{labels}}} 5",
        f"lmdeploy:num_requests_waiting{{{labels}}} 2",
        f"lmdeploy:gpu_cache_usage_perc{{{labels}}} 0.4",
        f"lmdeploy:prompt_tokens_total{{{labels}}} 900",
        f"lmdeploy:generation_tokens_total{{{labels}}} 800",
        histogram(
            "lmdeploy:time_to_first_token_seconds", labels, {"0.5": 10, "1": 20, "+Inf": 20}, 10.0
        ),
        histogram(
            "lmdeploy:time_per_output_token_seconds",
            labels,
            {"0.01": 0, "0.03": 100, "+Inf": 100},
            2.0,
        ),
    ]
    return ("\n".join(lines) + "\n").encode()


def trtllm() -> bytes:
    labels = 'engine_type="trtllm",model_name="llama"'
    lines = [
        f"trtllm_num_requests_running{{{labels}}} 6",
        f"trtllm_num_requests_waiting{{{labels}}} 1",
        f"trtllm_kv_cache_utilization{{{labels}}} 0.5",
        f"trtllm_kv_cache_max_blocks{{{labels}}} 1000",
        f"trtllm_kv_cache_free_blocks{{{labels}}} 500",
        f"trtllm_kv_cache_tokens_per_block{{{labels}}} 32",
        f"trtllm_max_batch_size_runtime{{{labels}}} 8",
        f"trtllm_max_batch_size_static{{{labels}}} 16",
        f"trtllm_iteration_latency_seconds{{{labels}}} 0.02",
        f"trtllm_gpu_memory_usage_bytes{{{labels}}} 1000000",
        f'trtllm_request_success_total{{{labels},finished_reason="stop"}} 11',
        f'trtllm_request_success_total{{{labels},finished_reason="length"}} 2',
        f"trtllm_generation_tokens_total{{{labels}}} 640",
        histogram(
            "trtllm_e2e_request_latency_seconds", labels, {"1": 5, "2": 13, "+Inf": 13}, 15.0
        ),
    ]
    return ("\n".join(lines) + "\n").encode()


def tgi() -> bytes:
    lines = [
        "# TYPE tgi_queue_size gauge",
        "tgi_queue_size 12",
        "# TYPE tgi_batch_current_size gauge",
        "tgi_batch_current_size 32",
        "# TYPE tgi_request_count counter",
        "tgi_request_count 150",
        "# TYPE tgi_request_success counter",
        'tgi_request_success{method="generate"} 90',
        'tgi_request_success{method="generate_stream"} 10',
        "# TYPE tgi_request_failure counter",
        'tgi_request_failure{err="overloaded"} 6',
        histogram("tgi_request_duration", "", {"1": 50, "2": 100, "+Inf": 100}, 100.0),
        histogram("tgi_request_queue_duration", "", {"0.1": 100, "+Inf": 100}, 5.0),
        histogram(
            "tgi_request_mean_time_per_token_duration",
            "",
            {"0.01": 50, "0.02": 100, "+Inf": 100},
            1.0,
        ),
        histogram("tgi_request_generated_tokens", "", {"100": 100, "+Inf": 100}, 4000.0),
        histogram("tgi_request_input_length", "", {"1000": 100, "+Inf": 100}, 30000.0),
    ]
    return ("\n".join(lines) + "\n").encode()


def triton(llm: bool = True) -> bytes:
    """An ensemble: every request is counted at each of its models."""
    lines = []
    for model, spent in (("ensemble", 9_000_000), ("preprocessing", 500_000), ("llm", 8_000_000)):
        labels = f'model="{model}",version="1"'
        lines += [
            f"nv_inference_request_success{{{labels}}} 40",
            f'nv_inference_request_failure{{{labels},reason="OTHER"}} 1',
            f"nv_inference_request_duration_us{{{labels}}} {spent}",
            f"nv_inference_queue_duration_us{{{labels}}} {spent // 10}",
            f"nv_inference_pending_request_count{{{labels}}} 2",
        ]
    if llm:
        labels = 'model="llm",version="1"'
        for kind, value in (("scheduled", 3), ("active", 4), ("max", 512), ("context", 1)):
            lines.append(f'nv_trt_llm_request_metrics{{{labels},request_type="{kind}"}} {value}')
        for kind, value in (("used", 600), ("free", 1800), ("max", 2400), ("tokens_per", 64)):
            block = f'{labels},kv_cache_block_type="{kind}"'
            lines.append(f"nv_trt_llm_kv_cache_block_metrics{{{block}}} {value}")
    lines += [
        'nv_gpu_memory_used_bytes{gpu_uuid="a"} 100',
        'nv_gpu_memory_total_bytes{gpu_uuid="a"} 400',
    ]
    return ("\n".join(lines) + "\n").encode()


OTHER_PROGRAM = b"""# TYPE node_cpu_seconds_total counter
node_cpu_seconds_total{cpu="0",mode="idle"} 1234.5
process_start_time_seconds 1.7e9
"""
