"""A whole canary on two tiny engines in virtual time: seconds of work stand for minutes.

One loop steps the engines, sends the traffic and decides. Its clock jumps over what is idle,
and moves by what a step is said to cost, so that every run comes out the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from builders import tiny_loaded
from engine.config import EngineConfig
from engine.core import Engine
from engine.models import LoadedModel
from kernels import dispatch
from load_stub import run_virtual
from playbooks.canary.events import Event
from playbooks.canary.fair_scheduler import FairScheduler
from playbooks.canary.plan import CanaryPlan
from playbooks.canary.router import BASELINE, CANDIDATE
from playbooks.canary.sides import EmbeddedSide
from playbooks.canary.step import SidePair, changes_between, conduct
from playbooks.load.arrivals import Gamma
from playbooks.load.mix import parse_mix
from playbooks.load.workload import LoadSpec

OPS = dispatch.select("cpu").ops
"""Before any test names another home: the compiled kernels are kept there."""
IDLE_S = 0.01
STEP_S, ROW_S = 0.004, 0.001
"""What a step costs, and each row in it."""
CONFIG = EngineConfig(kernels="cpu", max_batch=8, token_budget=64, kv_memory=1 << 21)
PLAN = CanaryPlan(
    stages="20,50,100", least_s=6.0, hold_s=60.0, drain_s=5.0, min_samples=30,
    tail_ratio=1.5, users=500, waive=("quality",),
)  # fmt: skip
Sabotage = Callable[[Engine], None]


class VirtualTurns(FairScheduler):
    """On the running loop, whose clock a step moves by its cost."""

    def __init__(
        self, make: Callable[[], Mapping[str, Engine]], factors: Mapping[str, float]
    ) -> None:
        super().__init__(make, virtual_ns)
        self._factors = factors
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self.load()
        for name, engine in self.engines.items():
            charge_steps(engine, self._factors.get(name, 1.0))
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        for engine in self.engines.values():
            engine.stop()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(0 if self.turn() else IDLE_S)


def virtual_ns() -> int:
    return int(asyncio.get_running_loop().time() * 1e9)


class VirtualClock:
    """An engine's, on the running loop."""

    ns = staticmethod(virtual_ns)

    @staticmethod
    def unix() -> float:
        return virtual_ns() / 1e9


def charge_steps(engine: Engine, factor: float) -> None:
    """Move the virtual clock by what each of the engine's steps costs."""
    runner, build = engine.runner, engine.runner.build

    def charged(plan: Any) -> Any:
        loop: Any = asyncio.get_running_loop()
        loop._jumping.now += factor * (STEP_S + ROW_S * len(plan.items))
        return build(plan)

    runner.build = charged  # type: ignore[method-assign]


@dataclass
class Rig:
    """What to try; `run` gives the report, and `events` what was told meanwhile."""

    changes: dict[str, Any] = field(default_factory=lambda: {"max_waiting": 1000})
    factor: float = 1.0
    """Cost of the candidate's steps."""
    sabotage: Sabotage = lambda engine: None
    """Done to the candidate once it is loaded."""
    plan: CanaryPlan = PLAN
    config: EngineConfig = CONFIG
    loaded: LoadedModel | None = None
    rate: float = 25.0
    lengths: str = "lognormal:12,5,0.5"
    log: bool = False
    stop: Callable[[], bool] = lambda: False
    act: Callable[[Event, Rig], None] = lambda event, rig: None
    events: list[Event] = field(default_factory=list)
    engines: dict[str, Engine] = field(default_factory=dict)

    def run(self) -> dict[str, Any]:
        return run_virtual(self._run())

    async def _run(self) -> dict[str, Any]:
        loaded = self.loaded or tiny_loaded(OPS)
        candidate = self.config.with_(**self.changes)

        def make() -> dict[str, Engine]:
            return {
                name: Engine(config, loaded, VirtualClock())
                for name, config in ((BASELINE, self.config), (CANDIDATE, candidate))
            }

        turns = VirtualTurns(make, {CANDIDATE: self.factor})
        await turns.start()
        self.engines = turns.engines
        self.sabotage(turns.engines[CANDIDATE])
        sides = {name: EmbeddedSide(name, engine, turns, shows_process=False)
                 for name, engine in turns.engines.items()}  # fmt: skip
        load = LoadSpec(
            Gamma(self.rate), parse_mix(self.lengths), duration_s=1e6, ignore_eos=True,
            timeout_s=30.0,
        )  # fmt: skip

        def listen(event: Event) -> None:
            self.events.append(event)
            self.act(event, self)

        try:
            pair = SidePair(dict(sides), turns)
            changes = changes_between(self.config, candidate)
            return await conduct(
                self.plan, pair, load, changes, listen, self.log, self.config, self.stop
            )
        finally:
            await turns.stop()
