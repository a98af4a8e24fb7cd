"""KV pages and memory: the page map, what still fits, and what contiguous blocks would fit."""

from __future__ import annotations

from console import format as fmt
from console.renderables.frame import Frame
from console.renderables.graphs import CHART_SPAN_S, chart, spark
from console.renderables.lines import (
    BLANK,
    Field,
    Line,
    Span,
    fit,
    flow,
    grid,
    spread,
    text_line,
    width_of,
)
from console.renderables.pagemap import GLYPHS, NAMES, PageMap, page_map
from engine.snapshot import KvState, MemoryState

FULL = 0.95


WIDE = 100


def overview(frame: Frame, width: int, height: int) -> list[Line]:
    kv, memory = frame.snapshot.kv, frame.snapshot.memory
    values = fields(kv, memory)
    if width >= WIDE:
        facts = grid(values, width, 4)
    else:
        facts = flow([*usage(kv), *values], width, max(1, height - 2))
    room = max(0, height - len(facts) - 1)
    drawn = page_map(kv.page_map or "", width, room)
    lines = [legend(kv, drawn, width), *drawn.lines]
    spare = height - len(lines) - len(facts)
    lines += _sparks(frame, width, spare - 1)
    if height > len(lines) + len(facts):
        lines.append(BLANK)
    return [*lines, *facts][:height]


def usage(kv: KvState) -> list[Field]:
    full = kv.usage is not None and kv.usage >= FULL
    return [
        Field("used", f"{fmt.percent(kv.usage)} of {fmt.count(kv.total)}", trouble=full),
    ]


def legend(kv: KvState, drawn: PageMap, width: int) -> Line:
    """Glyph, name and count of each state, and how many pages a cell of the map stands for."""
    counts = {"s": kv.sealed, "o": kv.open, "c": kv.cached, "f": kv.free}
    line: Line = ()
    for state, (glyph, role) in GLYPHS.items():
        name, number = Span(f"{NAMES[state]} ", "label"), Span(f"{fmt.count(counts[state])}  ")
        line = (*line, Span(f"{glyph} ", role), name, number._replace(role="value"))
    if width >= WIDE:
        line = (*line, *flow(usage(kv), width, 1)[0])
    if drawn.pages_per_cell == 1:
        return fit(line, width)
    note = text_line(f"a cell: most of {drawn.pages_per_cell} pages", "faint")
    if width_of(line) + width_of(note) >= width:
        note = text_line(f"{drawn.pages_per_cell}:1", "faint")
    return spread(line, note, width)


def fields(kv: KvState, memory: MemoryState) -> list[Field]:
    cpu = fmt.MISSING
    if fmt.known(memory.cpu_percent):
        whole = f" of {100 * memory.cores}" if memory.cores else ""
        cpu = f"{memory.cpu_percent:.0f}{whole} %"
    values = [
        Field("fits", fmt.count(kv.largest_fit_tokens, "tok")),
        Field("contiguous", fmt.count(kv.shadow_largest_fit_tokens, "tok")),
        Field("fragmented", fmt.percent(kv.shadow_fragmentation)),
        Field("tail waste", fmt.percent(kv.fragmentation_ratio)),
        Field("a token", fmt.count(kv.bytes_per_token, "B")),
        Field("sealed/fp16", fmt.percent(kv.sealed_ratio)),
        Field("effective/fp16", fmt.percent(kv.effective_ratio)),
        Field("pool", fmt.size(kv.pool_bytes)),
        Field("process", fmt.size(memory.rss_bytes)),
        Field("free mem", fmt.size(memory.available_bytes)),
        Field("CPU", cpu),
    ]
    if memory.device_total_bytes is not None:
        used = f"{fmt.size(memory.device_used_bytes)} of {fmt.size(memory.device_total_bytes)}"
        values.append(Field("device", used))
    return values


def _sparks(frame: Frame, width: int, rows: int) -> list[Line]:
    """What fills the room between map and facts, a blank line first."""
    history, now = frame.history, frame.now
    waste = spark("waste", history["waste"], now, width, fmt.percent)
    if rows >= 6:
        high = chart("use", history["usage"], now, width, rows - 2, fmt.percent, CHART_SPAN_S)
        return [BLANK, *high, waste]
    lines = [BLANK, spark("use", history["usage"], now, width, fmt.percent), waste]
    return lines[:rows] if rows >= 2 else []


def detail(frame: Frame, width: int, height: int) -> list[Line]:
    kv = frame.snapshot.kv
    values = [Field("format", kv.format or fmt.MISSING), *fields(kv, frame.snapshot.memory)]
    values.append(Field("waste", fmt.count(kv.tail_waste_tokens, "tok")))
    values.append(Field("a page", fmt.count(kv.page_tokens, "tok")))
    facts = [BLANK, fit(explain(kv), width), *grid(values, width, max(2, min(4, width // 28)))]
    room = height - len(facts) - 1
    drawn = page_map(kv.page_map or "", width, max(1, room * 2 // 3))
    charts = room - len(drawn.lines)
    lines = [legend(kv, drawn, width), *drawn.lines]
    if charts >= 5:
        series = frame.history["usage"]
        graph = chart("pages in use", series, frame.now, width, charts - 1, fmt.percent)
        lines += [BLANK, *graph]
    return [*lines, *facts][:height]


def explain(kv: KvState) -> Line:
    """What paging buys, in one sentence."""
    paged, shadow = kv.largest_fit_tokens, kv.shadow_largest_fit_tokens
    if paged is None or shadow is None:
        return text_line("paged against contiguous: not reported", "faint")
    return text_line(
        f"the longest request that fits now: {paged:,} tok in pages, "
        f"{shadow:,} tok if each needed one contiguous block"
    )
