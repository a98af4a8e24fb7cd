"""Latency: percentiles from raw samples, each with its unit, and how they moved."""

from __future__ import annotations

from console import format as fmt
from console.renderables.frame import Frame
from console.renderables.graphs import CHART_SPAN_S, chart, spark
from console.renderables.lines import BLANK, Field, Line, Span, fit, flow, text_line
from engine.snapshot import LatencyState, Percentiles

MEANINGS = (
    "TTFT: from arrival to the first token, waiting included",
    "TPOT: mean time per output token after the first",
    "ITL:  between two tokens as the caller sees them",
    "E2E:  from arrival to the last token",
)


def rows(latency: LatencyState) -> list[tuple[str, Percentiles]]:
    return [
        ("TTFT", latency.ttft_ms),
        ("TPOT", latency.tpot_ms),
        ("ITL", latency.itl_ms),
        ("E2E", latency.e2e_ms),
    ]


def table(latency: LatencyState, width: int) -> list[Line]:
    """A heading and four rows; mean and sample count where there is room."""
    wide = width >= 60
    heads = ["p50", "p90", "p99", *(["mean", "requests"] if wide else [])]
    column = 10 if wide else max(7, (width - 6) // 3)
    lines = [text_line(" " * 6 + "".join(f"{head:>{column}}" for head in heads), "label")]
    for name, p in rows(latency):
        cells = [fmt.millis(p.p50), fmt.millis(p.p90), fmt.millis(p.p99)]
        if wide:
            cells += [fmt.millis(p.mean), fmt.count(p.n or None)]
        values = "".join(f"{value:>{column}}" for value in cells)
        lines.append(fit((Span(f"{name:<6}", "label"), Span(values, "value")), width))
    return lines


def overview(frame: Frame, width: int, height: int) -> list[Line]:
    latency = frame.snapshot.latency
    if height < 5:
        return [_one_line(name, p, width) for name, p in rows(latency)][:height]
    lines = table(latency, width)
    left = height - len(lines) - 1
    if left >= 1:
        lines += [BLANK, *_graphs(frame, width, left)]
    return lines[:height]


def _one_line(name: str, p: Percentiles, width: int) -> Line:
    values = [
        Field("p50", fmt.millis(p.p50)),
        Field("p90", fmt.millis(p.p90)),
        Field("p99", fmt.millis(p.p99)),
    ]
    head = Span(f"{name:<5}", "label")
    return fit((head, *next(iter(flow(values, width - 5, 1)), ())), width)


def _graphs(frame: Frame, width: int, height: int) -> list[Line]:
    ttft, tpot = frame.history["ttft_p99"], frame.history["tpot_p99"]
    now, half = frame.now, height // 2
    if height < 6:
        return [
            spark("TTFT p99", ttft, now, width, fmt.millis),
            spark("TPOT p99", tpot, now, width, fmt.millis),
        ]
    if height < 10:
        high = chart("TTFT p99", ttft, now, width, height - 1, fmt.millis, CHART_SPAN_S)
        return [*high, spark("TPOT p99", tpot, now, width, fmt.millis)]
    return [
        *chart("TTFT p99", ttft, now, width, height - half, fmt.millis, CHART_SPAN_S),
        *chart("TPOT p99", tpot, now, width, half, fmt.millis, CHART_SPAN_S),
    ]


def detail(frame: Frame, width: int, height: int) -> list[Line]:
    history, now = frame.history, frame.now
    lines = [*table(frame.snapshot.latency, width), BLANK]
    lines += [fit(text_line(text, "faint"), width) for text in MEANINGS]
    rest = height - len(lines) - 1
    lines.append(BLANK)
    names = ("ttft_p50", "ttft_p99", "tpot_p50", "tpot_p99")
    wanted = names if rest >= 24 else ("ttft_p99", "tpot_p99")
    for name in wanted:
        lines += chart(_title(name), history[name], now, width, rest // len(wanted), fmt.millis)
    return lines[:height]


def _title(name: str) -> str:
    metric, percentile = name.split("_")
    return f"{metric.upper()} {percentile}"
