"""Controls: the settings that move while the loop runs, by hand or by themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from engine.config import EngineConfig
from engine.request import Request
from engine.scheduling.cap import BatchController, Objective
from engine.scheduling.rates import RatesAhead
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.static import Static


class Controls:
    """Belongs to the loop's thread. `tell` gets the kind and the text of every change.

    Raises ConfigError for a file of rates that cannot be used.
    """

    def __init__(
        self, scheduler: Scheduler, config: EngineConfig, tell: Callable[[str, str], None]
    ) -> None:
        self._scheduler, self._tell = scheduler, tell
        self.dynamic = config.dynamic_batch
        self.rates = RatesAhead.load(Path(config.rate_schedule)) if config.rate_schedule else None
        """What will come, where that is known: the moving cap opens before it does."""
        self._predicted = scheduler.predicts
        self.draining = False
        """Nothing new is accepted; what was accepted before is finished."""
        self.controller = BatchController(
            Objective(
                config.min_batch, config.max_batch, config.tpot_objective_ms, config.max_wait_ms
            )
        )

    def set_cap(self, cap: int, why: str = "set by hand") -> None:
        before = self._scheduler.cap
        if cap != before:
            self._scheduler.cap = cap
            self._tell("cap", f"cap {before} → {cap}: {why}")

    def set_paused(self, paused: bool) -> None:
        if paused != self._scheduler.paused:
            self._scheduler.paused = paused
            self._tell("pause", f"admission {'paused' if paused else 'resumed'}")

    def set_dynamic(self, dynamic: bool) -> None:
        if dynamic != self.dynamic:
            self.dynamic = dynamic
            self._tell("config", f"dynamic batch {'on' if dynamic else 'off'}")

    def set_draining(self, draining: bool) -> None:
        if draining != self.draining:
            self.draining = draining
            what = "draining: nothing new is accepted" if draining else "accepting again"
            self._tell("config", what)

    @property
    def max_wait_ms(self) -> float:
        return self.controller.objective.max_wait_ms

    def set_max_wait(self, milliseconds: float) -> None:
        """Tell both who wait by it: a batch that fills, and the moving cap."""
        before, policy, controller = self.max_wait_ms, self._scheduler.policy, self.controller
        if isinstance(policy, Static):
            policy.max_wait_ns = int(milliseconds * 1e6)
        controller.objective = replace(controller.objective, max_wait_ms=milliseconds)
        if milliseconds != before:
            self._tell("config", f"longest wait {before:g} → {milliseconds:g} ms")

    def ended(self, request: Request) -> None:
        """A request has ended: how long do they stay, and do predictions of their lengths hold?"""
        stay_ms = request.stamps.span_ms("first_scheduled", "last_token")
        if stay_ms is not None:
            self.controller.observe_stay(stay_ms / 1e3)
        if self._scheduler.predicts != self._predicted:
            self._predicted = self._scheduler.predicts
            self._tell("reserve", self._turn())

    def _turn(self) -> str:
        """What is to be told when predicted lengths hold no more, or again."""
        lengths = self._scheduler.lengths
        share = (lengths.coverage or 0.0) * 100 if lengths is not None else 0.0
        outputs = f"{share:.0f} % of the last outputs were as long as expected"
        if self._predicted:
            return f"predicted lengths hold again: {outputs}; admission goes by what is predicted"
        return f"predicted lengths do not hold: {outputs}; admission goes by what is known"

    def move_cap(self, now: int, unix: float, running: int, step_ms: float | None) -> None:
        """The moving cap looks at the step of `running` rows that ended at `now` (ns), which is
        `unix` seconds since 1970.

        `step_ms`: how long it took, if it decoded.
        """
        if not self.dynamic:
            return
        if step_ms is not None:
            self.controller.observe(step_ms)
        waiting = self._scheduler.waiting
        oldest = waiting.oldest_arrival()
        wait_ms = (now - oldest) / 1e6 if oldest is not None else 0.0
        if self.rates is not None:
            self.controller.rate_ahead = self.rates.highest(unix, unix + self.controller.LEAD_S)
        decision = self.controller.decide(now, self._scheduler.cap, running, len(waiting), wait_ms)
        if decision is not None:
            self.set_cap(*decision)
