"""What an engine that is watched from outside tells: lengths, ends of requests, its replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from console.locale.lang import said
from console.renderables import format as fmt
from console.renderables.graphs import bar, columns, share_line
from console.renderables.lines import (
    BLANK,
    Field,
    Line,
    Span,
    Verbatim,
    beside,
    columns_line,
    fit,
    half,
    in_column,
    text_line,
)
from engine.snapshot import LengthState, Replica, TokenCounts

COLUMNS_FROM = 5
"""Rows from which a distribution is drawn."""
BARS_FROM = 50
"""Cells from which a replica's KV usage is drawn as well."""


def rows(lengths: LengthState) -> list[tuple[str, TokenCounts]]:
    """Those that are known."""
    named = (("prompt", lengths.prompt), ("output", lengths.output), ("a step", lengths.step))
    return [(name, found) for name, found in named if found is not None]


def table(lengths: LengthState, width: int) -> list[Line]:
    """Tokens of prompts, outputs and steps; a heading and a row each. Nothing where nothing is
    known."""
    known = rows(lengths)
    column = max(6, min(10, (width - 8) // 3))
    head = columns_line([("tokens", -8), *((name, column) for name in ("p50", "p90", "mean"))])
    lines = [fit(head, width)] if known else []
    for name, found in known:
        cells = (found.p50, found.p90, found.mean)
        values = "".join(f"{fmt.count(cell):>{column}}" for cell in cells)
        lines.append(fit((in_column(name, -8), Span(values, "value")), width))
    return lines


def distributions(lengths: LengthState, width: int, height: int) -> list[Line]:
    """Of prompts and outputs beside one another, of steps below where there is room; nothing
    where there is none for columns."""
    known = rows(lengths) if height >= COLUMNS_FROM else []
    room, high = half(width), height // 2 if len(known) > 2 and height >= 12 else height
    drawn = [
        columns(said("{what}, tokens", what=name), found.edges, found.counts, room, high, fmt.count)
        for name, found in known
    ]
    lines: list[Line] = []
    for at in range(0, len(drawn), 2):
        second = drawn[at + 1] if at + 1 < len(drawn) else []
        lines += beside(drawn[at], second, width)
    return lines[:height]


def ended(finished: Mapping[str, int]) -> list[Field]:
    """How many requests ended for each reason that there was, the most frequent first."""
    return [Field(reason, fmt.count(count)) for reason, count in _frequent(finished)]


def end_bars(finished: Mapping[str, int], width: int, height: int) -> list[Line]:
    """The same as shares of all, under a heading; nothing where none has ended."""
    total = sum(finished.values())
    if not total or height < 2:
        return []
    lines = [fit(text_line(f"how {total:,} requests ended", "label"), width)]
    for reason, count in _frequent(finished)[: height - 1]:
        lines.append(share_line(f" {reason}", count / total, width, 13))
    return lines


def _frequent(finished: Mapping[str, int]) -> list[tuple[str, int]]:
    counts = sorted(finished.items(), key=lambda item: (-item[1], item[0]))
    return [(fmt.clean(reason), count) for reason, count in counts if count]


def replica_table(replicas: Sequence[Replica], width: int, height: int) -> list[Line]:
    """A row each; the last line says how many did not fit. Nothing for a single engine."""
    if not replicas or height < 2:
        return []
    name = min(24, max(8, *(len(one.name) + 1 for one in replicas)))
    head = columns_line([("replica", -name), ("running", 9), ("waiting", 9), ("KV", 8)])
    shown = replicas if len(replicas) < height else replicas[: height - 2]
    lines = [fit(head, width), *(_row(one, name, width) for one in shown)]
    if len(shown) < len(replicas):
        lines.append(text_line(f"… {len(replicas) - len(shown)} more", "faint"))
    return lines


def _row(one: Replica, name: int, width: int) -> Line:
    usage = fmt.percent(one.kv_usage)
    numbers = f"{fmt.count(one.running):>9}{fmt.count(one.waiting):>9}{usage:>8}"
    left = width - name - len(numbers) - 2
    ink = bar(one.kv_usage, min(40, left)) if width >= BARS_FROM else ""
    label = fit((Verbatim(fmt.clean(one.name), "label"),), name - 1)
    gap = Span(" " * (name - sum(len(span.text) for span in label)))
    return fit((*label, gap, Span(numbers, "value"), Span(f"  {ink}", "spark")), width)


def below(lines: list[Line], more: Sequence[Line], height: int) -> list[Line]:
    """`more` under `lines` after a blank one, when at least two rows of it fit."""
    if not more or height - len(lines) < 3:
        return lines
    return [*lines, BLANK, *more][:height] if lines else list(more[:height])
