"""Batch: how full the step is, what it costs and what keeps it from being larger."""

from __future__ import annotations

from console import format as fmt
from console.renderables.frame import Frame
from console.renderables.graphs import chart, spark
from console.renderables.lines import BLANK, Field, Line, flow, grid
from console.renderables.requests import request_table

BOUNDS = {
    "cap": "cap",
    "kv": "KV pages",
    "token_budget": "tok budget",
    "compute": "compute",
    "queue": "no queue",
}
RECENT_S = 60.0


def fields(frame: Frame) -> list[Field]:
    batch = frame.snapshot.batch
    recent = frame.history["preempted"].change(frame.now, RECENT_S)
    bound = BOUNDS.get(batch.bound_by or "", batch.bound_by) or fmt.MISSING
    return [
        Field("running", fmt.count(batch.running)),
        Field("cap", f"{fmt.count(batch.cap)}/{fmt.count(batch.cap_max)}"),
        Field("preempted", fmt.count(batch.preemptions_total), trouble=recent > 0),
        Field("bound by", bound, trouble=batch.bound_by == "kv"),
        Field("step", fmt.millis(batch.step_ms)),
        Field("prefill", fmt.decimal(batch.prefill_tokens, "tok")),
        Field("decode", fmt.decimal(batch.decode_tokens, "tok")),
        Field("output", fmt.rate(batch.output_tok_s, "tok")),
        Field("prompt", fmt.rate(batch.prompt_tok_s, "tok")),
    ]


def overview(frame: Frame, width: int, height: int) -> list[Line]:
    columns = 3 if width >= 60 else 2
    lines = grid(fields(frame), width, columns)
    if height < len(lines):
        return flow(fields(frame), width, height)
    history, now = frame.history, frame.now
    if height > len(lines):
        lines.append(spark("batch", history["running"], now, width, fmt.count))
    if height > len(lines):
        lines.append(spark("cap", history["cap"], now, width, fmt.count))
    return lines[:height]


def detail(frame: Frame, width: int, height: int) -> list[Line]:
    batch, history, now = frame.snapshot.batch, frame.history, frame.now
    totals = [
        Field("steps", fmt.count(batch.steps_total)),
        Field("output", fmt.count(batch.output_tokens_total, "tok")),
        Field("prompt", fmt.count(batch.prompt_tokens_total, "tok")),
    ]
    lines = [*grid([*fields(frame), *totals], width, max(2, min(4, width // 28))), BLANK]
    rows = max(5, (height - len(lines)) // 4)
    lines += chart("running", history["running"], now, width, rows, fmt.count)
    lines += chart("step time", history["step"], now, width, rows, fmt.millis)
    lines += [BLANK]
    running = [row for row in frame.snapshot.requests if row.state == "running"]
    lines += request_table(running, width, height - len(lines), "nothing runs")
    return lines[:height]
