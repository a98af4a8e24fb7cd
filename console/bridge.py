"""The one file of the console that talks to an engine.

The engine never waits for the console and the console never waits for the engine: start and
stop run in threads of their own, `poll` reads the latest Snapshot, and answers come as a
message when there is something to take.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from textual.message import Message

from console.messages import AnswerArrived, EngineDown, EngineFailed, EngineUp
from console.renderables.screen_state import EnginePhase
from engine.config import EngineConfig
from engine.observing import serving
from engine.observing.watchable import CONTROLS, MEASURE, Reach, aged
from engine.request import SamplingParams
from engine.snapshot import Snapshot
from engine.stream import Stream

STOP_PATIENCE_S = 10.0
IN_FORCE_S = 2.0
"""So soon after a setting was moved the engine may not have published it yet."""

Prompt = str | list[dict[str, str]] | list[int]


class EngineLike(Protocol):
    """What the console needs of an engine. Those of engine.observing.watchable have defaults."""

    @property
    def config(self) -> EngineConfig: ...

    @property
    def reach(self) -> Reach | None:
        """Where playbooks can measure it; None for an engine of this process."""

    @property
    def stale_after_s(self) -> float:
        """Age at which a live Snapshot would be an old one."""

    @property
    def loading(self) -> str:
        """What is awaited until the first Snapshot; "" for the model of its configuration."""

    def watch_pages(self) -> None:
        """Have the next Snapshots say whose each page is, where that is known."""

    def why_not(self, control: str) -> str:
        """Why that control is not to be had (a recording, a remote engine), "" if it is."""

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

    def set_cap(self, cap: int) -> None:
        """This and the other controls raise EngineError where the engine does not have them."""

    def set_dynamic(self, dynamic: bool) -> None: ...

    def set_paused(self, paused: bool) -> None: ...

    def set_max_wait(self, milliseconds: float) -> None: ...

    def set_draining(self, draining: bool) -> None: ...


class Load(Protocol):
    """What keeps the engine busy; started when the engine is up."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def set_held(self, held: bool) -> None:
        """Send nothing more while something is measured; or go on."""


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
        self.phase = EnginePhase.LOADING
        self._post = post
        self._load = load
        self._clock = clock
        self._home: tuple[EngineLike, Callable[[], float]] | None = None
        """Our own engine and its clock, while another is visited."""
        self._phase_since = clock()
        self._measuring = False
        """A playbook runs."""
        self._cap_set = (0, -IN_FORCE_S)
        """The cap last asked for, and when."""

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
        if self.phase is not EnginePhase.LOADING:
            return
        self._enter(EnginePhase.UP)
        if self._load is not None:
            _in_thread("load-start", self._load.start)

    def stop(self) -> None:
        """Posts EngineDown at the latest after STOP_PATIENCE_S."""
        if self.phase is EnginePhase.STOPPING:
            return
        loading = self.phase is EnginePhase.LOADING
        self._enter(EnginePhase.STOPPING)
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
        (self._home[0] if self._home else self.engine).stop()

    def _enter(self, phase: EnginePhase) -> None:
        self.phase = phase
        self._phase_since = self._clock()

    @property
    def phase_s(self) -> float:
        return max(0.0, self._clock() - self._phase_since)

    def measuring(self, on: bool) -> None:
        """While a playbook runs our own load is held back, and what is seen is the engine that
        its step runs on."""
        self._measuring = on
        if self._load is not None:
            self._load.set_held(on)

    @property
    def shown(self) -> serving.Seen:
        """Whose numbers are seen: while a playbook measures in this process, those of the engine
        that its step has made, as soon as it has."""
        other = serving.newest(besides=self.engine) if self._measures_here else None
        return other or self.engine

    @property
    def _measures_here(self) -> bool:
        return self._measuring and self.engine.reach is None

    def visit(self, engine: EngineLike, clock: Callable[[], float]) -> None:
        """Show `engine`, which has begun, by its own clock; our own goes on unseen."""
        self._home = self._home or (self.engine, self._clock)
        self.engine, self._clock = engine, clock

    def come_home(self) -> Callable[[], float] | None:
        """Show our own engine again; its clock, None where it is shown already."""
        if self._home is None:
            return None
        self.engine, self._clock = self._home
        self._home = None
        return self._clock

    # numbers

    def poll(self) -> Snapshot:
        """The latest Snapshot, with its age as of now."""
        if self.phase is EnginePhase.LOADING:
            return Snapshot()
        shown = self.shown
        return aged(shown.snapshot(), self._clock(), shown.stale_after_s)

    def watch_pages(self, wanted: bool) -> None:
        """Have the next Snapshots say whose each page is, where the engine can."""
        if wanted:
            self.shown.watch_pages()

    # commands

    def ask(self, messages: list[dict[str, str]], params: SamplingParams) -> Stream:
        stream = self.engine.submit(messages, params, source="console")
        stream.listen(self._answer_arrived)
        return stream

    def _answer_arrived(self) -> None:
        self._post(AnswerArrived())

    def cancel(self, request_id: str) -> None:
        self.engine.cancel(request_id)

    def refusal(self, control: str) -> str:
        """Why the engine does not do that now, "" if it does."""
        reason = self.engine.why_not(control)
        if not reason and control in CONTROLS and self._measures_here:
            return "a playbook measures it"
        if not reason and control == MEASURE and self.phase is not EnginePhase.UP:
            return "the engine is not up yet"
        return reason

    @property
    def settings(self) -> EngineConfig | None:
        """Of the engine that is watched, where it is our own; of others we know none."""
        ours = self.engine.reach is None and not self.refusal(MEASURE)
        return self.engine.config if ours else None

    @property
    def cap(self) -> int | None:
        """In force, or about to be: two quick steps are two steps."""
        cap, when = self._cap_set
        return cap if self._clock() - when < IN_FORCE_S else self.engine.snapshot().batch.cap

    @property
    def highest_cap(self) -> int:
        return self.engine.snapshot().batch.cap_max or self.engine.config.max_batch

    def set_cap(self, cap: int) -> None:
        """Hold the cap at `cap`: one that moves with the queue no longer does."""
        if self.engine.snapshot().batch.dynamic:
            self.engine.set_dynamic(False)
        self.engine.set_cap(cap)
        self._cap_set = (cap, self._clock())


def _in_thread(name: str, work: Callable[[], None]) -> threading.Thread:
    """A daemon: quitting never waits for a model that still loads."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread
