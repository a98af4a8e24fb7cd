"""Traffic for the engine in this process, so that the console has something to show."""

from __future__ import annotations

import asyncio
import itertools
import threading
from contextlib import suppress

from engine.core import Engine
from engine.errors import EngineError
from playbooks.load.arrivals import unit_gaps
from playbooks.load.mix import Preset
from playbooks.load.record import RequestRecord, now_ns
from playbooks.load.targets import EmbeddedTarget, Failed, Outgoing

RATE_START = 2.0
RATE_LIMITS = (0.05, 50.0)
STEP_UP, STEP_DOWN = 1.05, 0.85
CATCH_UP_S = 1.0
"""A longer stall is not made up for in one burst."""
HELD_LOOK_S = 0.1
SHARE_OF_LIMIT = 0.8
"""Prompt and output together stay below this share of the longest request that fits."""


class BackgroundLoad:
    """Poisson arrivals of random prompts on a thread of its own, until stopped.

    `rate` in requests/s; None follows what is under way, so that any machine is kept busy
    without drowning: a little faster while the batch has room, slower while many wait. The prompts
    are random tokens, unique, and outputs run to their drawn length.
    """

    def __init__(
        self, engine: Engine, lengths: Preset, rate: float | None = None, seed: int = 0
    ) -> None:
        self._engine, self._lengths = engine, lengths
        self._rate, self._seed = rate, seed
        self._thread = threading.Thread(target=self._run, name="evewatch-load", daemon=True)
        self._stopped = self._held = False
        self._open = 0
        """Requests sent and not ended."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._driver: asyncio.Task[None] | None = None
        self.current_rate = rate or RATE_START

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped = True
        if self._loop is not None and self._driver is not None:
            with suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._driver.cancel)
        if self._thread.is_alive():
            self._thread.join(5)

    def set_held(self, held: bool) -> None:
        """Send nothing more for a while, so that something else can be measured; or go on."""
        self._held = held

    def _run(self) -> None:
        try:
            with suppress(asyncio.CancelledError):
                asyncio.run(self._drive())
        except* EngineError:
            pass  # the engine has stopped, and so does its load

    async def _drive(self) -> None:
        self._loop, self._driver = asyncio.get_running_loop(), asyncio.current_task()
        if self._stopped:
            return
        async with EmbeddedTarget(self._engine) as target, asyncio.TaskGroup() as open_requests:
            await self._send(target, open_requests)

    async def _send(self, target: EmbeddedTarget, open_requests: asyncio.TaskGroup) -> None:
        prompts = target.prompts(self._seed, 0)
        due = now_ns()
        pairs, gaps = self._lengths.pairs(self._seed), unit_gaps(self._seed)
        for index, (prompt, output), gap in zip(itertools.count(), pairs, gaps, strict=False):
            due += int(gap * 1e9 / self.current_rate)
            await asyncio.sleep(max(0.0, (due - now_ns()) / 1e9))
            while self._held:
                await asyncio.sleep(HELD_LOOK_S)
                due = now_ns()
            prompt, output = self._fit(prompt, output)
            outgoing = Outgoing(prompts.make(index, prompt), output, ignore_eos=True)
            record = RequestRecord(index, due, prompt, output, sent=now_ns())
            open_requests.create_task(self._serve(target, outgoing, record))
            self._open += 1
            if self._rate is None:
                self._follow()
                due = max(due, now_ns() - int(CATCH_UP_S * 1e9))

    async def _serve(
        self, target: EmbeddedTarget, outgoing: Outgoing, record: RequestRecord
    ) -> None:
        try:
            with suppress(Failed):
                await target.send(target.prepare(outgoing), record)
        finally:
            self._open -= 1

    def _fit(self, prompt: int, output: int) -> tuple[int, int]:
        pool = self._engine.pool
        limit = int(self._engine.scheduler.max_model_len * SHARE_OF_LIMIT)
        room = int(pool.total * pool.page_tokens * SHARE_OF_LIMIT)
        output = max(min(output, limit // 2, room // 2), 1)
        return max(min(prompt, min(limit, room) - output), 1), output

    def _follow(self) -> None:
        """Aim at a batch that is full with a short queue, by what is under way now."""
        cap = self._engine.scheduler.cap
        if self._open > cap + max(2, cap // 4):
            self.current_rate *= STEP_DOWN
        elif self._open < cap:
            self.current_rate *= STEP_UP
        self.current_rate = min(max(self.current_rate, RATE_LIMITS[0]), RATE_LIMITS[1])
