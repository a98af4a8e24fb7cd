"""What a proxy does to the answers that pass it: one class a fault, by the number of the request.

The server behind it is sound. What the proxy changes is what a client sees of a server that is
not: another client's text, a pause, a cut, a refusal, counters that begin again, memory that is
never given back.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

COUNTED = ("_total", "_count", "_sum", "_bucket")
RUNNING, KV_USAGE = "vllm:num_requests_running", "vllm:kv_cache_usage_perc"
OWN = "evewatch:"
"""Series that only this engine has: without them its page is one of any vLLM."""


class Tampering:
    """As it is: everything passes. Completions are numbered from 0."""

    in_one_piece: bool = False
    """A streamed answer is held until it is whole."""

    def event_wait_s(self) -> float:
        """Before each event of a streamed answer."""
        return 0.0

    def refuses(self, number: int) -> bool:
        return False

    def body(self, body: bytes) -> bytes:
        """What the server is asked."""
        return body

    def wait_s(self, number: int) -> float:
        """Before the server is asked."""
        return 0.0

    def cut_after(self, number: int) -> int | None:
        """Events of the streamed answer that pass before the connection ends; None: all."""
        return None

    def metrics(self, text: str, asked: int) -> str:
        """The metrics page, after so many completions."""
        return "".join(line for line in text.splitlines(True) if not _is_own(line))


@dataclass
class SwappedAnswers(Tampering):
    """Client k gets the answer to what client k − 1 asked."""

    def __post_init__(self) -> None:
        self._last: dict[str, Any] = {}
        self._lock = threading.Lock()

    def body(self, body: bytes) -> bytes:
        asked = json.loads(body)
        own = {key: asked[key] for key in ("prompt", "messages") if key in asked}
        with self._lock:
            before, self._last = self._last, own
        return json.dumps(asked | before).encode() if before.keys() == own.keys() else body


@dataclass
class Stalls(Tampering):
    """Every so many requests one is held."""

    every: int = 20
    hold_s: float = 3.0

    def wait_s(self, number: int) -> float:
        return self.hold_s if number % self.every == self.every - 1 else 0.0


@dataclass
class CutStreams(Tampering):
    """Every so many streamed answers one ends after a few events."""

    every: int = 6
    events: int = 3

    def cut_after(self, number: int) -> int | None:
        return self.events if number % self.every == self.every - 1 else None


@dataclass
class Refusals(Tampering):
    every: int = 5

    def refuses(self, number: int) -> bool:
        return number % self.every == self.every - 1


@dataclass
class SlowReplica(Tampering):
    """Each event of an answer comes so much later than the one before."""

    wait: float = 0.2

    def event_wait_s(self) -> float:
        return self.wait


@dataclass
class StandingStill(Tampering):
    """After so many events of all answers nobody gets one for a while."""

    every: int = 400
    hold_s: float = 3.0
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._events, self._until = 0, 0.0

    def event_wait_s(self) -> float:
        self._events += 1
        if self._events % self.every == 0:
            self._until = self.clock() + self.hold_s
        return max(self._until - self.clock(), 0.0)


@dataclass
class HeldBack(Tampering):
    """A proxy that buffers: an answer comes when it is whole."""

    in_one_piece: bool = True


@dataclass
class IgnoredLimits(Tampering):
    """Answers are so many times as long as was asked for."""

    times: int = 3

    def body(self, body: bytes) -> bytes:
        asked = json.loads(body)
        return json.dumps(asked | {"max_tokens": self.times * asked["max_tokens"]}).encode()


@dataclass
class DrawnAnswers(Tampering):
    """The temperature that was asked for is not what the engine gets."""

    temperature: float = 1.5

    def body(self, body: bytes) -> bytes:
        return json.dumps(json.loads(body) | {"temperature": self.temperature}).encode()


@dataclass
class RestartingCounters(Tampering):
    """Counters begin again from zero every so many seconds, as after a crash."""

    every_s: float = 20.0
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._base: dict[str, float] = {}
        self._since = self.clock()

    def metrics(self, text: str, asked: int) -> str:
        plain = super().metrics(text, asked)
        if self.clock() - self._since >= self.every_s:
            self._since, self._base = self.clock(), {}
            _changed(plain, self._remember)
        return _changed(plain, lambda series, value: value - self._base.get(series, 0.0))

    def _remember(self, series: str, value: float) -> float:
        if series.partition("{")[0].endswith(COUNTED):
            self._base[series] = value
        return value


@dataclass
class LeakedRequests(Tampering):
    """Every so many requests one stays in the batch for good, with its memory."""

    every: int = 8
    usage: float = 0.01

    def metrics(self, text: str, asked: int) -> str:
        kept = asked // self.every

        def more(series: str, value: float) -> float:
            name = series.partition("{")[0]
            if name == RUNNING:
                return value + kept
            return min(value + kept * self.usage, 1.0) if name == KV_USAGE else value

        return _changed(super().metrics(text, asked), more)


@dataclass
class HalfCounted(Tampering):
    """A page of one worker of two: it counts half of what its clients get."""

    def metrics(self, text: str, asked: int) -> str:
        def half(series: str, value: float) -> float:
            return value // 2 if series.partition("{")[0].endswith(COUNTED) else value

        return _changed(super().metrics(text, asked), half)


@dataclass(frozen=True)
class OutsideFault:
    name: str
    cause: str
    """What a diagnosis of the outside view must say first."""
    title: str
    make: Callable[[], Tampering]
    of_replica: bool = False
    """The target is sound; another replica of its service has it."""


OUTSIDE_FAULTS = {
    fault.name: fault
    for fault in (
        OutsideFault("swapped_answers", "cross_talk",
                     "client k gets the answer of client k − 1", SwappedAnswers),
        OutsideFault("restarting_counters", "restarted_while_watched",
                     "counters begin again every 20 s", RestartingCounters),
        OutsideFault("half_counted", "target_inconsistent",
                     "its page counts half of what clients get", HalfCounted),
        OutsideFault("cut_streams", "broken_streams", "every sixth answer is cut", CutStreams),
        OutsideFault("refusals", "failing_requests", "every fifth request gets 503", Refusals),
        OutsideFault("stalled_requests", "stalls", "every 20th request is held for 3 s", Stalls),
        OutsideFault("standing_still", "stalls",
                     "nobody gets a token for 3 s, again and again", StandingStill),
        OutsideFault("held_back", "held_back", "answers come in one piece", HeldBack),
        OutsideFault("ignored_limits", "wrong_lengths",
                     "answers are three times as long as asked for", IgnoredLimits),
        OutsideFault("drawn_answers", "unstable_answers",
                     "the temperature that is asked for does not arrive", DrawnAnswers),
        OutsideFault("leaked_requests", "leak",
                     "every eighth request stays in the batch", LeakedRequests),
        OutsideFault("slow_replica", "replica_differs", "one of two replicas is slow",
                     SlowReplica, of_replica=True),
    )
}  # fmt: skip


def _is_own(line: str) -> bool:
    return line.removeprefix("# HELP ").removeprefix("# TYPE ").startswith(OWN)


def _changed(text: str, change: Callable[[str, float], float]) -> str:
    """The page with other values; a series is its name and its labels."""
    lines = []
    for line in text.splitlines():
        series, _, number = line.rpartition(" ")
        if line.startswith("#") or not series:
            lines.append(line)
            continue
        value = float(number)
        lines.append(f"{series} {change(series, value)!r}" if math.isfinite(value) else line)
    return "\n".join(lines) + "\n"
