"""The one file of the console that talks to an engine.

The engine never waits for the console and the console never waits for the engine: start and
stop run in threads of their own, `poll` reads the latest Snapshot, and answers come as a
message when there is something to take.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from textual.message import Message

from console.messages import AnswerArrived, EngineDown, EngineFailed, EngineUp
from console.renderables.frame import Phase
from engine.config import EngineConfig
from engine.request import SamplingParams
from engine.snapshot import Snapshot, SourceState
from engine.stream import Stream

STALE_AFTER_S = 5.0
"""A live engine publishes after every step, and once a second when idle."""
STALE_AFTER_STEPS = 3.0
"""A slow step is no hang: so many of the usual length must have passed as well."""
STOP_PATIENCE_S = 10.0

Prompt = str | list[dict[str, str]] | list[int]


class EngineLike(Protocol):
    """What the console needs of an engine; the embedded one, a remote one and the fake have it."""

    @property
    def config(self) -> EngineConfig: ...

    def start(self) -> None:
        """Return when requests are accepted. Raises EngineError."""

    def stop(self) -> None:
        """End everything; idempotent."""

    def snapshot(self) -> Snapshot:
        """The latest; from any thread, at once."""

    def submit(
        self,
        prompt: Prompt,
        params: SamplingParams,
        *,
        source: str = "console",
        timeout_s: float | None = None,
    ) -> Stream:
        """Raises EngineError when the request can never be served."""

    def cancel(self, request_id: str) -> None: ...

    def set_cap(self, n: int) -> None: ...

    def set_paused(self, paused: bool) -> None: ...


class Load(Protocol):
    """What keeps the engine busy; started when the engine is up."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Bridge:
    """Owns the engine's life for the console. Methods are called from the UI's thread."""

    def __init__(
        self,
        engine: EngineLike,
        post: Callable[[Message], object],
        load: Load | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.engine = engine
        self.phase = Phase.LOADING
        self._post = post
        self._load = load
        self._clock = clock
        self._phase_since = clock()

    # life

    def start(self) -> None:
        """Posts EngineUp or EngineFailed."""
        _in_thread("engine-start", self._start)

    def _start(self) -> None:
        try:
            self.engine.start()
        except Exception as error:
            self._post(EngineFailed(error))
        else:
            self._post(EngineUp())

    def went_up(self) -> None:
        if self.phase is not Phase.LOADING:
            return
        self._enter(Phase.UP)
        if self._load is not None:
            _in_thread("load-start", self._load.start)

    def stop(self) -> None:
        """Posts EngineDown at the latest after STOP_PATIENCE_S."""
        if self.phase is Phase.STOPPING:
            return
        loading = self.phase is Phase.LOADING
        self._enter(Phase.STOPPING)
        if loading:
            self._post(EngineDown())
        else:
            _in_thread("engine-stop", self._stop)

    def _stop(self) -> None:
        stopper = _in_thread("engine-stop", self._stop_all)
        stopper.join(STOP_PATIENCE_S)
        self._post(EngineDown())

    def _stop_all(self) -> None:
        if self._load is not None:
            self._load.stop()
        self.engine.stop()

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self._phase_since = self._clock()

    @property
    def phase_s(self) -> float:
        return max(0.0, self._clock() - self._phase_since)

    # numbers

    def poll(self) -> Snapshot:
        """The latest Snapshot, with its age as of now."""
        if self.phase is Phase.LOADING:
            return Snapshot()
        return aged(self.engine.snapshot(), self._clock())

    # commands

    def ask(self, messages: list[dict[str, str]], params: SamplingParams) -> Stream:
        stream = self.engine.submit(messages, params, source="console")
        stream.listen(self._answer_arrived)
        return stream

    def _answer_arrived(self) -> None:
        self._post(AnswerArrived())

    def cancel(self, request_id: str) -> None:
        self.engine.cancel(request_id)

    def change_cap(self, step: int) -> int | None:
        """Move the cap by `step` within 1 … its maximum; the new cap, None if not known."""
        batch = self.engine.snapshot().batch
        if batch.cap is None:
            return None
        highest = batch.cap_max or self.engine.config.max_batch
        cap = max(1, min(highest, batch.cap + step))
        self.engine.set_cap(cap)
        return cap

    def toggle_admission(self) -> bool:
        """Pause admission or let it go on; whether it is paused now."""
        paused = not self.engine.snapshot().engine.paused
        self.engine.set_paused(paused)
        return paused


def aged(snapshot: Snapshot, now: float) -> Snapshot:
    """`snapshot` with its age at `now`; a live one that is too old becomes stale."""
    source = snapshot.source
    age = max(source.age_s, now - snapshot.time, 0.0)
    step_s = (snapshot.batch.step_ms or 0.0) / 1e3
    patience = max(STALE_AFTER_S, STALE_AFTER_STEPS * step_s)
    if source.state is SourceState.LIVE and age > patience:
        reason = source.reason or "the engine publishes nothing: its thread is busy or hung"
        source = replace(source, state=SourceState.STALE, reason=reason)
    return replace(snapshot, source=replace(source, age_s=age))


def _in_thread(name: str, work: Callable[[], None]) -> threading.Thread:
    """A daemon: quitting never waits for a model that still loads."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread
