"""Queue: how many wait, for how long, and whether arrivals outrun departures."""

from __future__ import annotations

from console.renderables import format as fmt
from console.renderables import told
from console.renderables.graphs import chart, histogram, spark
from console.renderables.lines import (
    BLANK,
    Field,
    Line,
    Span,
    beside,
    fit,
    flow,
    grid,
    half,
    text_line,
)
from console.renderables.requests import request_table
from console.renderables.screen_state import ScreenState
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
    first, *others = (Field(name, text) for name, text in fmt.quantiles(queue.wait_ms).items())
    return [first._replace(label=f"wait {first.label}"), *others]


def overview(state: ScreenState, width: int, height: int) -> list[Line]:
    queue = state.snapshot.queue
    values = state.told([*counts(queue), *waits(queue)])
    if height < 4:
        return flow(values, width, height)
    lines = grid(values, width, columns=2)
    waiting = state.history["waiting"]
    if height > len(lines):
        lines.append(spark("waiting", waiting, state.now, width, fmt.count))
    if state.watched and height > len(lines) and told.ended(state.snapshot.finished):
        lines.append(_finished(state.snapshot, width))
    return lines[:height]


def detail(state: ScreenState, width: int, height: int) -> list[Line]:
    queue = state.snapshot.queue
    columns = max(2, min(4, width // 28))
    lines = grid(state.told([*counts(queue), *waits(queue)]), width, columns)
    lines += [BLANK, fit(diagnosis(state.snapshot), width), _finished(state.snapshot, width), BLANK]
    rows = max(6, (height - len(lines)) // 3)
    room = half(width)
    lines += beside(
        histogram("waits of the last minute", queue.wait_hist, room, rows),
        chart("waiting", state.history["waiting"], state.now, room, rows, fmt.count),
        width,
    )
    lines += [BLANK]
    if state.watched:
        left = height - len(lines)
        ends = told.end_bars(state.snapshot.finished, min(width, 100), left)
        return [*lines, *told.below(ends, told.table(state.snapshot.lengths, width), left)][:height]
    waiting = [row for row in state.snapshot.requests if row.state != "running"]
    lines += request_table(waiting, width, height - len(lines), "nothing waits")
    return lines[:height]


def diagnosis(snapshot: Snapshot) -> Line:
    """Whether waiting, not computing, is what callers feel."""
    share, of_what = waiting_share(snapshot)
    if share is None:
        return text_line("share of waiting in the latency: not known yet", "faint")
    text = f"{fmt.percent(share)} of {of_what}"
    if share >= MOSTLY_WAITING:
        advice = "more room or less load helps, faster steps hardly"
        return (Span(f"▲ waiting is most of the latency ({text}): {advice}", "trouble"),)
    return text_line(f"waiting is not most of the latency ({text})")


def waiting_share(snapshot: Snapshot) -> tuple[float | None, str]:
    """Of what callers feel, the part in which their request only waited; and of what it is."""
    if fmt.known(snapshot.stages.queue):
        return snapshot.stages.queue, "request time"
    wait, ttft = snapshot.queue.wait_ms.p50, snapshot.latency.ttft_ms.p50
    if wait is None or not ttft or not fmt.known(wait / ttft):
        return None, ""
    return min(wait / ttft, 1.0), "the time to first token (p50)"


def _finished(snapshot: Snapshot, width: int) -> Line:
    lines = flow(told.ended(snapshot.finished), width - 10, 1)
    return (Span("finished  ", "label"), *(lines[0] if lines else text_line(fmt.MISSING)))
