"""Remedies in the target's own words: the flag of each engine that moves what a cause is about."""

from __future__ import annotations

from dataclasses import replace

from playbooks.diagnosis.findings import Finding

MORE_ROWS = {
    "vllm": "--max-num-seqs",
    "sglang": "--max-running-requests",
    "llamacpp": "--parallel, and by as much --ctx-size",
    "lmdeploy": "--max-batch-size",
    "tgi": "--max-batch-size, --max-batch-total-tokens",
    "trtllm": "--max_batch_size",
}
KV_MEMORY = {
    "vllm": "--gpu-memory-utilization up, --kv-cache-dtype fp8, or --max-model-len down",
    "sglang": "--mem-fraction-static up, --kv-cache-dtype fp8_e5m2, or --context-length down",
    "llamacpp": "--ctx-size up, --cache-type-k q8_0 and --cache-type-v q8_0",
    "lmdeploy": "--cache-max-entry-count up, --quant-policy 8, or --session-len down",
    "tgi": "--cuda-memory-fraction up, --kv-cache-dtype, or --max-total-tokens down",
    "trtllm": "--kv_cache_free_gpu_memory_fraction up, or --max_seq_len down",
}
STEP_TOKENS = {
    "vllm": "--max-num-batched-tokens up",
    "sglang": "--chunked-prefill-size up",
    "llamacpp": "--batch-size and --ubatch-size up",
    "lmdeploy": "--max-prefill-token-num up",
    "tgi": "--max-batch-prefill-tokens up",
    "trtllm": "--max_num_tokens up",
}
PREFIXES = {
    "vllm": "--enable-prefix-caching",
    "sglang": "without --disable-radix-cache",
    "llamacpp": "--cache-reuse 256",
    "lmdeploy": "--enable-prefix-caching",
    "tgi": "PREFIX_CACHING=1",
}
LOGGING = {
    "vllm": "--disable-log-requests",
    "sglang": "without --log-requests, --log-level warning",
    "llamacpp": "--log-disable",
    "lmdeploy": "--log-level WARNING",
    "tgi": "LOG_LEVEL=warn",
}
TOKENIZER = {
    "vllm": "--api-server-count up",
    "sglang": "--tokenizer-worker-num up",
    "tgi": "--validation-workers up",
}
ADMISSION = {
    "sglang": "--max-queued-requests up",
    "tgi": "--max-concurrent-requests up",
    "evewatch": "--max-queue up",
}
DRAFTS = {
    "vllm": "without --speculative-config, or its num_speculative_tokens down",
    "sglang": "without --speculative-algorithm, or --speculative-num-draft-tokens down",
    "llamacpp": "without --model-draft, or --draft-max down",
    "tgi": "--speculate 0",
    "evewatch": "--set speculate=off",
}
MORE_MACHINES = {
    "vllm": "--tensor-parallel-size or --data-parallel-size up",
    "sglang": "--tp-size or --dp-size up",
    "lmdeploy": "--tp up",
    "tgi": "--num-shard up",
    "trtllm": "--tp_size up",
}


def _lowered(table: dict[str, str]) -> dict[str, str]:
    """Of several flags the first."""
    return {engine: f"{flags.partition(',')[0]} down" for engine, flags in table.items()}


FLAGS: dict[str, dict[str, str]] = {
    "cap_bound": {engine: f"{flags} up" for engine, flags in MORE_ROWS.items()},
    "over_saturated": _lowered(MORE_ROWS),
    "batch_too_large_for_objective": _lowered(MORE_ROWS),
    "preemption_thrash": {
        engine: f"{flags}, else {KV_MEMORY[engine]}"
        for engine, flags in _lowered(MORE_ROWS).items()
    },
    "failing_requests": ADMISSION,
    "kv_bound": KV_MEMORY,
    "token_budget_bound": STEP_TOKENS,
    "cold_prefix_cache": PREFIXES,
    "logging_overhead": LOGGING,
    "tokenizer_bound": TOKENIZER,
    "speculation_hurts": DRAFTS,
    "compute_bound": MORE_MACHINES,
}
"""By cause and engine, as adapters name it. Where none is here the remedy says all there is."""


def in_own_flags(finding: Finding, engine: str | None) -> Finding:
    """The finding with the engine's flags before the remedy. They are read at its start."""
    flags = FLAGS.get(finding.cause, {}).get(engine or "")
    if flags is None:
        return finding
    return replace(finding, remedy=f"{engine}: {flags}; {finding.remedy}", applies="restart")
