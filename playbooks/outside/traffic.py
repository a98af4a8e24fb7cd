"""How the requests of a check are sent: journalled, guarded, and within their share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self

import httpx

from playbooks.load.endpoint import Endpoint, EndpointSpec
from playbooks.load.record import EMPTY, RequestRecord, now_ns
from playbooks.load.targets import Failed
from playbooks.outside.care import Guard, GuardTripped
from playbooks.outside.site import UrlSite

REFUSALS = ("http_400", "http_404", "http_405", "http_413", "http_415", "http_422", "http_500",
            "http_501")  # fmt: skip
"""How servers answer what they do not know or take, or are not set up for (llama.cpp: 500)."""
TOO_LONG = ("http_400", "http_413", "http_422")
"""How they answer a prompt that is longer than they take."""
BEAT_S, LATE_S = 0.05, 0.1
"""How often this machine's own loop is looked at, and later than this it overslept."""
ROOM_LOOK_S = 0.1
ROOM_WAIT_S = 60.0
"""Without room for one request within the share: the target has too little else to do."""


class GuardedEndpoint(Endpoint):
    """Of one step. Sending raises GuardTripped from when a guard trips on."""

    def __init__(
        self,
        site: UrlSite,
        transport: httpx.AsyncBaseTransport | None = None,
        spec: EndpointSpec | None = None,
        keep_text: bool = False,
    ) -> None:
        """`spec`: how the site is asked, if not in the plainest way; `keep_text`: of the answers,
        in their records."""
        super().__init__(spec or site.spec, transport)
        self._site, self._guard, self._keep_text = site, Guard(site.care.guards), keep_text
        self._open: dict[int, RequestRecord] = {}
        """Requests in the target, by the identity of their records."""
        self._heart: asyncio.Task[None] | None = None
        self.tripped: str | None = None
        self.next_phase()

    def next_phase(self) -> None:
        """What follows is sent at another load."""
        self._phase = self._site.journal.begin(self.spec.base)

    @property
    def records(self) -> list[RequestRecord]:
        """Of the phase: those that were answered, or failed."""
        return self._phase.records

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._heart = self._heart or asyncio.create_task(self._beat())
        return self

    async def __aexit__(self, *_: object) -> None:
        await super().__aexit__()
        if self._inside == 0 and self._heart is not None:
            self._heart.cancel()
            self._heart = None

    async def _beat(self) -> None:
        while True:
            due = now_ns() + int(BEAT_S * 1e9)
            await asyncio.sleep(BEAT_S)
            if now_ns() - due > LATE_S * 1e9:
                self._phase.late.append((due, now_ns()))

    async def send(
        self, prepared: httpx.Request, record: RequestRecord, refusals: Collection[str] = ()
    ) -> None:
        """`refusals`: kinds of failure that are an answer, and none of the target's."""
        if self._keep_text:
            record.text = []
        async with self._careful(record, refusals):
            await super().send(prepared, record)

    async def whole(self, asked: Mapping[str, Any], record: RequestRecord) -> dict[str, Any]:
        """What is asked so may be more than the target does: no guard counts a refusal."""
        async with self._careful(record, REFUSALS):
            return await super().whole(asked, record)

    @asynccontextmanager
    async def _careful(
        self, record: RequestRecord, refusals: Collection[str] = ()
    ) -> AsyncIterator[None]:
        """Around one request. One that its client gave up is in no journal: nothing is known; nor
        is one that was refused as it may be."""
        self._check()
        if self._site.care.max_share is not None:
            await self._room(record)
        self._open[id(record)] = record
        try:
            yield
        except Failed as failure:
            if failure.kind in refusals:
                self._guard.take(None, failed=False)
            else:
                self._took(record, failed=failure.kind != EMPTY)
            raise
        except asyncio.CancelledError:
            if not record.events:  # out of time, not somebody who had read enough
                self._guard.take(_waited_ms(record), failed=True)
            raise
        finally:
            del self._open[id(record)]
        self._took(record, failed=False)
        self._check()

    def _took(self, record: RequestRecord, failed: bool) -> None:
        self._phase.records.append(record)
        self._guard.take(None if failed else record.ttft_ms, failed)

    def _check(self) -> None:
        waiting = [_waited_ms(r) for r in self._open.values() if not r.events]
        self.tripped = self.tripped or self._guard.exceeded(self._site.newest, waiting)
        if self.tripped:
            raise GuardTripped(self.tripped)

    async def _room(self, record: RequestRecord) -> None:
        """Wait until one more keeps the check below its share; a wait is none of the target's."""
        end = time.monotonic() + ROOM_WAIT_S
        while not self._fits():
            if time.monotonic() > end:
                self.tripped = f"stopped: {self.spec.base} {self._no_room()}"
                raise GuardTripped(self.tripped)
            await asyncio.sleep(ROOM_LOOK_S)
            record.scheduled = record.sent = now_ns()
            self._check()

    def _no_room(self) -> str:
        seen, share = self._site.newest, self._site.care.max_share or 0.0
        if seen is None or seen.batch.running is None:
            return f"does not tell how many requests it runs: a share of {share:.0%} cannot be kept"
        return f"runs too little else for a share of {share:.0%}"

    def _fits(self) -> bool:
        seen, share, own = self._site.newest, self._site.care.max_share, len(self._open)
        if seen is None or seen.batch.running is None or share is None:
            return False
        others = max(seen.batch.running - own, 0)
        return own + 1 <= share * (others + own + 1)


def _waited_ms(record: RequestRecord) -> float:
    return (now_ns() - record.scheduled) / 1e6
