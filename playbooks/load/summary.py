"""What the records of a run say: latencies, throughput, goodput, and whether to believe them.

Latencies are of the requests that were due in the measuring window, answered in it or not, so
that slow ones are not dropped. Throughput is of what came out in the window. The window begins
after the warm-up and ends with the last sending; its edges fade in and out over one median
request, so that requests in lockstep do not make the result depend on where an edge falls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.observing.telemetry import percentiles
from playbooks.load.client import LoadResult
from playbooks.load.limits import CLIENT_LIMIT
from playbooks.load.record import INTERRUPTED, RequestRecord

SCHEMA = 1
WARM_UP_SHARE = 0.1
"""Of the sending time is warm-up, and one median request at least."""
CACHED_SHARE = 0.05
"""Of the prompt tokens in the target's prefix cache: more flatters."""
LEAST_REQUESTS_LONG = 2
"""A window shorter than so many median requests has no steady state: the whole run counts."""
LAG_MEDIAN = (2.0, 0.10)
LAG_P99 = (50.0, 0.25)
"""Milliseconds, and share of the TTFT, above which the generator's own delay is the limit."""


@dataclass(frozen=True)
class Window:
    """What is measured, in monotonic ns."""

    begin: int
    end: int
    fade: float
    """Of each edge, in ns."""
    steady: bool
    """Warm-up and drain are excluded; False: the run was too short, and all of it counts."""

    def has(self, record: RequestRecord) -> bool:
        """Its latencies count."""
        return self.begin <= record.scheduled <= self.end

    def weights(self, times: np.ndarray) -> np.ndarray:
        """How much of what happened at these times counts: 1 inside, 0 outside."""
        inside = ((times >= self.begin) & (times <= self.end)).astype(float)
        if not self.fade:
            return inside
        rise, fall = (times - self.begin) / self.fade, (self.end - times) / self.fade
        return inside * np.clip(rise, 0, 1) * np.clip(fall, 0, 1)

    def rate(self, times: np.ndarray, amounts: np.ndarray | float = 1.0) -> float:
        """Amounts per second."""
        seconds = (self.end - self.begin - self.fade) / 1e9
        return float((self.weights(times) * amounts).sum() / seconds) if seconds > 0 else 0.0


def window_of(result: LoadResult) -> Window:
    """From the end of the warm-up to the last sending."""
    sending = result.issued_until - result.start
    spans = [r.last - r.scheduled for r in result.records if r.completed]
    typical = float(np.median(spans)) if spans else 0.0
    asked = result.spec.warm_up_s
    warm_up = min(max(WARM_UP_SHARE * sending, typical), sending / 2)
    begin = result.start + int(warm_up if asked is None else asked * 1e9)
    length = result.issued_until - begin
    enough = length > 0 if asked else length > LEAST_REQUESTS_LONG * typical
    if spans and enough:
        return Window(begin, result.issued_until, min(typical, length / 2), True)
    last = max((r.last or r.ended for r in result.records), default=result.end)
    return Window(result.start, max(last, result.issued_until), 0.0, False)


def summarize(result: LoadResult) -> dict[str, Any]:
    """The report of a run, ready for JSON."""
    window = window_of(result)
    records = result.records
    measured = [r for r in records if r.completed and window.has(r)]
    latency = _latency(measured)
    send_delay = latency_block(r.send_delay_ms for r in records if window.has(r))
    loop_lag = latency_block(result.loop_lag_ms)
    limit = generator_limit(latency["ttft_ms"], send_delay, loop_lag)
    reasons = _doubts(result, measured, limit)
    ours = sum(r.error == CLIENT_LIMIT for r in records)
    failed = sum(r.error is not None for r in records) - ours
    return {
        "schema": SCHEMA,
        "kind": "load",
        "verdict": "inconclusive" if reasons else "fail" if failed else "pass",
        "reasons": reasons,
        "warnings": [*result.spec.warnings, *_warnings(result, window)],
        "target": result.target,
        "load": result.spec.describe(),
        "wall_s": (result.end - result.start) / 1e9,
        "window": {
            "begin_s": (window.begin - result.start) / 1e9,
            "end_s": (window.end - result.start) / 1e9,
            "steady": window.steady,
        },
        "requests": {
            "sent": len(records),
            "completed": sum(r.completed for r in records),
            "failed": failed,
            "client_limit": ours,
            "interrupted": sum(r.finish_reason == INTERRUPTED for r in records),
            "measured": len(measured),
            "error_rate": _error_rate(records),
        },
        "throughput": _throughput(records, window),
        "offered": {"requests_s": _offered(result)},
        "latency": latency,
        "goodput": _goodput(result, measured, window),
        "in_flight": _in_flight(records, window),
        "send_delay_ms": send_delay,
        "loop_lag_ms": loop_lag,
        "generator_bound": limit is not None,
        "finish_reasons": dict(Counter(r.finish_reason for r in records if r.error is None)),
        "errors": dict(Counter(r.error for r in records if r.error is not None)),
        "error_examples": {r.error: r.detail for r in records if r.error is not None},
        "tokens": _tokens(records),
        "traces": [trace.describe() for trace in result.spec.traces],
        "interrupted": result.interrupted,
    }


def _error_rate(records: Sequence[RequestRecord]) -> float | None:
    """Share that the target failed: neither empty answers, nor what this machine could not send."""
    failed = sum(r.failed and r.error != CLIENT_LIMIT for r in records)
    return failed / len(records) if records else None


def latency_block(values: np.ndarray | Iterable[float | None]) -> dict[str, Any]:
    """{"p50", "p90", "p99", "mean", "n"} from raw samples, null where n is too small."""
    samples = values if isinstance(values, np.ndarray) else [v for v in values if v is not None]
    p = percentiles(np.asarray(samples, dtype=float))
    return {"p50": p.p50, "p90": p.p90, "p99": p.p99, "mean": p.mean, "n": p.n}


def generator_limit(
    ttft: dict[str, Any], send_delay: dict[str, Any], loop_lag: dict[str, Any]
) -> str | None:
    """Why the generator, not the target, was the limit; None when it was not, or when nothing was
    answered that it could have held up."""
    if not ttft["n"]:
        return None
    for name, block in (("requests were sent", send_delay), ("the event loop woke", loop_lag)):
        for quantile, (floor, share) in (("p50", LAG_MEDIAN), ("p99", LAG_P99)):
            delay, whole = block[quantile], ttft[quantile] or 0.0
            if delay is not None and delay > max(floor, share * whole):
                return (
                    f"the load generator was the limit: {name} {delay:.1f} ms late "
                    f"({quantile}) at a TTFT of {whole:.1f} ms; lower the rate, or give it a "
                    "core of its own"
                )
    return None


def _latency(measured: list[RequestRecord]) -> dict[str, dict[str, Any]]:
    return {
        "ttft_ms": latency_block(r.ttft_ms for r in measured),
        "tpot_ms": latency_block(r.tpot_ms for r in measured),
        "itl_ms": latency_block(_joined([r.itl_ms for r in measured])),
        "e2e_ms": latency_block(r.e2e_ms for r in measured),
        "queue_ms": latency_block(r.queue_ms for r in measured),
    }


def _throughput(records: list[RequestRecord], window: Window) -> dict[str, float]:
    """Prompts count when their first token comes. What a failed request got is no output."""
    good = [r for r in records if r.error is None and r.events]
    times = _joined([np.frombuffer(r.events, np.int64) for r in good])
    per_event = _joined([np.full(len(r.events), _output(r) / len(r.events)) for r in good])
    output = window.rate(times, per_event)
    first = np.array([r.first for r in good], dtype=np.int64)
    prompts = window.rate(first, np.array([r.prompt_tokens or r.prompt_asked for r in good]))
    last = np.array([r.last for r in good if r.completed], dtype=np.int64)
    return {
        "output_tok_s": output,
        "total_tok_s": output + prompts,
        "requests_s": window.rate(last),
    }


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(arrays) if arrays else np.empty(0)


def _output(record: RequestRecord) -> int:
    return record.output_tokens or len(record.events)


def _offered(result: LoadResult) -> float | None:
    """Requests/s while sending went on, warm-up included."""
    seconds = (result.issued_until - result.start) / 1e9
    return len(result.records) / seconds if seconds > 0 else None


def _goodput(
    result: LoadResult, measured: list[RequestRecord], window: Window
) -> dict[str, Any] | None:
    """Requests/s that meet every objective, and their share of all that were due."""
    slo = result.spec.slo
    if not slo:
        return None
    last = [r.last for r in result.records if r.completed and slo.met(r)]
    failed = [r for r in result.records if r.error not in (None, CLIENT_LIMIT) and window.has(r)]
    due = len(measured) + len(failed)
    return {
        "requests_s": window.rate(np.array(last, dtype=np.int64)),
        "share": sum(map(slo.met, measured)) / due if due else None,
        "slo": slo.to_dict(),
    }


def _in_flight(records: list[RequestRecord], window: Window) -> dict[str, Any]:
    """Requests sent and not ended: mean over the window, and the most at once."""
    if not records or window.end <= window.begin:
        return {"mean": None, "max": None}
    sent = np.array([r.sent for r in records], dtype=np.int64)
    ended = np.array([r.ended for r in records], dtype=np.int64)
    inside = np.minimum(ended, window.end) - np.maximum(sent, window.begin)
    moves = np.concatenate([np.ones(len(sent)), -np.ones(len(ended))])
    order = np.lexsort((moves, np.concatenate([sent, ended])))
    return {
        "mean": float(inside.clip(0).sum() / (window.end - window.begin)),
        "max": int(moves[order].cumsum().max()),
    }


def _tokens(records: list[RequestRecord]) -> dict[str, Any]:
    done = [r for r in records if r.completed]
    return {
        "prompt": sum(r.prompt_tokens for r in done),
        "output": sum(r.output_tokens for r in done),
        "prompt_cached": cached_tokens(done),
        "prompt_asked": sum(r.prompt_asked for r in done),
        "output_asked": sum(r.output_asked for r in done),
        "longest_context": max((r.prompt_tokens + r.output_tokens for r in done), default=None),
        "counted_by_target": sum(r.usage for r in done),
        "output_events": sum(len(r.events) for r in done),
    }


def cached_tokens(records: Iterable[RequestRecord]) -> int | None:
    """Prompt tokens that were in the target's prefix cache; None where it never says."""
    told = [r.cached_tokens for r in records if r.cached_tokens is not None]
    return sum(told) if told else None


def _doubts(result: LoadResult, measured: list[RequestRecord], limit: str | None) -> list[str]:
    """Why the run proves nothing."""
    reasons = [limit] if limit else []
    if result.stopped_by is not None:
        reasons.append(f"the run ended early: {result.stopped_by}")
    if not result.records:
        reasons.append("no request was due before the end; give it longer")
    elif not measured:
        reasons.append("no request was answered in the measuring window")
    ours = [r for r in result.records if r.error == CLIENT_LIMIT]
    if ours:
        reasons.append(
            f"{len(ours)} requests could not be sent: out of {ours[0].detail}; "
            "raise that limit, or ask for less"
        )
    return reasons


def _warnings(result: LoadResult, window: Window) -> list[str]:
    notes = []
    if result.records and not window.steady:
        notes.append("too short for a steady state: warm-up and drain are in the numbers")
    if result.shortened:
        notes.append(f"{result.shortened} requests were cut to the longest that the target takes")
    done = [r for r in result.records if r.completed]
    guessed = sum(not r.usage for r in done)
    if guessed:
        notes.append(f"{guessed} answers came without usage: a stream event counts as a token")
    prompts = sum(r.usage and not r.prompt_usage for r in done)
    if prompts:
        notes.append(f"{prompts} answers came without a count of their prompt: as asked for")
    cached, prompt = cached_tokens(done) or 0, sum(r.prompt_tokens for r in done)
    if cached > CACHED_SHARE * prompt:
        notes.append(
            f"the target's prefix cache had {cached} of {prompt} prompt tokens: TTFT and prompt "
            "throughput are those of the rest"
        )
    if any(r.finish_reason == INTERRUPTED for r in result.records):
        notes.append("latencies leave out the requests that were open when the run was stopped")
    return notes
