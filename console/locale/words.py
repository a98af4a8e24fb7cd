"""Single words that are shown and stand nowhere as a label: names of states, verdicts, reasons."""

from __future__ import annotations

WORDS = (
    "pass", "fail", "warn", "error", "skip", "unknown", "inconclusive", "well", "skipped",
    "running", "waiting", "prefill", "decode", "preempted", "finished", "cancelled", "stopped",
    "better", "worse", "same", "adopt", "reject", "rolled_back", "yes", "no",
    "stop", "length", "cancel", "timeout", "capacity", "shutdown",
    "live", "stale", "unreachable", "unparsable", "wrong engine", "loading", "stopping",
    "request", "pages", "compute", "load", "process", "allocator", "ended", "numbers", "marks",
    "under 1 s", "under 8 s", "under 64 s", "none on this machine", "cancelling",
    "lasts", "gone", "quit it", "replace", "hold", "restart", "better", "must", "should",
    "advance", "roll back", "waived", "promoted", "undecided", "faults", "errors", "tail",
    "firing", "resolved", "critical", "warning", "holds", "fails", "uncertain",
    "adopted", "rejected", "measured", "inferred", "simulated", "completed", "interrupted",
    "none", "nothing", "whole", "healthy", "nobody",
    "rss bytes", "allocated bytes", "reserved bytes", "idle pages", "container entries",
    "tokenizing", "streams", "texts", "slabs", "same time",
    "middle", "attention", "planning", "sampling", "applying",
    "extraction", "summarising", "arithmetic", "classification", "multi turn", "long context",
    "tool calls", "copying", "tables",
    "driver", "compiler", "disk", "cpu quota", "cpu clock", "gpu code", "cuda builds",
    "playbook", "checklist", "answers", "cases", "calendar", "experiment", "settings", "alerts",
    "risk note", "cost note", "decides on", "served", "more", "on", "agrees", "requests ended",
    "output tokens", "misbehaves", "recommended cap", "last value", "config hash", "cores",
    "system", "its steps",
    "never", "auto", "human", "off", "paused", "seed", "availability", "reachable",
)  # fmt: skip

VERDICTS = (
    "pass", "fail", "warn", "error", "skip", "skipped", "unknown", "inconclusive", "healthy",
    "undecided", "promoted", "adopted", "rejected", "interrupted",
)  # fmt: skip
"""Those of them that are said where a name could stand: "healthy: nothing was found"."""

OTHERS = (
    # of the library of the command line
    "Install completion for the current shell.",
    "Show completion for the current shell, to copy it or customize the installation.",
    "Usage", "Options", "Arguments", "Commands", "Show this message and exit.",
    "[default: {name}]", "[required]", "[env var: {variable}]",
    "[env var: {variable}; default: {value}]",
    "No such option: {name}", "No such option: {name} Did you mean {other}?",
    "No such option: {name} (Possible options: {others})",
    "Missing argument {name}.", "Missing option {name}.", "Missing command.",
    "Missing parameter: {name}", "No such command {name}.",
    "Got unexpected extra argument ({name})", "Got unexpected extra arguments ({names})",
    "Option {name} requires an argument.", "Option {name} requires {n:n} arguments.",
    "Option {name} does not take a value.",
    "Invalid value: {why}", "Invalid value for {name}: {why}",
    "{value} is not a valid integer.", "{value} is not a valid float.",
    "{value} is not a valid boolean. Recognized values: {values}",
    "{value} is not a valid int.", "{value} is not one of {values}.",
    "{value} is not in the range {range}.",
    "File {path} does not exist.", "Path {path} does not exist.",
    # of the system
    "No such file or directory", "Permission denied", "Is a directory", "Not a directory",
    "File exists", "No space left on device", "Connection refused", "Address already in use",
    "Read-only file system", "timed out", "Connection reset by peer", "Broken pipe",
    "out of memory",
    # of Python
    "hour must be in 0..23", "minute must be in 0..59", "second must be in 0..59",
    "month must be in 1..12", "day is out of range for month",
    "Invalid isoformat string: {text}",
    # of the HTTP client
    "All connection attempts failed", "Server disconnected without sending a response.",
    "peer closed connection without sending complete message body (incomplete chunked read)",
    "[Errno {n:n}] {error}: {path}", "[Errno {n:n}] {error}",
    # times
    "{n:n} min", "{n:n} h", "{n:n} d", "{n:n} d {clock}",
)  # fmt: skip
"""Texts that others say, as msgids."""
