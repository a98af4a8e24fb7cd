"""KV pages and memory: the page map, what still fits, and what contiguous blocks would fit."""

from __future__ import annotations

from console.renderables import format as fmt
from console.renderables import told
from console.renderables.graphs import CHART_SPAN_S, chart, spark
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
    spread,
    text_line,
    width_of,
)
from console.renderables.machine import allocator_table, process_fields, traffic
from console.renderables.pagemap import (
    AGES,
    GLYPHS,
    NAMES,
    PageMap,
    age_glyph,
    owner_glyph,
    page_map,
)
from console.renderables.screen_state import ScreenState
from engine.snapshot import KvState, MemoryState

FULL = 0.95
WIDE = 100
NOT_SAID = "not reported, or not yet: it comes with the next numbers while this is open"


def overview(state: ScreenState, width: int, height: int) -> list[Line]:
    kv, memory = state.snapshot.kv, state.snapshot.memory
    if state.watched and kv.page_map is None:
        return _outside(state, width, height)
    values = fields(kv, memory)
    if width >= WIDE:
        facts = grid(values, width, 4)
    else:
        facts = flow([*usage(kv), *values], width, max(1, height - 2))
    room = max(0, height - len(facts) - 1)
    drawn = page_map(kv.page_map or "", width, room)
    lines = [legend(kv, drawn, width), *drawn.lines]
    spare = height - len(lines) - len(facts)
    lines += _sparks(state, width, spare - 1)
    if height > len(lines) + len(facts):
        lines.append(BLANK)
    return [*lines, *facts][:height]


def usage(kv: KvState) -> list[Field]:
    full = kv.usage is not None and kv.usage >= FULL
    whole = f" of {fmt.count(kv.total)}" if kv.total is not None else ""
    return [Field("used", fmt.percent(kv.usage) + whole, trouble=full)]


def legend(kv: KvState, drawn: PageMap, width: int, short: bool = False) -> Line:
    """Glyph, name and count of each state, and how many pages a cell of the map stands for."""
    counts = {"s": kv.sealed, "o": kv.open, "c": kv.cached, "f": kv.free}
    line: Line = ()
    for state, (glyph, role) in GLYPHS.items():
        name, number = Span(f"{NAMES[state]} ", "label"), Span(f"{fmt.count(counts[state])}  ")
        line = (*line, Span(f"{glyph} ", role), name, number._replace(role="value"))
    if width >= WIDE:
        line = (*line, *flow(usage(kv), width, 1)[0])
    per_cell = drawn.pages_per_cell * (kv.pages_per_letter or 1)
    if per_cell == 1:
        return fit(line, width)
    note = text_line(f"a cell: most of {per_cell} pages", "faint")
    if short or width_of(line) + width_of(note) >= width:
        note = text_line(f"{per_cell}:1", "faint")
    return spread(line, note, width)


def fields(kv: KvState, memory: MemoryState) -> list[Field]:
    values = [
        Field("fits", fmt.count(kv.largest_fit_tokens, "tok")),
        Field("contiguous", fmt.count(kv.shadow_largest_fit_tokens, "tok")),
        Field("fragmented", fmt.percent(kv.shadow_fragmentation)),
        Field("tail waste", fmt.percent(kv.fragmentation_ratio)),
        Field("a token", fmt.count(kv.bytes_per_token, "B")),
        Field("sealed/fp16", fmt.percent(kv.sealed_ratio)),
        Field("effective/fp16", fmt.percent(kv.effective_ratio)),
        Field("pool", fmt.size(kv.pool_bytes)),
        *process_fields(memory),
        traffic(memory, short=True),
    ]
    if memory.device_total_bytes is not None:
        used = f"{fmt.size(memory.device_used_bytes)} of {fmt.size(memory.device_total_bytes)}"
        values.append(Field("device", used))
    return values


def _outside(state: ScreenState, width: int, height: int) -> list[Line]:
    """Of a watched engine: how full its cache is and how often a prompt was in it already, its
    replicas, and the lengths that fill it."""
    kv, snapshot = state.snapshot.kv, state.snapshot
    values = state.told([
        *usage(kv),
        Field("prefix hits", fmt.percent(kv.prefix_hit_ratio)),
        Field("format", kv.format or fmt.MISSING),
        Field("a page", fmt.count(kv.page_tokens, "tok")),
        *fields(kv, snapshot.memory),
    ])  # fmt: skip
    lines = flow(values, width, height)
    left = height - len(lines) - 1
    if width >= WIDE:
        room = half(width)
        lengths = told.distributions(snapshot.lengths, room, left)
        return told.below(lines, beside(_filled(state, room, left), lengths, width), height)
    upper = left // 2 if left >= 12 else left
    lines = [*lines, BLANK, *_filled(state, width, upper)][:height]
    left = height - len(lines) - 1
    return told.below(lines, told.distributions(snapshot.lengths, width, left), height)


