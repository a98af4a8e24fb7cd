"""Replay: a recording as an engine. The console shows it through the same panels.

Time on the screen is the recording's: `now` is the console's clock, so ages, graphs and a source
that fell silent look as they did. Nothing can be changed: controls raise EngineError.

Moving (`seek`, `step`, `seek_event`) and `refill` unpack segments: call them off the UI's thread.
The lock is held for the position alone, so nobody waits for them.
"""

from __future__ import annotations

import re
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from console.recording.budgets import RecordedBudgets, promised
from console.recording.file import BrokenAt, Recording
from console.recording.line import Moment
from console.renderables import format as fmt
from console.renderables.playback import Playback
from engine.config import EngineConfig
from engine.errors import ConfigError, EngineError
from engine.observing.watchable import Watchable
from engine.snapshot import Snapshot, Source, SourceState

SPEEDS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
GRAPH_S = 620.0
"""What graphs look back on, filled after a jump."""
GRAPH_STEP_S = 2.0
SEGMENTS_KEPT = 4
"""Unpacked at once: what is shown, and what lies beside it."""
NO_CONTROL = "this is a recording: nothing in it can be changed"


class Replay(Watchable):
    """Plays a recording. `clock` is what makes it go on, monotonic seconds.

    Methods may be called from any thread.
    """

    note = ""
    """What it is, for who looks at it."""

    def __init__(self, recording: Recording, clock: Callable[[], float] = time.monotonic) -> None:
        self.recording = recording
        self.config = _config(recording.about)
        objectives = promised(recording.about)
        self.budgets = None if objectives is None else RecordedBudgets(recording, objectives)
        """Of what was promised when it was recorded."""
        self._clock = clock
        self._lock = threading.RLock()
        self._moments = lru_cache(SEGMENTS_KEPT)(recording.moments)
        self._built = lru_cache(256)(self._build)
        self._position, self._since = 0.0, clock()
        self._speed, self._playing = 1.0, False
        self._shown = -1.0
        """Position up to which graphs have been given samples; below 0 after a jump."""

    @classmethod
    def open(cls, path: Path, clock: Callable[[], float] = time.monotonic) -> Replay:
        """Raises ConfigError when it is no recording."""
        return cls(Recording(path), clock)

    # the surface of an engine

    def start(self) -> None:
        if self.budgets is not None:
            threading.Thread(target=self.budgets.read, name="budgets", daemon=True).start()
        self.play()

    def stop(self) -> None:
        self.hold()

    def snapshot(self) -> Snapshot:
        """What was to be seen at the present position."""
        return self._built(*self._at(self.position_s))

    def why_not(self, control: str) -> str:
        return NO_CONTROL

    def submit(self, *_: Any, **__: Any) -> NoReturn:
        raise EngineError(NO_CONTROL)

    cancel = set_cap = set_dynamic = set_paused = set_max_wait = set_draining = submit

    # playing

    @property
    def length_s(self) -> float:
        """Seconds from the first line to the last; shorter once damage has been found."""
        return self.recording.ended - self.recording.began

    @property
    def position_s(self) -> float:
        """Seconds since the first line."""
        with self._lock:
            if self._playing:
                now = self._clock()
                self._position += (now - self._since) * self._speed
                self._since = now
                if self._position >= self.length_s:
                    self._position, self._playing = self.length_s, False
            return self._position

    def now(self) -> float:
        """The recording's time, Unix seconds: the console's clock."""
        return self.recording.began + self.position_s

    @property
    def playback(self) -> Playback:
        position = self.position_s
        broken = self.recording.broken
        words = "" if broken is None else broken_words(broken)
        return Playback(position, self.length_s, self._speed, self._playing, words, self.note)

    def play(self) -> None:
        """From the beginning again once it has ended."""
        with self._lock:
            if self.position_s >= self.length_s:
                self._move(0.0)
            self._playing, self._since = True, self._clock()

    def toggle(self) -> bool:
        """Whether it plays now."""
        with self._lock:
            if self._playing:
                self.hold()
            else:
                self.play()
            return self._playing

    def faster(self, steps: int) -> float:
        """So many speeds up, or down; the speed now."""
        with self._lock:
            self._position = self.position_s
            at = SPEEDS.index(self._speed) + steps
            self._speed = SPEEDS[max(0, min(len(SPEEDS) - 1, at))]
            return self._speed

    def step(self, frames: int) -> None:
        """Stand still, so many frames further on, or back."""
        self.hold()
        segment, at = self._at(self._position)
        at += frames
        while at < 0 and segment > 0:
            segment -= 1
            at += len(self._moments(segment))
        while at >= len(self._moments(segment)) and segment < len(self.recording.segments) - 1:
            at -= len(self._moments(segment))
            segment += 1
        moments = self._moments(segment) or self._moments(segment - 1)
        self._move(self._since_began(moments[max(0, min(len(moments) - 1, at))]))

    def seek(self, position_s: float) -> None:
        position = max(0.0, min(self.length_s, position_s))
        self._move(position)

    def seek_event(self, direction: int) -> str | None:
        """To the next frame with a new event, or the one before; its text, None at the end."""
        self.hold()
        found = self._event(direction)
        if found is None:
            return None
        self._move(self._since_began(found))
        events = self.snapshot().events
        return events[-1].text if events else ""

    def hold(self) -> None:
        """Stand still."""
        with self._lock:
            self._position, self._playing = self.position_s, False

    def _move(self, position: float) -> None:
        self._built(*self._at(position))  # unpacked before anybody looks there
        with self._lock:
            self._position, self._since = position, self._clock()
            self._shown = -1.0

    # graphs

    @property
    def jumped(self) -> bool:
        """Graphs are of another time, until `refill`."""
        return self._shown < 0

    def passed(self) -> list[Snapshot]:
        """Samples for graphs, of every frame since the last call."""
        with self._lock:
            start, end = self._shown, self.position_s
            self._shown = end
        return _samples(self._between(start, end))

    def refill(self) -> list[Snapshot]:
        """Samples for graphs of all that they look back on, thinned."""
        with self._lock:
            self._shown = end = self.position_s
        thinned, due = [], 0.0
        for moment in self._between(end - GRAPH_S, end):
            if moment.at >= due:
                thinned.append(moment)
                due = moment.at + GRAPH_STEP_S
        return _samples(thinned)

    def _between(self, start: float, end: float) -> Iterator[Moment]:
        """Frames after `start`, up to `end`."""
        for segment in range(self._segment_at(start), len(self.recording.segments)):
            for moment in self._moments(segment):
                if self._since_began(moment) > end:
                    return
                if self._since_began(moment) > start:
                    yield moment

    # frames

    def _event(self, direction: int) -> Moment | None:
        """The nearest frame after (or before) the position that brought an event."""
        segments = range(len(self.recording.segments))
        here = self._segment_at(self._position)
        for segment in segments[here:] if direction > 0 else segments[here::-1]:
            found = [m for m in self._moments(segment) if m.new_events]
            away = [(self._since_began(m) - self._position) * direction for m in found]
            ahead = [m for m, distance in zip(found, away, strict=True) if distance > 1e-6]
            if ahead:
                return ahead[0 if direction > 0 else -1]
        return None

    def _since_began(self, moment: Moment) -> float:
        return moment.at - self.recording.began

    def _segment_at(self, position: float) -> int:
        starts = self.recording.segments
        moment = self.recording.began + position + 1e-6
        return max(0, bisect_right(starts, moment, key=lambda segment: segment.at) - 1)

    def _at(self, position: float) -> tuple[int, int]:
        """(segment, frame in it) that is shown at `position`."""
        segment = self._segment_at(position)
        while not (moments := self._moments(segment)):
            segment -= 1  # damaged; the first one is not
        at = bisect_right(moments, self.recording.began + position + 1e-6, key=lambda m: m.at)
        return segment, max(0, at - 1)

    def _build(self, segment: int, at: int) -> Snapshot:
        moment = self._moments(segment)[at]
        try:
            return moment.snapshot()
        except ValueError as error:
            reason = f"this frame of the recording cannot be read ({error})"
            source = Source(SourceState.UNPARSABLE, target=str(self.recording.path), reason=reason)
            return Snapshot(time=moment.at, source=source)


