"""Causes around the steps: the load itself, logging, the tokenizer, the prefix cache."""

from __future__ import annotations

from playbooks.diagnosis.evidence import Evidence
from playbooks.diagnosis.findings import LIVE, RESTART, Finding, confidence

LOGGING_SHARE = 0.03
"""Of the steps' time: more than this is not paid for a log."""
TOKENIZE_SHARE = 0.25
PREFIX_SHARE = 0.5
"""Of the expected hits."""
PREFIX_LEAST = 0.1
"""Expected hit ratio below which a cold cache does not matter."""
BUSY = 0.35
"""Of the time: a machine that others use as well does not reach all of it."""


def generator_bound(e: Evidence) -> Finding | None:
    assert e.generator_late_ms is not None
    if e.generator_late_ms <= 0:
        return None
    return Finding(
        "generator_bound",
        0.9,
        (f"the load generator was {e.generator_late_ms:.0f} ms late",),
        "lower the rate or give the generator a core of its own; this run says nothing about "
        "the engine's latency",
        None,
        "the same load from another machine gives the same latencies",
    )


def logging_overhead(e: Evidence) -> Finding | None:
    assert e.logging_share is not None
    if e.logging_share < LOGGING_SHARE:
        return None
    lines = e.log_lines_per_request
    count = "" if lines is None else f", {lines:.1f} lines a request"
    return Finding(
        "logging_overhead",
        confidence(e.logging_share, LOGGING_SHARE, 3 * LOGGING_SHARE),
        (f"log lines take {e.logging_share:.1%} of the steps' time{count} (limit "
         f"{LOGGING_SHARE:.0%})",),
        "raise the log level to WARNING; write one line a kind and minute, never one a request",
        LIVE,
        "throughput with the log off is the same",
    )  # fmt: skip


def tokenizer_bound(e: Evidence) -> Finding | None:
    assert e.tokenize_share is not None
    if e.tokenize_share < TOKENIZE_SHARE:
        return None
    return Finding(
        "tokenizer_bound",
        confidence(e.tokenize_share, TOKENIZE_SHARE, 2 * TOKENIZE_SHARE),
        (f"tokenizing, and waiting for it, is {e.tokenize_share:.0%} of a request's time (limit "
         f"{TOKENIZE_SHARE:.0%})",),
        "send token ids, or give the tokenizer more threads",
        RESTART,
        "the same requests sent as token ids are as slow",
    )  # fmt: skip


def cold_prefix_cache(e: Evidence) -> Finding | None:
    assert e.prefix_expected is not None and e.prefix_hit_ratio is not None
    if e.prefix_expected < PREFIX_LEAST:
        return None
    share = e.prefix_hit_ratio / e.prefix_expected
    if share >= PREFIX_SHARE:
        return None
    return Finding(
        "cold_prefix_cache",
        confidence(share, PREFIX_SHARE, 0.1),
        (f"{e.prefix_hit_ratio:.0%} of the prompt tokens were found in the prefix cache; equal "
         f"beginnings should have given {e.prefix_expected:.0%}",),
        "switch the prefix cache on and see that it is not dropped; after a start, warm it with "
        "the common beginnings",
        RESTART,
        "the requests do not begin alike after all",
    )  # fmt: skip


def underloaded(e: Evidence) -> Finding | None:
    assert e.busy_share is not None and e.waiting_share is not None and e.mean_running is not None
    if e.busy_share >= BUSY or e.waiting_share > 0.1:
        return None
    return Finding(
        "underloaded",
        confidence(e.busy_share, BUSY, 0.1),
        (f"the engine computed {e.busy_share:.0%} of the time with {e.mean_running:.1f} rows and "
         "nobody waited",),
        "raise the load (or use fewer machines): this one says nothing about a busy engine",
        LIVE,
        "the same load with other arrivals keeps the engine busy",
    )  # fmt: skip
