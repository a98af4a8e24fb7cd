"""Events: what happened, the newest first."""

from __future__ import annotations

from collections.abc import Sequence

from console.renderables import format as fmt
from console.renderables.lines import ALARM, Line, Role, Span, fit, text_line
from console.renderables.screen_state import ScreenState
from engine.snapshot import Event

TROUBLE = frozenset({"preempt", "reject", "error", "timeout", "watchdog", "alert_firing"})


def event_line(event: Event, width: int) -> Line:
    trouble = event.kind in TROUBLE
    role: Role = "trouble" if trouble else "text"
    times = f" ×{event.count:,}" if event.count > 1 else ""
    sign = f"{ALARM} " if trouble else "  "
    head = Span(f"{fmt.clock(event.time)} ", "faint")
    return fit((head, Span(sign, role), Span(event.text + times, role)), width)


def happened(state: ScreenState) -> Sequence[Event]:
    """What the engine did and what was told of it, in order of time."""
    if not state.alerts:
        return state.snapshot.events
    return sorted((*state.snapshot.events, *state.alerts), key=lambda event: event.time)


def overview(state: ScreenState, width: int, height: int) -> list[Line]:
    newest = list(reversed(happened(state)[-height:])) if height > 0 else []
    if not newest and height > 0:
        return [text_line("nothing has happened yet", "faint")]
    return [event_line(event, width) for event in newest]


detail = overview
"""Maximised, the panel has room for the whole tail and for whole lines."""
