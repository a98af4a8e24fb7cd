"""The first line: what runs, whether the numbers are of now, and for how long it has run."""

from __future__ import annotations

from console.locale.lang import _, said
from console.renderables import format as fmt
from console.renderables.lines import (
    ALARM,
    BLANK,
    Line,
    Role,
    Span,
    Verbatim,
    fit,
    spread,
    text_line,
    width_of,
)
from console.renderables.playback import playback_line
from console.renderables.screen_state import EnginePhase, ScreenState
from engine.snapshot import BatchState, SourceState
from playbooks.reports.language import Name

# not shown
MARKS: dict[SourceState, tuple[str, Role]] = {
    SourceState.LIVE: ("●", "good"),
    SourceState.STALE: ("◌", "trouble"),
    SourceState.UNREACHABLE: ("○", "trouble"),
    SourceState.UNPARSABLE: ("×", "trouble"),
    SourceState.WRONG_ENGINE: ("≠", "trouble"),
}
WORDS = {state: state.value.replace("_", " ") for state in SourceState}


def header(state: ScreenState, width: int) -> Line:
    trust = state_line(state)
    clock = Span(f"   {fmt.uptime(state.snapshot.engine.uptime_s)} ", "value")
    name = Span(" EveWatch  " if width >= 100 else " ", "key")
    right = (*_modes(state), *trust, clock)
    room = width - width_of((name, *right)) - 1
    return spread((name, *_what(state, room)), right, width)


def _what(state: ScreenState, room: int) -> Line:
    """What fits: rather a part less than one that is cut."""
    engine, kv, batch = state.snapshot.engine, state.snapshot.kv, state.snapshot.batch
    if state.phase is EnginePhase.LOADING:
        return text_line(state.loading)
    cap = _cap(batch) if batch.cap is not None or not state.watched else ""
    integers = engine.compute if engine.compute not in (None, "f32") else None
    compute = said("compute {name}", name=Name(integers)) if integers else ""
    names = (_elsewhere(state), engine.model, engine.device)
    parts: list[Span] = [Verbatim(name) for name in names if name]
    parts += [Span(compute), Verbatim(kv.format or ""), Span(cap)]
    parts = [part for part in parts if part.text]
    line: Line = BLANK
    for dispensable in ("", compute, engine.device, kv.format, cap):
        parts = [part for part in parts if part.text != dispensable]
        line = tuple(span for part in parts for span in (Span(" · "), part))[1:]
        if width_of(line) <= room:
            break
    return line


def _cap(batch: BatchState) -> str:
    of = f"{fmt.count(batch.cap)}/{fmt.count(batch.cap_max)}"
    if batch.dynamic is None:
        return said("cap {of}", of=of)
    return said("cap {of} dyn", of=of) if batch.dynamic else said("cap {of} fixed", of=of)


def _elsewhere(state: ScreenState) -> str:
    """ "vllm 10.0.0.1:8000" for an engine that is not in this process."""
    source = state.snapshot.source
    _, found, where = source.target.partition("://")
    return f"{source.engine} {where}" if found else ""


def _modes(state: ScreenState) -> Line:
    """What the operator switched, while it is switched."""
    spans: Line = ()
    if state.readonly:
        spans = (*spans, Span("read-only  ", "faint"))
    if state.recording:
        spans = (*spans, Span(f"{state.recording}  ", "trouble", "app.toggle_recording"))
    if state.running:
        spans = (*spans, Span(f"▶ {state.running}  ", "key", "app.show_run"))
    if state.snapshot.engine.draining:
        spans = (*spans, Span(f"{ALARM} draining  ", "trouble"))
    if state.snapshot.engine.paused:
        spans = (*spans, Span(f"{ALARM} admission paused  ", "trouble"))
    if state.paused:
        spans = (*spans, Span(f"{ALARM} display paused  ", "trouble"))
    return spans


def state_line(state: ScreenState) -> Line:
    """ "● live 0.2 s"."""
    if state.phase is not EnginePhase.UP:
        return (Span(f"◌ {state.phase} {fmt.age(state.phase_s)}", "label"),)
    source = state.snapshot.source
    mark, role = MARKS[source.state]
    return (Span(f"{mark} {_(WORDS[source.state])} ", role), Span(fmt.age(source.age_s), role))


def banner(state: ScreenState, width: int) -> Line:
    """Why the numbers cannot be trusted, or what lasting condition to know; else nothing."""
    if state.phase is EnginePhase.LOADING:
        return text_line(f" loading {state.loading} … the console is ready, numbers follow")
    if state.phase is EnginePhase.STOPPING:
        return text_line(" stopping the engine …")
    if state.playback is not None:
        return playback_line(state.playback, width)
    source, note = state.snapshot.source, state.snapshot.engine.note
    if source.state is not SourceState.LIVE:
        age = fmt.age(source.age_s)
        reason = source.reason or "no reason given"
        text = f" {ALARM} {WORDS[source.state]} for {age}: {reason}; these numbers are old"
        return fit(text_line(text, "trouble"), width)
    return fit(text_line(f" {ALARM} {note}", "trouble"), width) if note else BLANK


def suffix(state: ScreenState, reported: bool) -> str:
    """What a panel's title adds: the age of old numbers, or that there are none."""
    source = state.snapshot.source
    if state.phase is not EnginePhase.UP:
        return ""
    if source.state is not SourceState.LIVE:
        return f" {ALARM} {fmt.age(source.age_s)} old"
    return "" if reported else " · no data"
