"""The first line: what runs, whether the numbers are of now, and for how long it has run."""

from __future__ import annotations

from console.locale.lang import _
from console.renderables import format as fmt
from console.renderables.lines import (
    ALARM,
    BLANK,
    Line,
    Role,
    Span,
    fit,
    spread,
    text_line,
    width_of,
)
from console.renderables.playback import playback_line
from console.renderables.screen_state import EnginePhase, ScreenState
from engine.snapshot import SourceState

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
    return spread((name, Span(_what(state, room), "text")), right, width)


def _what(state: ScreenState, room: int) -> str:
    """What fits: rather a part less than one that is cut."""
    engine, kv, batch = state.snapshot.engine, state.snapshot.kv, state.snapshot.batch
    if state.phase is EnginePhase.LOADING:
        return state.loading
    told = batch.cap is not None or not state.watched
    cap = f"{_('cap')} {fmt.count(batch.cap)}/{fmt.count(batch.cap_max)}" if told else ""
    if batch.dynamic is not None:
        cap += " " + _("dyn" if batch.dynamic else "fixed")
    integers = engine.compute not in (None, "f32")
    compute = f"{_('compute')} {engine.compute}" if integers else ""
    known = (_elsewhere(state), engine.model, engine.device, compute, kv.format, cap)
    parts = [part for part in known if part]
    for dispensable in (None, compute, engine.device, kv.format, cap):
        parts = [part for part in parts if part != dispensable]
        text = " · ".join(parts)
        if width_of((Span(text),)) <= room:
            break
    return text


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
