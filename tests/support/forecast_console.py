"""A console that shows forecasts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from console.app import build_app
from console.renderables.screen_state import EnginePhase
from engine.simulated.demo import DemoEngine
from journeys import Console
from playbooks.optlog import OptLog


class Running:
    """A console on screen F, its log in `home`; of a demo where `engine` is None."""

    def __init__(
        self, clock: Any, home: Path, size: tuple[int, int] = (120, 40), engine: Any = None
    ) -> None:
        self.app = build_app(
            engine or DemoEngine(clock=clock), clock=clock, refresh_hz=0.001, theme="evewatch",
            language="en", log=OptLog(home / "log.jsonl"),
        )  # fmt: skip
        self.context = self.app.run_test(size=size, notifications=True)
        self.clock = clock

    async def __aenter__(self) -> Console:
        pilot = await self.context.__aenter__()
        c = Console(self.app, pilot, self.clock)
        await c.until(lambda: self.app.bridge.phase is EnginePhase.UP)
        await c.press("F")
        await c.until(lambda: not self.app.forecasts.is_reading)
        await c.pass_time()
        return c

    async def __aexit__(self, *error: Any) -> None:
        await self.context.__aexit__(*error)