def _samples(moments: Iterable[Moment]) -> list[Snapshot]:
    """What cannot be read leaves a gap in graphs."""
    found = []
    for moment in moments:
        with suppress(ValueError):
            found.append(moment.sample())
    return found


def _config(about: dict[str, Any]) -> EngineConfig:
    """The settings that the engine was started with, as far as they are known here."""
    told = about.get("config")
    known = {f.name for f in fields(EngineConfig)}
    given = told if isinstance(told, dict) else {}
    try:
        return EngineConfig(**{key: value for key, value in given.items() if key in known})
    except (EngineError, TypeError):
        return EngineConfig()


def broken_words(broken: BrokenAt) -> str:
    """ "cut off at byte 12,345, 12:31:07"."""
    return f"{broken.reason} at byte {broken.byte:,}, {fmt.clock(broken.time)}"


_TIME = re.compile(r"(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def parse_position(text: str, playback: Playback) -> float:
    """Where `text` points, in seconds since the beginning.

    "12:30" or "1:02:03" since the beginning, "90" or "90 s" too, "+30" and "-5 min" from here,
    "50 %" of the whole. Raises ConfigError.
    """
    plain = text.strip().replace("−", "-")
    sign, rest = (plain[0], plain[1:].strip()) if plain[:1] in ("+", "-") else ("", plain)
    if rest.endswith("%") and not sign:
        with_percent = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", rest)
        if with_percent:
            return min(float(with_percent[1]), 100.0) / 100 * playback.length_s
    seconds = _seconds(rest)
    if seconds is None:
        raise ConfigError(f"{text.strip()!r}: expected 12:30, 90 s, +30, -5 min or 50 %")
    if sign:
        return playback.position_s + (seconds if sign == "+" else -seconds)
    return seconds


def _seconds(text: str) -> float | None:
    clock = _TIME.fullmatch(text)
    if clock:
        return int(clock[1] or 0) * 3600 + int(clock[2]) * 60 + float(clock[3])
    number = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|)", text)
    return float(number[1]) * _UNITS[number[2]] if number else None
