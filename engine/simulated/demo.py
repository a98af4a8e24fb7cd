"""DemoEngine: an engine without a model, for `--demo` and for tests.

The real loop, scheduler and telemetry in virtual time; a script sends the traffic and a canned
text is the answer. The same surface as Engine. No torch.
"""

from __future__ import annotations

import math
import pickle
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from engine.errors import EngineError, EngineStopped
from engine.loop import Loop
from engine.observing.ledger import Ledger
from engine.observing.machine import MachineState
from engine.observing.objectives import Objective
from engine.observing.watchable import Watchable
from engine.request import FinishReason, SamplingParams
from engine.simulated.script import FAILURES, SCRIPTS, Scene
from engine.snapshot import AllocatorState, Snapshot, Source, SourceState
from engine.stream import Stream
from engine.text.completion import Chat, Prompt, is_token_ids

TICK_S = 0.1
"""Between looks at the clock, where a thread does it."""
MAX_CATCH_UP_S = 60.0
"""After a longer sleep of the machine the scene does not live through what it missed."""
PEAK_BYTES_S = 21.4e9
TOKEN_BYTES, TURN_TOKENS = 4, 5
"""Lengths of texts by the rule of thumb; a chat's turn has so many tokens more."""


class DemoEngine(Watchable):
    """`script` is a name in SCRIPTS. With a `clock` (Unix seconds) of your own nothing moves
    until it does, and `snapshot` brings the scene up to it; without one, a thread does.

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
        objectives: Sequence[Objective] = (),
    ) -> None:
        self._clock, self._own_pace = clock or time.time, clock is None
        self._load_s, self._start_error = load_s, start_error
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self._failure = FAILURES.get(script)
        self._began = self._clock()
        self._scene: Scene = pickle.loads(_warmed(script, seed, self._began))
        self.loop: Loop = self._scene.replica.loop
        self.config = self.loop.config
        self.loop.observer.machine_state = self._machine
        self.loop.telemetry.hold_to(objectives)
        self._published_at = 0
        self._publish()

    # life

    def start(self) -> None:
        if self._load_s:
            self._stopped.wait(self._load_s)
        if self._start_error is not None:
            raise self._start_error
        if self._own_pace:
            threading.Thread(target=self._live, name="demo-engine", daemon=True).start()

    def _live(self) -> None:
        while not self._stopped.wait(TICK_S):
            self.catch_up()

    def stop(self) -> None:
        with self._lock:
            self._stopped.set()
            self.loop.end(FinishReason.CANCELLED, "the engine was stopped")

    def catch_up(self) -> None:
        """Live through what the clock says has passed."""
        with self._lock:
            if self._stopped.is_set():
                return
            now = self._clock()
            if self._failure is not None:
                now = min(now, self._began + self._failure.after_s)
            self._scene.skip_to(self._ns(now - MAX_CATCH_UP_S))
            self._scene.run_until(self._ns(now))

    def _ns(self, unix: float) -> int:
        """The scene's clock at that moment."""
        clock = self.loop.clock
        return clock.ns() + round((unix - clock.unix()) * 1e9)

    # the surface of Engine

    def snapshot(self) -> Snapshot:
        with self._lock:
            self.catch_up()
            if self.loop.clock.ns() != self._published_at and not self._stopped.is_set():
                self._publish()
            failure, latest = self._failure, self._snapshot
            age = self._clock() - latest.time
            if failure is None or failure.state is SourceState.STALE or age <= 0:
                return latest
            if self._clock() < self._began + failure.after_s:
                return latest
            source = replace(latest.source, state=failure.state, age_s=age, reason=failure.reason)
            return replace(latest, source=source)

    def submit(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        source: str = "console",
        timeout_s: float | None = None,
    ) -> Stream:
        """Raises EngineStopped after `stop`; what can never be served ends as `rejected`."""
        with self._lock:
            if self._stopped.is_set():
                raise EngineStopped("the engine has been stopped; nothing more is accepted")
            request = self._scene.replica.submit(
                _tokens(prompt), params or SamplingParams(), source=source, timeout_s=timeout_s
            )
            return request.stream

    def cancel(self, request_id: str) -> None:
        with self._lock:
            request = self.loop.open.get(request_id)
            if request is not None:
                self.loop.finish(request, FinishReason.CANCELLED)

    def set_cap(self, cap: int) -> None:
        with self._lock:
            self.loop.controls.set_cap(cap)
            self._publish()

    def set_paused(self, paused: bool) -> None:
        with self._lock:
            self.loop.controls.set_paused(paused)
            self._publish()

    def set_dynamic(self, dynamic: bool) -> None:
        with self._lock:
            self.loop.controls.set_dynamic(dynamic)
            self._publish()

    def set_max_wait(self, milliseconds: float) -> None:
        with self._lock:
            self.loop.controls.set_max_wait(milliseconds)
            self._publish()

    def set_draining(self, draining: bool) -> None:
        with self._lock:
            self.loop.controls.set_draining(draining)
            self._publish()

    def ledger(self) -> Ledger:
        with self._lock:
            return self.loop.ledger()

    # what it looks like

    def _publish(self) -> None:
        observer, now = self.loop.observer, self._clock()
        observer.publish()
        self._published_at = self.loop.clock.ns()
        source = Source(engine="evewatch", target="demo")
        # A step that the clock has not reached the end of is over already.
        self._snapshot = replace(
            observer.snapshot, source=source, time=min(observer.snapshot.time, now)
        )

    def _machine(self) -> MachineState:
        running = len(self.loop.scheduler.running)
        return MachineState(
            rss_bytes=(640 + running) << 20,
            available_bytes=(9 << 30) - (running << 20),
            cpu_percent=min(196.0, 35.0 + 3.2 * running),
            allocators=(AllocatorState("C heap", 520 << 20, 470 << 20),),
        )


@lru_cache(maxsize=16)
def _warmed(script: str, seed: int, began: float) -> bytes:
    """A scene that has lived through its warm-up, to be copied: tests make hundreds of it."""
    warm_ns = round(SCRIPTS[script].warm_s * 1e9)
    scene = Scene(SCRIPTS[script], seed, 1, began - warm_ns / 1e9)
    observer = scene.replica.loop.observer
    observer.machine_state = MachineState
    observer.bandwidth_peak = PEAK_BYTES_S
    observer.watch_pages(math.inf)
    scene.run_until(1 + warm_ns)
    return pickle.dumps(scene)


def _tokens(prompt: Prompt) -> list[int]:
    """Ids of about the right number; equal texts have equal ones."""
    if isinstance(prompt, str):
        return [0, *prompt.encode("utf-8", "replace")[::TOKEN_BYTES]]
    if is_token_ids(prompt):
        return list(prompt)
    messages = prompt.messages if isinstance(prompt, Chat) else prompt
    ids: list[int] = []
    for message in messages:
        ids += [0] * (TURN_TOKENS - 1) + _tokens(message["content"])  # type: ignore[index]
    return ids
