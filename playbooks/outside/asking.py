"""Questions to a target, and its answers: streamed as a client has them, or in one piece."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from playbooks.load.loop import new_loop
from playbooks.load.record import EMPTY, INTERRUPTED, RequestRecord, now_ns
from playbooks.load.targets import Failed, Outgoing
from playbooks.outside.traffic import REFUSALS, TOO_LONG, GuardedEndpoint

TIMEOUT_S = 120.0
Asked = TypeVar("Asked")
Said = TypeVar("Said")


@dataclass(frozen=True)
class Question:
    prompt: str
    output: int
    leave_after: int | None = None
    """Tokens after which the client goes away; None: it stays to the end."""
    may_be_too_long: bool = False
    """Its length in tokens is not known: the target may say that it takes no such prompt."""


@dataclass(frozen=True)
class Answer:
    text: str
    error: str | None = None
    detail: str | None = None
    prompt_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True)
class Whole:
    """An answer in one piece."""

    choice: Mapping[str, Any] | None = None
    """As the API has it; None where it failed."""
    error: str | None = None
    detail: str | None = None

    @property
    def refused(self) -> bool:
        """The target says that it does not do such a thing: no failure."""
        return self.error in REFUSALS


def ask(endpoint: GuardedEndpoint, questions: Sequence[Question], at_once: int) -> list[Answer]:
    """Their answers, greedily, in the order of the questions, up to `at_once` at a time.

    A request that fails is an answer with an error. Raises GuardTripped, and EngineError when
    nobody answers at the address.
    """
    return _all(endpoint, questions, at_once, _ask)


def ask_whole(
    endpoint: GuardedEndpoint, asked: Sequence[Mapping[str, Any]], at_once: int
) -> list[Whole]:
    """The same for answers in one piece, to fields of the API: a prompt or messages, max_tokens,
    and others."""
    return _all(endpoint, asked, at_once, _ask_whole)


def _all(
    endpoint: GuardedEndpoint, asked: Sequence[Asked], at_once: int,
    one: Callable[[GuardedEndpoint, int, Asked], Awaitable[Said]],
) -> list[Said]:  # fmt: skip
    async def run() -> list[Said]:
        seats = asyncio.Semaphore(at_once)

        async def seated(number: int, question: Asked) -> Said:
            async with seats:
                return await one(endpoint, number, question)

        async with endpoint:
            tasks = [asyncio.create_task(seated(*each)) for each in enumerate(asked)]
            try:
                return await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()

    if not asked:
        return []
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(run())


async def _ask(endpoint: GuardedEndpoint, number: int, question: Question) -> Answer:
    now = now_ns()
    words = len(question.prompt.split())
    record = RequestRecord(number, now, words, question.output, sent=now, text=[])
    prepared = endpoint.prepare(Outgoing(question.prompt, question.output, False))
    refusals = TOO_LONG if question.may_be_too_long else ()
    work = asyncio.create_task(endpoint.send(prepared, record, refusals))
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
    text, record.text = "".join(record.text or ()), None  # the journal keeps the record
    return Answer(text, record.error, record.detail, record.prompt_tokens, record.output_tokens)


async def _leave(work: asyncio.Task[None], record: RequestRecord, question: Question) -> None:
    """Go away in the middle of the answer, or when it has ended before."""
    while not work.done() and len(record.events) < (question.leave_after or 0):
        await asyncio.wait({work}, timeout=0.005)
    if work.done():
        work.result()


async def _ask_whole(endpoint: GuardedEndpoint, number: int, asked: Mapping[str, Any]) -> Whole:
    now = now_ns()
    record = RequestRecord(number, now, 0, int(asked["max_tokens"]), sent=now)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return Whole(await endpoint.whole(asked, record))
    except Failed as failure:
        record.error, record.detail = failure.kind, failure.detail
    except TimeoutError:
        record.error, record.detail = "timeout", f"not answered within {TIMEOUT_S:g} s"
    finally:
        record.ended = now_ns()
    return Whole(None, record.error, record.detail)