def _filled(state: ScreenState, width: int, rows: int) -> list[Line]:
    """Its replicas, and below them the course of the pages in use."""
    lines = told.replica_table(state.snapshot.replicas, width, rows)
    left = rows - len(lines)
    usage, now = state.history["usage"], state.now
    if state.snapshot.kv.usage is None:
        return lines
    return [*lines, *chart("pages in use", usage, now, width, left, fmt.percent)]


def _sparks(state: ScreenState, width: int, rows: int) -> list[Line]:
    """What fills the room between map and facts, a blank line first."""
    history, now = state.history, state.now
    waste = spark("waste", history["waste"], now, width, fmt.percent)
    if rows >= 6:
        high = chart("use", history["usage"], now, width, rows - 2, fmt.percent, CHART_SPAN_S)
        return [BLANK, *high, waste]
    lines = [BLANK, spark("use", history["usage"], now, width, fmt.percent), waste]
    return lines[:rows] if rows >= 2 else []


def detail(state: ScreenState, width: int, height: int) -> list[Line]:
    """The pool by state, beside it what contiguous blocks would make of it; by owner; by age."""
    kv = state.snapshot.kv
    if state.watched and kv.page_map is None:
        return _outside(state, width, height)
    values = [Field("format", kv.format or fmt.MISSING), *fields(kv, state.snapshot.memory)]
    values.append(Field("waste", fmt.count(kv.tail_waste_tokens, "tok")))
    values.append(Field("a page", fmt.count(kv.page_tokens, "tok")))
    values.append(Field("saturated", fmt.percent(kv.saturation_ratio)))
    values.append(Field("prefix hits", fmt.percent(kv.prefix_hit_ratio)))
    facts = [fit(explain(kv), width), *grid(values, width, max(2, min(4, width // 28)))]
    split = allocator_table(state.snapshot.memory.allocators, width)
    if height >= 30:
        facts = [BLANK, *facts, BLANK, *split]
    maps = _maps(kv, width, height - len(facts))
    left = height - len(maps) - len(facts)
    if left >= 7:
        series = state.history["usage"]
        maps += [BLANK, *chart("pages in use", series, state.now, width, left - 1, fmt.percent)]
    return [*maps, *facts][:height]


def _maps(kv: KvState, width: int, height: int) -> list[Line]:
    """Two rows of two maps in a wide window, three and a line under one another in a small one."""
    wide = width >= WIDE
    room, rows = (half(width), height // 2 - 1) if wide else (width, height // 3 - 1)
    if rows < 1:
        return [legend(kv, page_map(kv.page_map or "", width, 0), width)]
    states = page_map(kv.page_map or "", room, rows)
    by_state = [legend(kv, states, room, short=True), *states.lines]
    by_owner = _owner_map(kv, room, rows)
    by_age = _age_map(kv, room, rows)
    if not wide:
        return [*by_state, *by_owner, *by_age]
    return [
        *beside(by_state, _shadow_map(kv, room, rows), width),
        *beside(by_owner, by_age, width),
    ]


def _shadow_map(kv: KvState, width: int, rows: int) -> list[Line]:
    drawn = page_map(kv.shadow_map or "", width, rows)
    share = fmt.percent(kv.shadow_fragmentation)
    title = text_line(f"in contiguous blocks instead: {share} fragmented", "label")
    return [fit(title, width), *(drawn.lines or [text_line(NOT_SAID, "faint")])]


def _owner_map(kv: KvState, width: int, rows: int) -> list[Line]:
    owners = kv.page_owners
    if owners is None:
        return [text_line("by owner", "label"), text_line(NOT_SAID, "faint")]
    names = kv.owner_names or {}
    title: Line = (Span("by owner ", "label"),)
    counts = sorted(((owners.count(letter), letter) for letter in names), reverse=True)
    for count, letter in counts:
        sign, role = owner_glyph(letter)
        title = (*title, Span(f" {sign} ", role), Span(f"{names[letter]} ", "label"))
        title = (*title, Span(fmt.count(count), "value"))
    if "+" in owners:
        title = (*title, Span("  +", "trouble"), Span(" shared", "label"))
    return [fit(title, width), *page_map(owners, width, rows, owner_glyph, "").lines]


def _age_map(kv: KvState, width: int, rows: int) -> list[Line]:
    if kv.page_ages is None:
        return [text_line("by age", "label"), text_line(NOT_SAID, "faint")]
    title: Line = (Span("by age ", "label"),)
    for grade in AGES:
        title = (*title, Span(f" {grade.glyph} ", grade.role), Span(grade.meaning, "label"))
    grades = "".join(grade.letters for grade in AGES)
    return [fit(title, width), *page_map(kv.page_ages, width, rows, age_glyph, grades).lines]


def explain(kv: KvState) -> Line:
    """What paging buys, in one sentence."""
    paged, shadow = kv.largest_fit_tokens, kv.shadow_largest_fit_tokens
    if paged is None or shadow is None:
        return text_line("paged against contiguous: not reported", "faint")
    return text_line(
        f"the longest request that fits now: {paged:,} tok in pages, {shadow:,} tok in one block"
    )
