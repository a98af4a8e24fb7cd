"""Single words that are shown and stand nowhere as a label: names of states, verdicts, reasons."""

from __future__ import annotations

WORDS = (
    "pass", "fail", "warn", "error", "skip", "unknown", "inconclusive", "well", "skipped",
    "running", "waiting", "prefill", "decode", "preempted", "finished", "cancelled", "stopped",
    "better", "worse", "same", "adopt", "reject", "rolled_back", "yes", "no",
    "stop", "length", "cancel", "timeout", "capacity", "shutdown",
    "live", "stale", "unreachable", "unparsable", "wrong engine", "loading", "up", "stopping",
    "request", "pages", "compute", "load", "process", "allocator", "ended", "numbers", "marks",
    "under 1 s", "under 8 s", "under 64 s", "none on this machine", "cancelling",
    "lasts", "gone", "quit it", "replace", "hold", "restart", "better", "must", "should",
)  # fmt: skip
