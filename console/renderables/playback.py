"""Where a replay stands: one line with a bar, what can be pressed is in the footer."""

from __future__ import annotations

from dataclasses import dataclass

from console.renderables import format as fmt
from console.renderables.lines import ALARM, Line, Span, localized, spread, width_of


@dataclass(frozen=True, slots=True)
class Playback:
    position_s: float
    length_s: float
    speed: float
    playing: bool
    damage: str = ""
    """Where the file is damaged, and how; it is played up to there."""
    note: str = ""
    """What it is, where that is not plain."""

    @property
    def ended(self) -> bool:
        return self.position_s >= self.length_s


def playback_line(playback: Playback, width: int) -> Line:
    """ " ▶ ×2  00:03:12 ━━━━━──────── 01:00:00"."""
    sign = "▶" if playback.playing else "■" if playback.ended else "‖"
    head: Line = (
        Span(f" {sign} ", "key"),
        Span(f"×{playback.speed:g}  {fmt.uptime(playback.position_s)} ", "value"),
    )
    tail: Line = (Span(f" {fmt.uptime(playback.length_s)} ", "value"),)
    if playback.note:
        tail = (*tail, Span(f"{playback.note} ", "operator"))
    if playback.damage:
        tail = (*tail, Span(f"{ALARM} {playback.damage} ", "trouble"))
    tail = localized(tail)
    taken = width_of((*head, *tail))
    room = max(0, width - taken - 1)
    share = playback.position_s / playback.length_s if playback.length_s else 1.0
    done = round(min(1.0, share) * room)
    bar = (Span("━" * done, "spark"), Span("─" * (room - done), "faint"))
    return spread((*head, *bar), tail, width)
