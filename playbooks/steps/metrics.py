"""What each type of step measures: names for gates and conditions, and what they are."""

from __future__ import annotations

from collections.abc import Mapping

Metrics = Mapping[str, str]
FACT = "fact: "
"""Begins the description of what is no number: the diagnosis reads it, and no gate can."""

THROUGHPUT: Metrics = {
    "output_tok_s": "output tokens per second",
    "requests_s": "requests per second",
}
LATENCY: Metrics = {
    f"{name}_{p}_ms": f"{name.upper()} {p}, milliseconds"
    for name in ("ttft", "tpot", "e2e", "queue")
    for p in ("p50", "p90", "p99")
}
ENVIRONMENT: Metrics = {
    "failures": "checks that are known to break",
    "warnings": "checks that nobody vouches for",
    "broken_versions": "fact: the failed checks",
}
PROFILE: Metrics = {
    **THROUGHPUT,
    "step_ms": "mean step time",
    **{f"{s}_share": f"of request time, {s}" for s in
       ("queue", "tokenize", "prefill", "decode", "detokenize", "return")},
    **{f"{s}_step_share": f"of step time, {s}" for s in
       ("plan", "build", "gemm", "attention", "sample", "apply", "telemetry")},
}  # fmt: skip
LOAD: Metrics = {
    **THROUGHPUT,
    **LATENCY,
    "requests": "requests sent",
    "error_rate": "share of requests that failed; an answer without text has not",
    "goodput_share": "share of requests that met every objective",
    "knee": "rows at which doubling stops to pay, from step times",
    "mean_running": "rows of a step",
    "waiting_share": "of the steps, those that left somebody waiting",
    "kv_limited_share": "of the steps, those without room in the KV cache",
    "batch_limited_share": "of the steps, those with a full batch",
    "token_limited_share": "of the steps, those full of tokens",
    "lost_share": "of the CPU time asked for, lost to others, steal and quota",
    "others_share": "of the CPU time asked for, what other processes had meanwhile",
    "steal_share": "of the machine's CPU time, what the hypervisor gave to others",
    "throttled_share": "of the CPU quota's periods, those in which it was spent",
    "host": "fact: what the machine did to the engine",
    "busy_share": "of the time, steps",
    "token_gain": "gain of twice the tokens a step",
    "tpot_ms": "median time per token",
    "queue_share": "of request time, waiting",
    "tokenize_share": "of the middle request's time, tokenizing and waiting for it",
    "decode_share": "of request time, decoding",
    "logging_share": "of step time, writing log lines",
    "log_lines_per_request": "log lines per request",
    "preemption_tax": "recomputed over useful tokens",
    "kv_usage": "of the pages, those held",
    "kv_waste": "of the token places held, those without a token",
    "prefix_expected": "hit ratio that equal beginnings should give",
    "prefix_hit_ratio": "hit ratio of the prefix cache",
    "generator_late_ms": "how late the generator was beyond what is tolerable",
    "curve": "fact: step times by rows",
    "refused_share": "share of requests that failed, broken streams not counted; of a URL, "
    "of all that the check has sent",
    "tail": "fact: requests far slower than others at the same load",
    "broken": "fact: answers that ended before they were finished",
    "lengths": "fact: answers or prompts of another length than was asked for; of a URL",
    "at_once_share": "of the longer streamed answers, those that came in one piece; of a URL",
    "restarts": "fact: how often counters began again",
    "inconsistent": "fact: counters that disagree with the answers",
    "odd_replicas": "fact: replicas unlike the others",
    "engine": "fact: which engine it is",
}
LOAD_FACTS = (
    "refused_share",
    "mean_running", "waiting_share", "kv_limited_share", "batch_limited_share",
    "token_limited_share", "host", "busy_share", "token_gain", "tpot_ms", "queue_share",
    "tokenize_share",
    "logging_share", "preemption_tax", "kv_usage", "kv_waste", "prefix_expected",
    "prefix_hit_ratio", "generator_late_ms", "curve",
    "tail", "broken", "restarts", "inconsistent", "odd_replicas",
)  # fmt: skip
SWEEP: Metrics = {
    "knee": "rows at which doubling stops to pay",
    "recommended_cap": "a little before the knee, and under the objective",
    "cap_over_recommended": "the configured cap over the recommended one",
    "peak_tok_s": "best throughput of all sizes",
}
COMPARE: Metrics = {
    "goals_missed": "goals that failed",
    "goals_unclear": "goals that the data do not decide",
    "worse": "metrics that got worse, first arm to last",
    "throughput_ratio": "throughput, last arm over first",
    "p99_ratio": "E2E P99, last arm over first",
}
QUALITY: Metrics = {
    "mean_kld": "mean KL divergence from the baseline",
    "p99_kld": "99 % KL divergence",
    "top1_agreement": "share of positions with the same best token",
    "rms_dp": "RMS change of the probability",
    "ppl_change": "relative change of perplexity",
    "passkey_misses": "passkeys missed more, of 20",
    "structure_p": "chance of so many fewer valid structured answers; not of a URL",
    "clipped": "share of K and V that static scales clipped",
    "mixed_answers": "answers that depend on who shares the batch",
    "failed_limits": "limits of the quality check that fail",
    "unclear": "1 when the check's own controls fail, else 0",
    "json_valid": "share of the JSON cases whose answer parses and fits; of a URL",
    "calls_valid": "share of the tool cases that call a tool there is, with arguments that fit; "
    "of a URL",
    "repeats": "share of the greedy answers alone that come again word for word; of a URL",
    "emptied": "answers without text to requests that had one at another time; of a URL",
    "top_kld": "KL divergence of top log probabilities from those of before, beyond the floor; "
    "of a URL",
    "suspects": "fact: K channels that stand out",
}
SOAK: Metrics = {
    "grew": "classes of resources, containers and objects that grow",
    "left": "resources that are held after the storms",
    "rss_bytes_per_request": "slope of the resident set",
    "open_files_per_request": "slope of the open files; of a URL of this machine",
    "idle_pages_per_request": "slope of the pages held at idle",
    "entries_per_request": "slope of the entries of all containers",
    "growth": "fact: what grows",
}
FAULTS: Metrics = {
    "missed": "faults that were not found first",
    "false_alarms": "healthy runs blamed",
}
CANARY: Metrics = {
    "reached_percent": "largest share of the traffic that the candidate had",
    "rolled_back": "1 when it was rolled back, 0 when it was promoted",
    "rollback_ms": "from the decision to roll back to the last request that the candidate got",
    "rollback_idle_ms": "from that decision to the end of its last request",
}
FORECAST: Metrics = {
    "holds_share": "of the plausible days, those that hold the objective and never saturate",
    "saturated_share": "of the plausible days, those that saturate",
    "good_share": "of the requests, those within the objective",
    "good_share_low": "the same on a bad day: one of ten is worse",
    "budget_spent": "of the requests that may miss the objective, the share that does",
    **{f"{name}_p99_ms": f"{name.upper()} p99, milliseconds" for name in ("ttft", "tpot", "e2e")},
    "kv_usage": "of the pages, most that are held",
    "replicas_needed": "that hold the objective in every hour",
    "replicas_missing": "the same, beyond those that there are",
}
CHECKLIST: Metrics = {
    "failed_items": "items that fail",
    "warned_items": "items that warn",
    "unknown_items": "automatic items without evidence",
    "open_items": "items that a person has still to answer",
}

RENAMED = {
    "kv_door": "kv_limited_share",
    "cap_door": "batch_limited_share",
    "budget_door": "token_limited_share",
}
"""Names of before; whoever writes one is told the new one."""
