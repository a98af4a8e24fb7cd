"""Traffic for the engine in this process, so that the console has something to show."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

from engine.core import Engine
from engine.errors import EngineError
from playbooks.load.arrivals import unit_gaps
from playbooks.load.mix import Preset
from playbooks.load.pace import FollowingPace, Pace, SteadyPace
from playbooks.load.record import RequestRecord, now_ns
from playbooks.load.targets import EmbeddedTarget, Failed, Outgoing

LOOK_S = 0.1
"""At most between two looks at what is under way."""
SHARE_OF_LIMIT = 0.8
"""Prompt and output together stay below this share of the longest request that fits."""


class BackgroundLoad:
    """Poisson arrivals of random prompts on a thread of its own, until stopped.

    `rate` in requests/s; None follows what is under way (FollowingPace), so that any machine is
    kept busy without drowning. The prompts are random tokens, unique, and outputs run to their
    drawn length.
    """

    def __init__(
        self, engine: Engine, lengths: Preset, rate: float | None = None, seed: int = 0
    ) -> None:
        self._engine, self._lengths = engine, lengths
        self._rate, self._seed = rate, seed
        self._thread = threading.Thread(target=self._run, name="evewatch-load", daemon=True)
        self._stopped = self._held = False
        self._under_way = 0
        """Requests sent and not ended."""
        self._changed = asyncio.Event()
        """One has ended."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._driver: asyncio.Task[None] | None = None

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
        prompts, gaps = target.prompts(self._seed, 0), unit_gaps(self._seed)
        pace: Pace = (
            FollowingPace(gaps, now_ns())
            if self._rate is None
            else SteadyPace(gaps, self._rate, now_ns())
        )
        for index, (prompt, output) in enumerate(self._lengths.pairs(self._seed)):
            due = await self._turn(pace)
            prompt, output = self._fit(prompt, output)
            outgoing = Outgoing(prompts.make(index, prompt), output, ignore_eos=True)
            record = RequestRecord(index, due, prompt, output, sent=now_ns())
            open_requests.create_task(self._serve(target, outgoing, record, pace))
            self._under_way += 1
            pace.sent(record.sent)

    async def _turn(self, pace: Pace) -> int:
        """When the next request was due, once it is."""
        await asyncio.sleep(0)  # what is late comes in a row, and is sent before the next
        scheduler = self._engine.scheduler
        while True:
            while self._held:
                await asyncio.sleep(LOOK_S)
                pace.resume(now_ns())
            coming = self._under_way - len(scheduler.running)  # not in the queue yet, perhaps
            waiting, now = max(len(scheduler.waiting), coming), now_ns()
            due = pace.due(now, self._under_way, waiting, scheduler.cap)
            if due is not None and due <= now:
                return due
            self._changed.clear()
            with suppress(TimeoutError):
                patience = LOOK_S if due is None else min((due - now) / 1e9, LOOK_S)
                await asyncio.wait_for(self._changed.wait(), patience)

    async def _serve(
        self, target: EmbeddedTarget, outgoing: Outgoing, record: RequestRecord, pace: Pace
    ) -> None:
        try:
            await target.send(target.prepare(outgoing), record)
        except Failed:
            pace.failed(now_ns())
        else:
            pace.ended(now_ns())
        finally:
            self._under_way -= 1
            self._changed.set()

    def _fit(self, prompt: int, output: int) -> tuple[int, int]:
        pool = self._engine.pool
        limit = int(self._engine.scheduler.max_model_len * SHARE_OF_LIMIT)
        room = int(pool.total * pool.page_tokens * SHARE_OF_LIMIT)
        output = max(min(output, limit // 2, room // 2), 1)
        return max(min(prompt, min(limit, room) - output), 1), output
