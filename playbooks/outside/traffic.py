"""The requests of a check: journalled, guarded, and within their share of the target."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from playbooks.load.endpoint import Endpoint
from playbooks.load.loop import new_loop
from playbooks.load.record import EMPTY, INTERRUPTED, RequestRecord, now_ns
from playbooks.load.targets import Failed, Outgoing
from playbooks.outside.care import Guard, GuardTripped
from playbooks.outside.site import UrlSite

TIMEOUT_S = 120.0
ROOM_LOOK_S = 0.1
ROOM_WAIT_S = 60.0
"""Without room for one request within the share: the target has too little else to do."""


class GuardedEndpoint(Endpoint):
    """Of one step. Sending raises GuardTripped from when a guard trips on."""

    def __init__(self, site: UrlSite, transport: httpx.AsyncBaseTransport | None = None) -> None:
        super().__init__(site.spec, transport)
        self._site, self._guard = site, Guard(site.care.guards)
        self._open = 0
        self.tripped: str | None = None
        site.journal.next_phase()

    async def send(self, prepared: httpx.Request, record: RequestRecord) -> None:
        self._check()
        if self._site.care.max_share is not None:
            await self._room(record)
        self._site.journal.add(record)
        self._open += 1
        try:
            await super().send(prepared, record)
        except Failed as failure:
            self._guard.take(None, failed=failure.kind != EMPTY)
            raise
        finally:
            self._open -= 1
        self._guard.take(record.ttft_ms, failed=False)
        self._check()

    def _check(self) -> None:
        self.tripped = self.tripped or self._guard.exceeded(self._site.newest)
        if self.tripped:
            raise GuardTripped(self.tripped)

    async def _room(self, record: RequestRecord) -> None:
        """Wait until one more keeps the check below its share; a wait is none of the target's."""
        end = time.monotonic() + ROOM_WAIT_S
        while not self._fits():
            if time.monotonic() > end:
                share = self._site.care.max_share or 0.0
                self.tripped = (f"stopped: the target runs too little else for a share of "
                                f"{share:.0%}")  # fmt: skip
                raise GuardTripped(self.tripped)
            await asyncio.sleep(ROOM_LOOK_S)
            self._check()
        record.scheduled = record.sent = now_ns()

    def _fits(self) -> bool:
        seen, share = self._site.newest, self._site.care.max_share
        if seen is None or seen.batch.running is None or share is None:
            return False
        others = max(seen.batch.running - self._open, 0)
        return self._open + 1 <= share * (others + self._open + 1)


@dataclass(frozen=True)
class Question:
    prompt: str
    output: int
    leave_after: int | None = None
    """Tokens after which the client goes away; None: it stays to the end."""


@dataclass(frozen=True)
class Answer:
    text: str
    error: str | None = None
    detail: str | None = None
    prompt_tokens: int = 0
    output_tokens: int = 0


def ask(endpoint: GuardedEndpoint, questions: Sequence[Question], at_once: int) -> list[Answer]:
    """Their answers, greedily, in the order of the questions, up to `at_once` at a time.

    A request that fails is an answer with an error. Raises GuardTripped, and EngineError when
    nobody answers at the address.
    """

    async def run() -> list[Answer]:
        seats = asyncio.Semaphore(at_once)

        async def one(number: int, question: Question) -> Answer:
            async with seats:
                return await _ask(endpoint, number, question)

        async with endpoint:
            tasks = [asyncio.create_task(one(*each)) for each in enumerate(questions)]
            try:
                return await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(run())


async def _ask(endpoint: GuardedEndpoint, number: int, question: Question) -> Answer:
    now = now_ns()
    record = RequestRecord(number, now, 0, question.output, sent=now, text=[])
    prepared = endpoint.prepare(Outgoing(question.prompt, question.output, False))
    work = asyncio.create_task(endpoint.send(prepared, record))
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await (work if question.leave_after is None else _leave(work, record, question))
    except Failed as failure:
        if failure.kind != EMPTY:
            record.error, record.detail = failure.kind, failure.detail
    except TimeoutError:
        record.error = "timeout"
        record.detail = f"not answered in full within {TIMEOUT_S:g} s"
    finally:
        if not work.done():
            record.finish_reason = INTERRUPTED
            work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        record.ended = now_ns()
    text = "".join(record.text or ())
    return Answer(text, record.error, record.detail, record.prompt_tokens, record.output_tokens)


async def _leave(work: asyncio.Task[None], record: RequestRecord, question: Question) -> None:
    """Go away in the middle of the answer, or when it has ended before."""
    while not work.done() and len(record.events) < (question.leave_after or 0):
        await asyncio.wait({work}, timeout=0.005)
    if work.done():
        work.result()
