"""Replay: a recording as an engine. The console shows it through the same panels.

Time on the screen is the recording's: `now` is the console's clock, so ages, graphs and a source
that fell silent look as they did. Nothing can be changed: controls raise EngineError.
"""

from __future__ import annotations

import re
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from console.recording.codec import State, sample_of, snapshot_of
from console.recording.file import Damage, Recording
from console.renderables import format as fmt
from console.renderables.playback import Playback
from engine.config import EngineConfig
from engine.errors import ConfigError, EngineError
from engine.snapshot import Snapshot

SPEEDS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
GRAPH_S = 620.0
"""What graphs look back on, filled after a jump."""
GRAPH_STEP_S = 2.0
SEGMENTS_KEPT = 24
"""Unpacked at once: what graphs look back on, and what is about to be shown."""
NO_CONTROL = "this is a recording: nothing in it can be changed"


class Replay:
    """Plays a recording. `clock` is what makes it go on, monotonic seconds.

    Methods may be called from any thread.
    """

    def __init__(self, recording: Recording, clock: Callable[[], float] = time.monotonic) -> None:
        self.recording = recording
        self.config = _config(recording.about)
        self._clock = clock
        self._lock = threading.RLock()
        self._frames = lru_cache(SEGMENTS_KEPT)(self._unpack)
        self._built = lru_cache(256)(self._build)
        self.length_s = self._last_segment()[-1][0]
        self._starts = [chunks[0].time for chunks in recording.segments]
        self._position, self._since = 0.0, clock()
        self._speed, self._playing = 1.0, False
        self._shown = -1.0
        """Position up to which `passed` has handed out frames; below 0 after a jump."""

    @classmethod
    def open(cls, path: Path, clock: Callable[[], float] = time.monotonic) -> Replay:
        """Raises ConfigError when it is no recording."""
        return cls(Recording(path), clock)

    # the surface of an engine

    def start(self) -> None:
        self.play()

    def stop(self) -> None:
        with self._lock:
            self._hold()

    def snapshot(self) -> Snapshot:
        """What was to be seen at the present position."""
        with self._lock:
            segment, at = self._at(self.position_s)
            return self._built(segment, at)

    def why_not(self, control: str) -> str:
        return NO_CONTROL

    def submit(self, *_: Any, **__: Any) -> NoReturn:
        raise EngineError(NO_CONTROL)

    cancel = set_cap = set_dynamic = set_paused = set_max_wait = set_draining = submit

    # playing

    @property
    def position_s(self) -> float:
        """Seconds since the first frame."""
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
        damage = self.recording.damage
        words = "" if damage is None else damage_words(damage)
        return Playback(position, self.length_s, self._speed, self._playing, words)

    def play(self) -> None:
        """From the beginning again once it has ended."""
        with self._lock:
            if self.position_s >= self.length_s:
                self.seek(0.0)
            self._playing, self._since = True, self._clock()

    def toggle(self) -> bool:
        """Whether it plays now."""
        with self._lock:
            if self._playing:
                self._hold()
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
        with self._lock:
            self._hold()
            segment, at = self._at(self._position)
            at += frames
            while at < 0 and segment > 0:
                segment -= 1
                at += len(self._segment(segment))
            while at >= len(self._segment(segment)) and segment < len(self._starts) - 1:
                at -= len(self._segment(segment))
                segment += 1
            at = max(0, min(len(self._segment(segment)) - 1, at))
            self._move(self._segment(segment)[at][0])

    def seek(self, position_s: float) -> None:
        with self._lock:
            self._move(max(0.0, min(self.length_s, position_s)))

    def seek_event(self, direction: int) -> str | None:
        """To the next frame with a new event, or the one before; its text, None at the end."""
        with self._lock:
            self._hold()
            found = self._event(direction)
            if found is None:
                return None
            self._move(found[0])
            return found[1]

    def _hold(self) -> None:
        self._position, self._playing = self.position_s, False

    def _move(self, position: float) -> None:
        self._position, self._since = position, self._clock()
        self._shown = -1.0

    # graphs

    def passed(self) -> tuple[bool, list[Snapshot]]:
        """Frames that came since the last call, for graphs; and whether those before them are
        void, because there was a jump."""
        with self._lock:
            position = self.position_s
            jumped = self._shown < 0
            start = position - GRAPH_S if jumped else self._shown
            self._shown = position
            thinned, due = [], start
            for time_s, state in self._between(start, position):
                if time_s >= due or not jumped:
                    thinned.append(sample_of(state))
                    due = time_s + GRAPH_STEP_S
            return jumped, thinned

    def _between(self, start: float, end: float) -> Iterator[tuple[float, State]]:
        """Frames after `start`, up to `end`."""
        first = max(0, bisect_right(self._starts, self.recording.began + start) - 1)
        for segment in range(first, len(self._starts)):
            for time_s, state in self._segment(segment):
                if time_s > end:
                    return
                if time_s > start:
                    yield time_s, state

    # frames

    def _event(self, direction: int) -> tuple[float, str] | None:
        """The nearest frame after (or before) the position that brought an event."""
        segments = range(len(self._starts))
        here, _ = self._at(self._position)
        order = segments[here:] if direction > 0 else segments[here::-1]
        for segment in order:
            if not self._may_have_events(segment):
                continue
            found = self._events_in(segment)
            later = [e for e in found if e[0] > self._position + 1e-6]
            earlier = [e for e in found if e[0] < self._position - 1e-6]
            if direction > 0 and later:
                return later[0]
            if direction < 0 and earlier:
                return earlier[-1]
        return None

    def _may_have_events(self, segment: int) -> bool:
        """By the heads of its chunks alone; one that came between two segments is not in them."""
        if any(chunk.events for chunk in self.recording.segments[segment]):
            return True
        return segment > 0 and self._segment_events_differ(segment)

    def _segment_events_differ(self, segment: int) -> bool:
        before, frames = self._segment(segment - 1), self._segment(segment)
        return bool(before and frames) and before[-1][1]["events"] != frames[0][1]["events"]

    def _events_in(self, segment: int) -> list[tuple[float, str]]:
        """(time, text of the newest event) of the frames that brought one."""
        before = self._segment(segment - 1)[-1:] if segment > 0 else []
        found, last = [], before[0][1]["events"] if before else None
        for time_s, state in self._segment(segment):
            events = state["events"]
            if last is not None and events and events != last:
                found.append((time_s, str(events[-1][2])))
            last = events
        return found

    def _at(self, position: float) -> tuple[int, int]:
        """(segment, frame in it) that is shown at `position`."""
        moment = self.recording.began + position + 1e-6
        segment = max(0, bisect_right(self._starts, moment) - 1)
        frames = self._segment(segment)
        at = bisect_right([time_s for time_s, _ in frames], position + 1e-6) - 1
        return segment, max(0, at)

    def _segment(self, index: int) -> list[tuple[float, State]]:
        return self._frames(index)

    def _last_segment(self) -> list[tuple[float, State]]:
        """The last one that can be unpacked. Raises ConfigError when none can."""
        while self.recording.chunks:
            frames = self._segment(len(self.recording.segments) - 1)
            if frames:
                return frames
        damage = self.recording.damage
        why = "" if damage is None else f": {damage_words(damage)}"
        raise ConfigError(f"{self.recording.path}: nothing was recorded in it{why}")

    def _unpack(self, index: int) -> list[tuple[float, State]]:
        return list(self.recording.segment(index))

    def _build(self, segment: int, at: int) -> Snapshot:
        frames = self._segment(segment)
        return snapshot_of(frames[at][1]) if frames else Snapshot()


def _config(about: dict[str, Any]) -> EngineConfig:
    """The settings that the engine was started with, as far as they are known here."""
    told = about.get("config")
    known = {f.name for f in fields(EngineConfig)}
    given = told if isinstance(told, dict) else {}
    try:
        return EngineConfig(**{key: value for key, value in given.items() if key in known})
    except (EngineError, TypeError):
        return EngineConfig()


def damage_words(damage: Damage) -> str:
    """ "cut off at byte 12,345, 12:31:07"."""
    when = "" if damage.time is None else f", {fmt.clock(damage.time)}"
    return f"{damage.reason} at byte {damage.byte:,}{when}"


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
