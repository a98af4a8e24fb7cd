"""Latency: percentiles from raw samples, each with its unit, and how they moved."""

from __future__ import annotations

from collections.abc import Sequence

from console.history import Series
from console.renderables import format as fmt
from console.renderables.graphs import CHART_SPAN_S, chart, histogram
from console.renderables.lines import (
    BLANK,
    Field,
    Line,
    Span,
    beside,
    columns_line,
    fit,
    flow,
    half,
    in_column,
    text_line,
)
from console.renderables.screen_state import ScreenState
from engine.snapshot import Histogram, LatencyState, Percentiles

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


def told_rows(state: ScreenState) -> list[tuple[str, Percentiles]]:
    """Of a watched engine the metrics that it has, of our own all."""
    latency = state.snapshot.latency
    drawn = dict(histograms(latency))
    known = rows(latency)
    return [(n, p) for n, p in known if not state.watched or p.n or drawn[n] is not None] or known


def table(known: Sequence[tuple[str, Percentiles]], width: int) -> list[Line]:
    """A heading and a row each; mean and sample count where there is room."""
    wide = width >= 60
    heads = [*fmt.ENOUGH, *(["mean", "requests"] if wide else [])]
    column = 10 if wide else max(7, (width - 6) // 3)
    lines = [columns_line([("", 6), *((head, column) for head in heads)])]
    for name, p in known:
        cells = list(fmt.quantiles(p).values())
        if wide:
            cells += [fmt.millis(p.mean), fmt.count(p.n or None)]
        values = "".join(f"{value:>{column}}" for value in cells)
        lines.append(fit((in_column(name, -6), Span(values, "value")), width))
    return lines


def overview(state: ScreenState, width: int, height: int) -> list[Line]:
    known = told_rows(state)
    if height < 5:
        return [_one_line(name, p, width) for name, p in known][:height]
    lines = table(known, width)
    left = height - len(lines) - 1
    if left >= 1:
        names = [name for name in ("TTFT", "TPOT") if name in dict(known)]
        lines += [BLANK, *_graphs(state, names, width, left)]
    return lines[:height]


def _one_line(name: str, p: Percentiles, width: int) -> Line:
    values = [Field(name, text) for name, text in fmt.quantiles(p).items()]
    head = in_column(name, -5)
    return fit((head, *next(iter(flow(values, width - 5, 1)), ())), width)


def _graphs(state: ScreenState, names: Sequence[str], width: int, height: int) -> list[Line]:
    """A chart has four rows at least; with fewer it is one line."""
    lower = 0 if len(names) < 2 else 1 if height < 10 else height // 2
    upper = height - lower if height >= 6 else 1
    return [
        line
        for name, rows in zip(names, (upper, lower), strict=False)
        for line in chart(*course(state, name), state.now, width, rows, fmt.millis, CHART_SPAN_S)
    ]


def detail(state: ScreenState, width: int, height: int) -> list[Line]:
    """The table, what its rows mean, and of each metric the distribution and the course."""
    known = dict(told_rows(state))
    lines = [*table(list(known.items()), width), BLANK]
    if height >= 30:
        lines += [*(fit(text_line(text, "faint"), width) for text in MEANINGS), BLANK]
    rest = height - len(lines)
    drawn = [pair for pair in histograms(state.snapshot.latency) if pair[0] in known]
    shown = drawn[: max(1, min(4, rest // 6))]
    for name, found in shown:
        lines += _pair(state, name, found, width, rest // len(shown))
    return lines[:height]


def histograms(latency: LatencyState) -> list[tuple[str, Histogram | None]]:
    """In the order in which they are given room."""
    return [
        ("TTFT", latency.ttft_hist),
        ("TPOT", latency.tpot_hist),
        ("E2E", latency.e2e_hist),
        ("ITL", latency.itl_hist),
    ]


def _pair(
    state: ScreenState, name: str, found: Histogram | None, width: int, rows: int
) -> list[Line]:
    """Its distribution, and its course."""
    room = half(width)
    label, series = course(state, name)
    return beside(
        histogram(f"{name}, last minute", found, room, rows),
        chart(label, series, state.now, room, rows, fmt.millis),
        width,
    )


def course(state: ScreenState, name: str) -> tuple[str, Series]:
    """The p99 over time, or the p50 while samples are too few for a p99."""
    metric = name.lower()
    rank = "p50" if state.history[f"{metric}_p99"].newest is None else "p99"
    return f"{name} {rank}", state.history[f"{metric}_{rank}"]
