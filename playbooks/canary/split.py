"""The traffic of a canary: one load, of which each user's requests go to one side.

A request that was taken back from the candidate after a roll-back is asked again of the
baseline. Its latency goes on from when it was due: that is what its user waits.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Self

from playbooks.canary.router import BASELINE, CANDIDATE, Router
from playbooks.canary.sides import Side
from playbooks.load.draws import Draw, generator
from playbooks.load.prompts import PromptMaker
from playbooks.load.record import RequestRecord, now_ns
from playbooks.load.targets import Outgoing

RETRIED = "retried"
"""Side of a request that both have seen: it counts for neither."""


class SplitTarget:
    """A Target made of two. `users`: how many there are in all."""

    def __init__(self, sides: Mapping[str, Side], router: Router, users: int, seed: int) -> None:
        self._targets = {name: side.target for name, side in sides.items()}
        self.router = router
        self._users, self._seed = users, seed
        self._tasks: dict[int, asyncio.Task[None]] = {}
        """The candidate's open requests."""
        self._recalled: set[int] = set()
        self._sides: dict[int, str] = {}
        self.open: dict[int, RequestRecord] = {}
        """Every request that has not ended, by number."""
        self.routed = {BASELINE: 0, CANDIDATE: 0}
        self.last_sent_ns = 0
        """When the candidate was last sent a request."""

    @property
    def limit(self) -> int | None:
        """The baseline's: what it serves and the candidate does not is the candidate's failure."""
        return self._targets[BASELINE].limit

    def describe(self) -> dict[str, Any]:
        return {"kind": "split"} | {n: t.describe() for n, t in self._targets.items()}

    def prompts(self, seed: int, shared: int) -> PromptMaker:
        return self._targets[BASELINE].prompts(seed, shared)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for target in self._targets.values():
                await stack.enter_async_context(target)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *details: Any) -> None:
        await self._stack.__aexit__(*details)

    def user(self, number: int) -> str:
        """Who sends request `number`: the same for the same seed."""
        rng = generator(self._seed, Draw.USERS, number)
        return f"user-{rng.integers(self._users)}"

    def prepare(self, request: Outgoing) -> Outgoing:
        """Which side it is for is known when it is sent, and not before."""
        return request

    async def send(self, request: Outgoing, record: RequestRecord) -> None:
        number = record.index
        side = self.router.side(self.user(number))
        self._sides[number], self.open[number] = side, record
        self.routed[side] += 1
        try:
            if side == BASELINE:
                await self._ask(BASELINE, request, record)
            else:
                await self._try(request, record)
        finally:
            del self.open[number]

    async def _try(self, request: Outgoing, record: RequestRecord) -> None:
        """Of the candidate, and of the baseline if it is taken back."""
        number = record.index
        task = asyncio.create_task(self._ask(CANDIDATE, request, record))
        self._tasks[number] = task
        try:
            await task
        except asyncio.CancelledError:
            own = asyncio.current_task()
            if number not in self._recalled or (own is not None and own.cancelling()):
                raise  # given up by whoever asked: time is up, or the run is over
            self._sides[number] = RETRIED
            _wipe(record)
            await self._ask(BASELINE, request, record)
        finally:
            self._recalled.discard(number)
            if self._tasks.get(number) is task:
                del self._tasks[number]

    async def _ask(self, side: str, request: Outgoing, record: RequestRecord) -> None:
        target = self._targets[side]
        try:
            await target.send(target.prepare(request), record)
        finally:
            if side == CANDIDATE:
                self.last_sent_ns = max(self.last_sent_ns, record.sent)

    def recall(self) -> int:
        """Take the candidate's open requests back; how many there were."""
        tasks = {n: t for n, t in self._tasks.items() if not t.done()}
        self._recalled |= tasks.keys()
        for number, task in tasks.items():
            del self._tasks[number]
            task.cancel()
        return len(tasks)

    def on_candidate(self) -> int:
        """Requests that it has not ended."""
        return len(self._tasks)

    def side_of(self, number: int) -> str:
        """Who served a request that is open."""
        return self._sides[number]

    def settle(self, number: int) -> str:
        """Who served a request that has ended; asked once."""
        return self._sides.pop(number)


def _wipe(record: RequestRecord) -> None:
    """As it was when it was sent for the first time, which is now."""
    record.sent = now_ns()
    record.events = array("q")
    record.prompt_tokens = record.output_tokens = 0
    record.finish_reason = record.error = record.detail = record.stamps = None
