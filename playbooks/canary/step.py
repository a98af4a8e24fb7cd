"""The canary: a candidate beside the baseline, given more of the traffic stage by stage.

Both are loaded until the end, so that going back is a matter of routing. The rules are in
playbooks/canary/rules.py, what happens when in conductor.py; here the two sides are made and
taken down.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, fields
from typing import Any

from engine.config import EngineConfig
from engine.core import Engine
from engine.errors import ConfigError
from engine.execution.load import load_model
from engine.execution.products import weights_of
from engine.models import LoadedModel
from playbooks.canary.conductor import Conductor
from playbooks.canary.events import Listener, Phase
from playbooks.canary.fair_scheduler import FairScheduler, FairSchedulerThread
from playbooks.canary.plan import CanaryPlan
from playbooks.canary.report import logger, make_report
from playbooks.canary.router import BASELINE, CANDIDATE
from playbooks.canary.sides import EmbeddedSide, EndpointSide, Side
from playbooks.load.endpoint import Endpoint, EndpointSpec
from playbooks.load.loop import new_loop
from playbooks.load.workload import LoadSpec
from playbooks.measure.compare import environment

End = EngineConfig | EndpointSpec
"""What a side is: settings of an engine in this process, or an endpoint."""
MakeSide = Callable[[str, EndpointSpec], EndpointSide]


def plain_side(name: str, spec: EndpointSpec) -> EndpointSide:
    return EndpointSide(name, Endpoint(spec))


@dataclass(frozen=True)
class SidePair:
    """Two sides that are up, and who steps them where they are engines in this process."""

    sides: dict[str, Side]
    turns: FairScheduler | None = None


def run_canary(
    plan: CanaryPlan,
    baseline: End,
    candidate: End,
    load: LoadSpec,
    *,
    listener: Listener = lambda event: None,
    log: bool = True,
    loaded: LoadedModel | None = None,
    stop: Callable[[], bool] = lambda: False,
    make_side: MakeSide = plain_side,
) -> dict[str, Any]:
    """Run a canary to its end, on an event loop of its own, and return its report.

    Two engines of the same model share its weights (`loaded`, if it is in memory already). The
    verdict is pass when the candidate has everybody, fail when it was rolled back, else
    inconclusive. `log`: write every decision to the optimization log. Ctrl-C, or `stop` saying
    so, gives all traffic back and ends it. `make_side`: of an endpoint. Raises ConfigError or
    ModelError before anything runs, TargetUnreachable when a side is not there.
    """
    changes = changes_between(baseline, candidate)

    async def run() -> dict[str, Any]:
        listener(Phase("load", "both sides"))
        async with open_pair(baseline, candidate, loaded, make_side) as pair:
            return await conduct(plan, pair, load, changes, listener, log, baseline, stop)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(run())


async def conduct(
    plan: CanaryPlan,
    pair: SidePair,
    load: LoadSpec,
    changes: list[tuple[str, Any, Any]],
    listener: Listener = lambda event: None,
    log: bool = True,
    baseline: End | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """On a pair that is up; on the running loop, whose clock may be a virtual one."""
    start = time.monotonic()
    config = baseline if isinstance(baseline, EngineConfig) else None
    conductor = Conductor(plan, pair.sides, load, pair.turns, listener, stop)
    if log:
        conductor.on_decision = logger(
            conductor, changes, config, lambda text: listener(Phase("log", text))
        )
    action = await conductor.run()
    described = {name: side.describe() for name, side in pair.sides.items()}
    changed = {key: {"before": before, "after": after} for key, before, after in changes}
    around = environment(config or EngineConfig(device="auto"))
    seconds = time.monotonic() - start
    return make_report(conductor, action, described, changed, around, seconds)


@asynccontextmanager
async def open_pair(
    baseline: End,
    candidate: End,
    loaded: LoadedModel | None = None,
    make_side: MakeSide = plain_side,
) -> AsyncIterator[SidePair]:
    """Both sides up; both down afterwards."""
    async with AsyncExitStack() as stack:
        if isinstance(baseline, EngineConfig) and isinstance(candidate, EngineConfig):
            pair = await _engines(baseline, candidate, loaded, stack)
        elif isinstance(baseline, EndpointSpec) and isinstance(candidate, EndpointSpec):
            specs = {BASELINE: baseline, CANDIDATE: candidate}
            pair = SidePair({name: make_side(name, spec) for name, spec in specs.items()})
        else:
            raise ConfigError(
                "canary: give two URLs, or none for two engines in this process; one of each "
                "is not a comparison"
            )
        for side in pair.sides.values():
            await stack.enter_async_context(side)
        yield pair


async def _engines(
    baseline: EngineConfig,
    candidate: EngineConfig,
    loaded: LoadedModel | None,
    stack: AsyncExitStack,
) -> SidePair:
    def make() -> dict[str, Engine]:
        mine = loaded or load_model(baseline)
        same = weights_of(baseline) == weights_of(candidate)
        other = mine if same else load_model(candidate)
        return {BASELINE: Engine(baseline, mine), CANDIDATE: Engine(candidate, other)}

    turns = FairSchedulerThread(make)
    stack.push_async_callback(turns.stop)
    await turns.start()
    sides = {name: EmbeddedSide(name, engine, turns) for name, engine in turns.engines.items()}
    return SidePair(dict(sides), turns)


def changes_between(baseline: End, candidate: End) -> list[tuple[str, Any, Any]]:
    """(setting, before, after) of everything in which the two differ. Raises ConfigError where
    there is nothing to try."""
    if type(baseline) is not type(candidate):
        return [("target", _name(baseline), _name(candidate))]
    hidden = {"key"}  # a bearer token is nobody's business
    pairs = [(f.name, getattr(baseline, f.name), getattr(candidate, f.name))
             for f in fields(baseline) if f.name not in hidden]  # fmt: skip
    changes = [(name, before, after) for name, before, after in pairs if before != after]
    if not changes:
        raise ConfigError("canary: baseline and candidate are the same; there is nothing to try")
    return changes


def _name(end: End) -> str:
    return end.url if isinstance(end, EndpointSpec) else "embedded"
