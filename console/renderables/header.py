"""The first line: what runs, whether the numbers are of now, and for how long it has run."""

from __future__ import annotations

from console.locale.lang import _
from console.renderables import format as fmt
from console.renderables.frame import Frame, Phase
from console.renderables.lines import ALARM, BLANK, Line, Role, Span, fit, spread, text_line
from console.renderables.playback import playback_line
from engine.snapshot import SourceState

MARKS: dict[SourceState, tuple[str, Role]] = {
    SourceState.LIVE: ("●", "good"),
    SourceState.STALE: ("◌", "trouble"),
    SourceState.UNREACHABLE: ("○", "trouble"),
    SourceState.UNPARSABLE: ("×", "trouble"),
    SourceState.WRONG_ENGINE: ("≠", "trouble"),
}
WORDS = {
    SourceState.LIVE: "live",
    SourceState.STALE: "stale",
    SourceState.UNREACHABLE: "unreachable",
    SourceState.UNPARSABLE: "unparsable",
    SourceState.WRONG_ENGINE: "wrong engine",
}


def header(frame: Frame, width: int) -> Line:
    state = state_line(frame)
    clock = Span(f"   {fmt.uptime(frame.snapshot.engine.uptime_s)} ", "value")
    name = " EveWatch  " if width >= 100 else " "
    left = (Span(name, "key"), Span(_what(frame), "text"))
    return spread(left, (*_modes(frame), *state, clock), width)


def _what(frame: Frame) -> str:
    engine, kv, batch = frame.snapshot.engine, frame.snapshot.kv, frame.snapshot.batch
    if frame.phase is Phase.LOADING:
        return frame.loading
    cap = f"{_('cap')} {fmt.count(batch.cap)}/{fmt.count(batch.cap_max)}"
    if batch.dynamic is not None:
        cap += " " + _("dyn" if batch.dynamic else "fixed")
    parts = [_elsewhere(frame), engine.model, engine.device, kv.format, cap]
    return " · ".join(part for part in parts if part)


def _elsewhere(frame: Frame) -> str:
    """ "vllm 10.0.0.1:8000" for an engine that is not in this process."""
    source = frame.snapshot.source
    _, found, where = source.target.partition("://")
    return f"{source.engine} {where}" if found else ""


def _modes(frame: Frame) -> Line:
    """What the operator switched, while it is switched."""
    spans: Line = ()
    if frame.readonly:
        spans = (*spans, Span("read-only  ", "faint"))
    if frame.recording:
        spans = (*spans, Span(f"{frame.recording}  ", "trouble", "app.toggle_recording"))
    if frame.running:
        spans = (*spans, Span(f"▶ {frame.running}  ", "key", "app.show_run"))
    if frame.snapshot.engine.draining:
        spans = (*spans, Span(f"{ALARM} draining  ", "trouble"))
    if frame.snapshot.engine.paused:
        spans = (*spans, Span(f"{ALARM} admission paused  ", "trouble"))
    if frame.paused:
        spans = (*spans, Span(f"{ALARM} display paused  ", "trouble"))
    return spans


def state_line(frame: Frame) -> Line:
    """ "● live 0.2 s"."""
    if frame.phase is not Phase.UP:
        return (Span(f"◌ {frame.phase} {fmt.age(frame.phase_s)}", "label"),)
    source = frame.snapshot.source
    mark, role = MARKS[source.state]
    return (Span(f"{mark} {_(WORDS[source.state])} ", role), Span(fmt.age(source.age_s), role))


def banner(frame: Frame, width: int) -> Line:
    """Why the numbers cannot be trusted, or what lasting condition to know; else nothing."""
    if frame.phase is Phase.LOADING:
        return text_line(f" loading {frame.loading} … the console is ready, numbers follow")
    if frame.phase is Phase.STOPPING:
        return text_line(" stopping the engine …")
    if frame.playback is not None:
        return playback_line(frame.playback, width)
    source, note = frame.snapshot.source, frame.snapshot.engine.note
    if source.state is not SourceState.LIVE:
        age = fmt.age(source.age_s)
        reason = source.reason or "no reason given"
        text = f" {ALARM} {WORDS[source.state]} for {age}: {reason}; these numbers are old"
        return fit(text_line(text, "trouble"), width)
    return fit(text_line(f" {ALARM} {note}", "trouble"), width) if note else BLANK


def suffix(frame: Frame, reported: bool) -> str:
    """What a panel's title adds: the age of old numbers, or that there are none."""
    source = frame.snapshot.source
    if frame.phase is not Phase.UP:
        return ""
    if source.state is not SourceState.LIVE:
        return f" {ALARM} {fmt.age(source.age_s)} old"
    return "" if reported else " · no data"
