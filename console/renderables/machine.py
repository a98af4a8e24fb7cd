"""The machine: its GPUs, or on a CPU the cores, the process and what memory is asked for."""

from __future__ import annotations

from collections.abc import Sequence

from console.renderables import format as fmt
from console.renderables.graphs import chart, share_line
from console.renderables.lines import (
    BLANK,
    Field,
    Line,
    Span,
    beside,
    columns_line,
    fit,
    flow,
    grid,
    half,
    in_column,
    text_line,
)
from console.renderables.screen_state import ScreenState
from engine.snapshot import AllocatorState, GpuState, MemoryState, Snapshot

ESTIMATE = "≈"
"""Before a number that is worked out, not measured."""


def fields(snapshot: Snapshot) -> list[Field]:
    """Of the GPU that the engine is most likely on, or of the processor."""
    if snapshot.gpus:
        return [*gpu_fields(snapshot.gpus[0]), *process_fields(snapshot.memory)[:1]]
    return [*process_fields(snapshot.memory), traffic(snapshot.memory)]


def process_fields(memory: MemoryState) -> list[Field]:
    return [
        Field("CPU", cpu(memory)),
        Field("RSS", fmt.size(memory.rss_bytes)),
        Field("avail", fmt.size(memory.available_bytes)),
    ]


def cpu(memory: MemoryState) -> str:
    """ "142 of 200 %": a core is 100."""
    if memory.cpu_percent is None or not fmt.known(memory.cpu_percent):
        return fmt.MISSING
    whole = f" of {100 * memory.cores}" if memory.cores else ""
    return f"{memory.cpu_percent:.0f}{whole} %"


def traffic(memory: MemoryState, short: bool = False) -> Field:
    """Memory bandwidth in use: bytes that steps read over the time they took."""
    used, peak = memory.bandwidth_bytes_s, memory.bandwidth_peak_bytes_s
    if used is None or not fmt.known(used):
        return Field("reads", fmt.MISSING)
    of = f" of {_gb(peak)}" if peak and not short else ""
    return Field("reads", f"{ESTIMATE}{_gb(used)}{of} GB/s")


def _gb(value: float) -> str:
    return fmt.decimal(value / 1e9)


def gpu_fields(gpu: GpuState) -> list[Field]:
    used, total = fmt.size(gpu.memory_used_bytes), fmt.size(gpu.memory_total_bytes)
    held = bool(gpu.throttle)
    clock = f"{fmt.count(gpu.clock_mhz)} of {fmt.count(gpu.clock_max_mhz, 'MHz')}"
    return [
        Field("busy", fmt.percent(gpu.utilisation)),
        Field("memory busy", fmt.percent(gpu.memory_busy)),
        Field("memory", f"{used} of {total}"),
        Field("power", f"{fmt.count(gpu.power_w)} of {fmt.count(gpu.power_limit_w, 'W')}"),
        Field("clock", clock, trouble=held),
        Field("temperature", fmt.count(gpu.temperature_c, "°C")),
        Field("held down by", throttle(gpu), trouble=held),
    ]


def throttle(gpu: GpuState) -> str:
    if gpu.throttle is None:
        return fmt.MISSING
    return ", ".join(gpu.throttle) or "nothing"


def overview(state: ScreenState, width: int, height: int) -> list[Line]:
    snapshot = state.snapshot
    values = state.told(fields(snapshot))
    lines = grid(values, width, 2 if width >= 60 else 1)
    if snapshot.gpus and height > len(lines):
        lines.insert(0, fit(text_line(_gpu_name(snapshot.gpus[0]), "text"), width))
    if len(lines) > height:
        return flow(values, width, height)
    room = height - len(lines)
    lines += [_bar_line(a, width) for a in (snapshot.memory.allocators or ())[:room]]
    return lines


def _gpu_name(gpu: GpuState) -> str:
    return f"GPU {gpu.index} {gpu.name or ''}".rstrip()


def _bar_line(allocator: AllocatorState, width: int) -> Line:
    """How much of what it has reserved is handed out."""
    reserved, given = allocator.reserved_bytes, allocator.allocated_bytes
    share = given / reserved if reserved and given is not None else None
    return share_line(allocator.name, share, width, 11)


def allocator_table(allocators: Sequence[AllocatorState] | None, width: int) -> list[Line]:
    """Reserved, allocated, active, and what lies idle between the first two."""
    column = max(9, min(12, (width - 11) // 4))
    heads = ("reserved", "allocated", "active", "idle")
    lines = [columns_line([("memory", -11), *((head, column) for head in heads)])]
    for a in allocators or ():
        cells = [a.reserved_bytes, a.allocated_bytes, a.active_bytes, _idle(a)]
        values = "".join(f"{fmt.size(cell):>{column}}" for cell in cells)
        lines.append((in_column(a.name, -11), Span(values, "value")))
    if not allocators:
        lines.append(text_line("not reported", "faint"))
    return [fit(line, width) for line in lines]


def _idle(a: AllocatorState) -> int | None:
    if a.reserved_bytes is None or a.allocated_bytes is None:
        return None
    return a.reserved_bytes - a.allocated_bytes


def detail(state: ScreenState, width: int, height: int) -> list[Line]:
    snapshot, columns = state.snapshot, max(2, min(4, width // 28))
    if state.watched and snapshot.gpus is None and snapshot.memory.allocators is None:
        rss = chart("process memory", state.history["rss"], state.now, width, height // 2, fmt.size)
        return [*grid(state.told(fields(snapshot)), width, columns), BLANK, *rss][:height]
    lines: list[Line] = []
    for gpu in snapshot.gpus or ():
        lines += [text_line(_gpu_name(gpu), "label"), *grid(gpu_fields(gpu), width, columns), BLANK]
    if not snapshot.gpus:
        why = "not reported" if snapshot.gpus is None else "none on this machine"
        lines += [text_line(f"GPU: {why}", "faint"), BLANK]
    values = [*process_fields(snapshot.memory), traffic(snapshot.memory)]
    lines += [text_line("processor", "label"), *grid(values, width, columns)]
    lines += [fit(text_line(NOTE, "faint"), width), BLANK]
    lines += [*allocator_table(snapshot.memory.allocators, width), BLANK]
    return [*lines, *_charts(state, width, height - len(lines))][:height]


NOTE = (
    f"reads {ESTIMATE} an estimate: weights and KV pages once a step, over the time of the "
    "steps; beside it what reading reaches here at best"
)


def _charts(state: ScreenState, width: int, height: int) -> list[Line]:
    history, now, room = state.history, state.now, half(width)
    rows = height // 2 if height >= 12 else height
    left = chart("CPU, % of a core", history["cpu"], now, room, rows, fmt.decimal)
    right = chart("process memory", history["rss"], now, room, rows, fmt.size)
    lines = beside(left, right, width)
    if height < 12:
        return lines
    name = "gpu" if state.snapshot.gpus else "read"
    title = "GPU busy" if name == "gpu" else f"memory read {ESTIMATE}, GB/s"
    show = fmt.percent if name == "gpu" else _show_gb
    last = chart(title, history[name], now, room, rows, show)
    power = chart("GPU power, W", history["gpu_power"], now, room, rows, fmt.count)
    return [*lines, *beside(last, power if name == "gpu" else [], width)]


def _show_gb(value: float | None) -> str:
    return fmt.MISSING if value is None else _gb(value)
