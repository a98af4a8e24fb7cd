"""Two engines in one process take turns on one thread, each with an equal share of the time.

OpenMP gives every thread that runs a parallel loop a pool of its own, and two pools on the same
cores make each other slower by more than they compute (see Engine.start). So one thread steps
both. Whoever has used less time goes next, as a fair scheduler of processes does: an engine
whose steps cost twice as much makes half as many, and its requests take twice as long, just as
on half a machine of its own. Taking plain turns would hide that.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TypeVar

from engine.core import Engine
from engine.scheduling.intake import Call
from playbooks.canary.busy import BusyLog

T = TypeVar("T")
IDLE_WAIT_S = 0.002
"""Between looks at two idle intakes: a request is noticed so late at most."""
log = logging.getLogger("evewatch.canary")


class FairScheduler:
    """Who steps next. `turn` belongs to one thread; `call` may be used from any.

    `make` gives the engines, on that thread; they must not have one of their own.
    """

    def __init__(
        self,
        make: Callable[[], Mapping[str, Engine]],
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._make = make
        self.engines: dict[str, Engine] = {}
        self.dead: dict[str, str] = {}
        """Engines whose step broke, with the reason: they take part no more."""
        self._clock = clock
        self._spent: dict[str, int] = {}
        """Nanoseconds that each has computed, idle time made up for."""
        self._busy: dict[str, bool] = {}
        self._log: dict[str, BusyLog] = {}
        self._calls: deque[Call] = deque()

    def load(self) -> None:
        """Raises ModelError or ConfigError."""
        self.engines = dict(self._make())
        for name, engine in self.engines.items():
            engine.load()
            _touch(engine)
            self._spent[name], self._busy[name], self._log[name] = 0, False, BusyLog()

    def turn(self) -> bool:
        """Step the engine that is due; False when none had anything to compute."""
        while self._calls:
            self._calls.popleft().run()
        due = sorted(self._alive(), key=self._spent.__getitem__)
        return any(self._step(name) for name in due)

    def _step(self, name: str) -> bool:
        start = self._clock()
        try:
            busy = self.engines[name].step()
        except Exception as error:  # a broken engine must not take the other one with it
            log.exception("%s: the engine's step broke", name)
            self.dead[name] = f"{type(error).__name__}: {error}"
            self._spent[name], self._busy[name] = 0, False
            self.engines[name].stop()
            return False
        if busy:
            end = self._clock()
            self._log[name].add(start, end)
            self._charge(name, end - start)
        self._busy[name] = busy
        return busy

    def held_ns(self, name: str, start: int, end: int) -> int:
        """How long `name` had to stand back between two moments, because another computed.

        Taken out of a latency, what is left is what the engine takes with the machine to
        itself; else a slow candidate would make the baseline that it is held against slow too.
        """
        others = [log for other, log in self._log.items() if other != name]
        return sum(log.within(start, end) for log in others)

    def _charge(self, name: str, spent: int) -> None:
        """Time that `name` has computed; who comes back from a pause starts level."""
        if not self._busy[name]:
            others = [self._spent[other] for other in self._alive() if self._busy[other]]
            self._spent[name] = max([self._spent[name], *others[:1]])
        self._spent[name] += spent

    def _alive(self) -> list[str]:
        return [name for name in self.engines if name not in self.dead]

    def post(self, work: Callable[[], T]) -> Future[T]:
        """Have `work` done between two steps, on the thread that computes."""
        answer: Future[T] = Future()
        self._calls.append(Call(work, answer))
        return answer

    async def call(self, work: Callable[[], T]) -> T:
        return await asyncio.wrap_future(self.post(work))


def _touch(engine: Engine) -> None:
    """Have the cache's memory now: the system gives it page by page as it is written, and a
    cache that fills would look like a leak."""
    for layer in engine.cache.layers:
        layer.pages.zero_()
        layer.slabs.zero_()


class FairSchedulerThread(FairScheduler):
    """On a thread of its own, until stopped."""

    def __init__(self, make: Callable[[], Mapping[str, Engine]]) -> None:
        super().__init__(make)
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="evewatch-turns", daemon=True)

    async def start(self) -> None:
        """Load both and begin."""
        loading = self.post(self.load)
        self._thread.start()
        await asyncio.wrap_future(loading)

    async def stop(self) -> None:
        """No more steps; what was open ends."""
        self._ending = True
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)
        for engine in self.engines.values():
            await asyncio.to_thread(engine.stop)

    def _run(self) -> None:
        if not self._load_first():
            return
        while not self._ending:
            if not self.turn():
                time.sleep(IDLE_WAIT_S)

    def _load_first(self) -> bool:
        call = self._calls.popleft()
        call.run()
        return call.future.exception() is None
