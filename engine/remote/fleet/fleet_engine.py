"""A fleet as one engine: the console shows whichever part of it is chosen."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from engine.config import EngineConfig
from engine.observing.watchable import Reach
from engine.remote.controls import OutOfReach
from engine.remote.errors import NotAvailable
from engine.remote.fleet.fleet import Fleet
from engine.request import SamplingParams
from engine.snapshot import Snapshot

if TYPE_CHECKING:
    from engine.remote.engine import Prompt, RemoteEngine
    from engine.stream import Stream


class FleetEngine(OutOfReach):
    """The surface of an engine over the chosen target or group, by default the first target.

    Methods may be called from any thread.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self._lock = threading.Lock()
        self._target: str | None = next(iter(fleet.engines))
        self._group: str | None = None

    @property
    def config(self) -> EngineConfig:
        return EngineConfig(model=self.chosen)

    @property
    def reach(self) -> Reach | None:
        engine = self._engine()
        return engine.reach if engine is not None else None

    @property
    def loading(self) -> str:
        return f"the metrics of {len(self.fleet.engines)} targets"

    @property
    def stale_after_s(self) -> float:
        return max(engine.stale_after_s for engine in self.fleet.engines.values())

    # what is shown

    @property
    def members(self) -> tuple[str, ...]:
        """The targets that are shown: one, or those of a group."""
        return (self._target,) if self._target else self.fleet.services().get(self._group or "", ())

    @property
    def chosen(self) -> str:
        """Name of the target or group."""
        return self._target or self._group or ""

    def choose(self, target: str | None = None, group: str | None = None) -> None:
        with self._lock:
            self._target, self._group = target, group

    def _engine(self) -> RemoteEngine | None:
        return self.fleet.engines.get(self._target) if self._target else None

    def snapshot(self) -> Snapshot:
        engine = self._engine()
        if engine is not None:
            return engine.snapshot()
        groups = self.fleet.groups()
        found = next((g for g in groups if g.name == self._group), groups[0])
        return found.merged

    def series(self) -> tuple[Snapshot, ...]:
        """The recent past of the chosen target; a group's is not kept."""
        engine = self._engine()
        return engine.series() if engine is not None else ()

    # life

    def start(self) -> None:
        self.fleet.start()

    def stop(self) -> None:
        self.fleet.stop()

    # requests and controls go to the chosen target

    def submit(
        self,
        prompt: Prompt,
        params: SamplingParams,
        *,
        source: str = "console",
        timeout_s: float | None = None,
    ) -> Stream:
        engine = self._engine()
        if engine is None:
            raise NotAvailable("a group is shown: open one replica to ask it")
        return engine.submit(prompt, params, source=source, timeout_s=timeout_s)

    def cancel(self, request_id: str) -> None:
        for engine in self.fleet.engines.values():
            engine.cancel(request_id)

    def why_not(self, control: str) -> str:
        """Why that control is not to be had, "" if it is."""
        engine = self._engine()
        if engine is not None:
            return engine.why_not(control)
        return "" if control == "cancel" else "a group is shown: open one replica"
