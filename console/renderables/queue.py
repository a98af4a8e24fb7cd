"""Queue: how many wait, for how long, and whether arrivals outrun departures."""

from __future__ import annotations

from console import format as fmt
from console.renderables.frame import Frame
from console.renderables.graphs import chart, spark
from console.renderables.lines import BLANK, Field, Line, Span, fit, flow, grid, text_line
from console.renderables.requests import request_table
from engine.snapshot import QueueState, Snapshot

OLD_WAIT_S = 10.0
"""A request that waits longer is worth a look."""
MOSTLY_WAITING = 0.5


def counts(queue: QueueState) -> list[Field]:
    old = (queue.oldest_wait_s or 0.0) >= OLD_WAIT_S
    return [
        Field("waiting", fmt.count(queue.waiting)),
        Field("oldest", fmt.duration(queue.oldest_wait_s), trouble=old),
        Field("requests", fmt.count(queue.requests_total)),
        Field("arrivals", fmt.rate(queue.arrivals_per_s)),
        Field("done", fmt.rate(queue.finished_per_s)),
    ]


def waits(queue: QueueState) -> list[Field]:
    wait = queue.wait_ms
    return [
        Field("wait p50", fmt.millis(wait.p50)),
        Field("p90", fmt.millis(wait.p90)),
        Field("p99", fmt.millis(wait.p99)),
    ]


def overview(frame: Frame, width: int, height: int) -> list[Line]:
    queue = frame.snapshot.queue
    if height < 4:
        return flow([*counts(queue), *waits(queue)], width, height)
    lines = grid([*counts(queue), *waits(queue)], width, columns=2)
    waiting = frame.history["waiting"]
    if height > len(lines):
        lines.append(spark("waiting", waiting, frame.now, width, fmt.count))
    return lines[:height]


def detail(frame: Frame, width: int, height: int) -> list[Line]:
    queue = frame.snapshot.queue
    columns = max(2, min(4, width // 28))
    lines = grid([*counts(queue), *waits(queue)], width, columns)
    lines += [BLANK, fit(diagnosis(frame.snapshot), width), _finished(frame.snapshot, width), BLANK]
    rows = max(6, (height - len(lines)) // 3)
    lines += chart("waiting", frame.history["waiting"], frame.now, width, rows, fmt.count)
    lines += [BLANK]
    waiting = [row for row in frame.snapshot.requests if row.state != "running"]
    lines += request_table(waiting, width, height - len(lines), "nothing waits")
    return lines[:height]


def diagnosis(snapshot: Snapshot) -> Line:
    """Whether waiting, not computing, is what callers feel."""
    wait, ttft = snapshot.queue.wait_ms.p50, snapshot.latency.ttft_ms.p50
    if wait is None or not ttft or not fmt.known(wait / ttft):
        return text_line("share of waiting in the latency: not known yet", "faint")
    share = min(wait / ttft, 1.0)
    text = f"waiting is {fmt.percent(share)} of the time to first token (p50)"
    if share >= MOSTLY_WAITING:
        return (Span(f"▲ {text}: more room or less load helps, faster steps hardly", "trouble"),)
    return text_line(text)


def _finished(snapshot: Snapshot, width: int) -> Line:
    fields = [
        Field(reason, fmt.count(number)) for reason, number in sorted(snapshot.finished.items())
    ]
    lines = flow(fields, width - 10, 1)
    return (Span("finished  ", "label"), *(lines[0] if lines else text_line(fmt.MISSING)))
