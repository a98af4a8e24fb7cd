"""Batch: how full the step is, what it costs and what keeps it from being larger."""

from __future__ import annotations

from console.renderables import format as fmt
from console.renderables import told
from console.renderables.graphs import chart, share_line, spark
from console.renderables.lines import (
    BLANK,
    Field,
    Line,
    beside,
    flow,
    grid,
    half,
    text_line,
)
from console.renderables.requests import request_table
from console.renderables.screen_state import ScreenState
from engine.snapshot import BatchState

BOUNDS = {
    "cap": "cap",
    "kv": "KV",
    "token_budget": "tokens",
    "compute": "compute",
    "queue": "load",
    "batch": "batch",
}
RECENT_S = 60.0


def fields(state: ScreenState) -> list[Field]:
    batch = state.snapshot.batch
    recent = state.history["preempted"].change(state.now, RECENT_S)
    bound, share = bound_most(batch)
    words = BOUNDS.get(bound or "", bound) or fmt.MISSING
    return [
        Field("running", fmt.count(batch.running)),
        Field("cap", f"{fmt.count(batch.cap)}/{fmt.count(batch.cap_max)}"),
        Field("preempted", fmt.count(batch.preemptions_total), trouble=recent > 0),
        Field("bound by", f"{words} {share}".rstrip(), trouble=bound == "kv"),
        Field("step", fmt.millis(batch.step_ms)),
        Field("prefill", fmt.decimal(batch.prefill_tokens, "tok")),
        Field("decode", fmt.decimal(batch.decode_tokens, "tok")),
        Field("output", fmt.rate(batch.output_tok_s, "tok")),
        Field("prompt", fmt.rate(batch.prompt_tok_s, "tok")),
        *drafts(batch),
        *predictions(batch),
    ]


def drafts(batch: BatchState) -> list[Field]:
    """What speculation brings, where an engine speculates."""
    if batch.draft_accepted_ratio is None:
        return []
    return [
        Field("drafts accepted", fmt.percent(batch.draft_accepted_ratio)),
        Field("a draft", fmt.decimal(batch.draft_tokens, "tok")),
        *(
            [Field("drafts gain", fmt.times(batch.draft_gain), trouble=batch.draft_gain < 1)]
            if batch.draft_gain is not None
            else []
        ),
    ]


def predictions(batch: BatchState) -> list[Field]:
    """How many outputs were as long as expected, where admission goes by that."""
    if batch.predicting is None:
        return []
    share = fmt.percent(batch.length_coverage)
    return [Field("as predicted", share, trouble=not batch.predicting)]


def bound_most(batch: BatchState) -> tuple[str | None, str]:
    """What limited most of the last minute's steps, and which share of them; where there is no
    such count, what limited the last ones."""
    if not batch.bound_shares:
        return batch.bound_by, ""
    name, share = max(batch.bound_shares.items(), key=lambda item: item[1])
    return name, fmt.percent(share)


def bounds(batch: BatchState, width: int) -> list[Line]:
    """Each limit's share of the last minute's steps, the largest first."""
    title = text_line("what bound the last minute of steps", "label")
    if not batch.bound_shares:
        return [title, text_line("no steps, or not reported", "faint")]
    lines = [title]
    for name, share in sorted(batch.bound_shares.items(), key=lambda item: -item[1]):
        lines.append(share_line(f" {BOUNDS.get(name, name)}", share, width, 13))
    return lines


def overview(state: ScreenState, width: int, height: int) -> list[Line]:
    columns = 3 if width >= 60 else 2
    values = state.told(fields(state))
    lines = grid(values, width, columns)
    if height < len(lines):
        return flow(values, width, height)
    history, now = state.history, state.now
    if height > len(lines):
        lines.append(spark("batch", history["running"], now, width, fmt.count))
    if height > len(lines) and not (state.watched and state.snapshot.batch.cap is None):
        lines.append(spark("cap", history["cap"], now, width, fmt.count))
    return lines[:height]


def detail(state: ScreenState, width: int, height: int) -> list[Line]:
    batch, history, now = state.snapshot.batch, state.history, state.now
    totals = [
        Field("steps", fmt.count(batch.steps_total)),
        Field("output", fmt.count(batch.output_tokens_total, "tok")),
        Field("prompt", fmt.count(batch.prompt_tokens_total, "tok")),
    ]
    values = state.told([*fields(state), *totals])
    lines = [*grid(values, width, max(2, min(4, width // 28))), BLANK]
    if state.watched:
        return [*lines, *_outside(state, width, height - len(lines))][:height]
    rows, room = max(6, (height - len(lines)) // 4), half(width)
    lines += beside(
        bounds(batch, room), chart("cap", history["cap"], now, room, rows, fmt.count), width
    )
    lines += beside(
        chart("running", history["running"], now, room, rows, fmt.count),
        chart("step time", history["step"], now, room, rows, fmt.millis),
        width,
    )
    lines += [BLANK]
    running = [row for row in state.snapshot.requests if row.state == "running"]
    lines += request_table(running, width, height - len(lines), "nothing runs")
    return lines[:height]


def _outside(state: ScreenState, width: int, height: int) -> list[Line]:
    """Of a watched engine: how it ran, its replicas, and how much its steps compute."""
    history, now, room = state.history, state.now, half(width)
    lines = told.replica_table(state.snapshot.replicas, width, height // 2)
    lines = [*lines, BLANK] if lines else []
    rows = max(6, (height - len(lines)) // 2)
    lines += beside(
        chart("running", history["running"], now, room, rows, fmt.count),
        chart("output tok/s", history["output"], now, room, rows, fmt.decimal),
        width,
    )
    return [*lines, *told.distributions(state.snapshot.lengths, width, height - len(lines))]
