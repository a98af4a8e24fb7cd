"""FakeEngine: an engine without a model, for tests and for `evewatch up --demo`.

The same surface as Engine, a scripted world behind it (fakeworld.py), answers from a
canned text. No torch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.config import EngineConfig
from engine.errors import EngineError, EngineStopped, RequestError
from engine.observing.watchable import Watchable
from engine.request import FinishReason, SamplingParams
from engine.simulated.fakeview import MAX_MODEL_LEN, snapshot_of
from engine.simulated.fakeworld import ANSWER, DT, Script, World
from engine.snapshot import Snapshot, Source, SourceState
from engine.stream import Stream

PUBLISH_EVERY = 2
"""Ticks between Snapshots."""
MAX_CATCH_UP_S = 60.0
"""After a longer sleep of the machine the world does not live through what it missed."""


@dataclass(frozen=True)
class Failure:
    """From `after_s` on, the numbers no longer come. STALE: in silence."""

    after_s: float
    state: SourceState
    reason: str | None = None


SCRIPTS: dict[str, Script] = {
    "idle": Script(arrivals=0.0, warm_s=0.0),
    "typical": Script(),
    "full": Script(arrivals=6.0, pages=256, output=(96, 320)),
    "preempting": Script(arrivals=6.0, pages=96, output=(96, 320)),
    "stale": Script(),
    "dead": Script(),
}
FAILURES = {
    "stale": Failure(2.0, SourceState.STALE),
    "dead": Failure(2.0, SourceState.UNREACHABLE, "the engine thread ended: out of memory"),
}


class FakeEngine(Watchable):
    """`script` is a name in SCRIPTS. With a `clock` (Unix seconds) of your own nothing moves
    until it does, and `snapshot` brings the world up to it; without one, a thread does.

    `start_error` is raised by start(), `load_s` is how long start() takes.
    """

    def __init__(
        self,
        script: str = "typical",
        *,
        seed: int = 0,
        clock: Callable[[], float] | None = None,
        load_s: float = 0.0,
        start_error: EngineError | None = None,
    ) -> None:
        self.config = EngineConfig(model="fake", device="cpu", seed=seed)
        self._clock = clock or time.time
        self._own_pace = clock is None
        self._load_s, self._start_error = load_s, start_error
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self._failure = FAILURES.get(script)
        self._began = self._clock()
        warm_ticks = round(SCRIPTS[script].warm_s / DT)
        self._world = World(SCRIPTS[script], seed, self._began - warm_ticks * DT)
        for _ in range(warm_ticks):
            self._world.tick()
        self._seq = 0
        self._publish()

    # life

    def start(self) -> None:
        if self._load_s:
            self._stopped.wait(self._load_s)
        if self._start_error is not None:
            raise self._start_error
        if self._own_pace:
            threading.Thread(target=self._live, name="fake-engine", daemon=True).start()

    def _live(self) -> None:
        while not self._stopped.wait(DT):
            self.catch_up()

    def stop(self) -> None:
        with self._lock:
            self._stopped.set()
            for job in [*self._world.running, *self._world.waiting]:
                self._world.end(job, FinishReason.CANCELLED)

    def catch_up(self) -> None:
        """Live through what the clock says has passed."""
        with self._lock:
            if self._stopped.is_set():
                return
            now = self._clock()
            self._world.skip_to(now - MAX_CATCH_UP_S)
            self._run_to(now)

    def _run_to(self, now: float) -> None:
        # Half a tick of slack: a sum of tenths must not lose a tick to rounding.
        while self._world.now + DT <= now + DT / 2:
            self._world.tick()
            if self._world.ticks % PUBLISH_EVERY == 0 and not self._failing(self._world.now):
                self._publish()

    def _failing(self, now: float) -> bool:
        return self._failure is not None and now - self._began >= self._failure.after_s

    # the surface of Engine

    def snapshot(self) -> Snapshot:
        self.catch_up()
        with self._lock:
            failure, snapshot = self._failure, self._published
            if failure is None or failure.state is SourceState.STALE:
                return snapshot
            if not self._failing(self._clock()):
                return snapshot
            age = self._clock() - snapshot.time
            return replace(snapshot, source=Source(failure.state, age_s=age, reason=failure.reason))

    def submit(
        self,
        prompt: str | list[dict[str, str]] | list[int],
        params: SamplingParams,
        *,
        source: str = "console",
        timeout_s: float | None = None,
    ) -> Stream:
        tokens = _length(prompt)
        if tokens + params.max_tokens > MAX_MODEL_LEN:
            raise RequestError(
                f"prompt {tokens} + max_tokens {params.max_tokens} is more than the model's "
                f"{MAX_MODEL_LEN}; shorten one of them"
            )
        with self._lock:
            if self._stopped.is_set():
                raise EngineStopped("the engine has been stopped; nothing more is accepted")
            if self._world.draining:
                return _rejected("the engine drains: it takes nothing new; try later")
            job = self._world.add(tokens, params.max_tokens, source, ANSWER)
            job.stream = Stream(job.id)
            return job.stream

    def cancel(self, request_id: str) -> None:
        with self._lock:
            job = self._world.find(request_id)
            if job is not None:
                self._world.end(job, FinishReason.CANCELLED)

    def set_cap(self, n: int) -> None:
        with self._lock:
            self._world.dynamic = False
            self._world.set_cap(n)
            self._publish()

    def set_paused(self, paused: bool) -> None:
        with self._lock:
            if paused != self._world.paused:
                self._world.paused = paused
                self._world.log("pause", f"admission {'paused' if paused else 'goes on'}")
            self._publish()

    def set_dynamic(self, dynamic: bool) -> None:
        with self._lock:
            if dynamic != self._world.dynamic:
                self._world.dynamic = dynamic
                self._world.log("config", f"dynamic batch {'on' if dynamic else 'off'}")
            self._publish()

    def set_max_wait(self, milliseconds: float) -> None:
        with self._lock:
            if milliseconds != self._world.max_wait_ms:
                change = f"{self._world.max_wait_ms:g} → {milliseconds:g} ms"
                self._world.log("config", f"longest wait {change}")
                self._world.max_wait_ms = milliseconds
            self._publish()

    def set_draining(self, draining: bool) -> None:
        with self._lock:
            if draining != self._world.draining:
                self._world.draining = draining
                what = "draining: nothing new is accepted" if draining else "accepting again"
                self._world.log("config", what)
            self._publish()

    def _publish(self) -> None:
        self._seq += 1
        self._published = snapshot_of(self._world, self._seq)


def _rejected(reason: str) -> Stream:
    """A stream that has ended, as the engine gives one for what it does not take."""
    stream = Stream("r-0")
    stream.close(FinishReason.REJECTED, error=reason)
    return stream


def _length(prompt: str | list[dict[str, str]] | list[int]) -> int:
    """Tokens, by the rule of thumb of four letters each; ids are counted."""
    if isinstance(prompt, str):
        return len(prompt) // 4 + 1
    return sum(len(item["content"]) // 4 + 5 if isinstance(item, dict) else 1 for item in prompt)
