"""Who answers a load: the engine in this process, or nobody. Endpoints are in endpoint.py.

A target is entered once a run, on that run's event loop, and then sends many requests at a
time. It fills in the record of each, and raises Failed for what is to be counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

from engine.errors import EngineError
from engine.request import FinishReason, SamplingParams
from engine.stream import Stream
from playbooks.load.prompts import PromptMaker, TextPrompts, TokenPrompts, plain_ids
from playbooks.load.record import RequestRecord, now_ns

if TYPE_CHECKING:
    from engine.core import Engine

FAILURES = (FinishReason.ERROR, FinishReason.REJECTED, FinishReason.TIMEOUT)


class Failed(Exception):
    """One request failed; `kind` is what failures are counted by."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind, self.detail = kind, detail


class TargetUnreachable(EngineError):
    """Nobody answers at the target's address."""


class NoMore(EngineError):
    """Nothing more is to be sent to the target: it has had what it was to get."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One request as it will be sent."""

    prompt: str | list[int]
    output: int
    """Most tokens that come back."""
    ignore_eos: bool
    """Exactly so many come back."""


class Target(Protocol):
    @property
    def limit(self) -> int | None:
        """Longest prompt and output together, in tokens; None: not known."""

    def describe(self) -> dict[str, Any]: ...

    def prompts(self, seed: int, shared: int) -> PromptMaker: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    def prepare(self, request: Outgoing) -> Any:
        """What `send` takes; made before the request is due."""

    async def send(self, prepared: Any, record: RequestRecord) -> None:
        """Wait for the whole answer. Cancelling it gives the request up at the target too."""


class NullTarget:
    """Answers at once, with one token: what is measured is the load generator itself."""

    limit: int | None = None

    def describe(self) -> dict[str, Any]:
        return {"kind": "null"}

    def prompts(self, seed: int, shared: int) -> PromptMaker:
        return TextPrompts(seed, shared)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def prepare(self, request: Outgoing) -> Outgoing:
        return request

    async def send(self, prepared: Outgoing, record: RequestRecord) -> None:
        record.events.append(now_ns())
        record.prompt_tokens, record.output_tokens = record.prompt_asked, 1
        record.finish_reason = FinishReason.LENGTH.value


class EmbeddedTarget:
    """The engine in this process, which must be running.

    Token times are the engine's own. Its thread is held up by one call per token that looks
    whether the request has ended; the loop is woken once for all that end in one step.
    """

    def __init__(self, engine: Engine, source: str = "load") -> None:
        self.engine = engine
        self._source = source
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: deque[asyncio.Future[None]] = deque()
        self._woken = False

    @property
    def limit(self) -> int | None:
        pool = self.engine.pool
        return min(self.engine.scheduler.max_model_len, pool.total * pool.page_tokens)

    def describe(self) -> dict[str, Any]:
        engine = self.engine
        return {
            "kind": "embedded",
            "model": engine.loaded.spec.name,
            "device": engine.device,
            "kernels": engine.backend.name,
            "config": engine.config.to_dict(),
        }

    def prompts(self, seed: int, shared: int) -> PromptMaker:
        loaded = self.engine.loaded
        return TokenPrompts(
            plain_ids(loaded.spec.vocab, loaded.tokenizer.special_ids), seed, shared
        )

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._woken = False
        self._ended.clear()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._loop = None

    def prepare(self, request: Outgoing) -> tuple[str | list[int], SamplingParams]:
        params = SamplingParams(max_tokens=request.output, ignore_eos=request.ignore_eos)
        return request.prompt, params

    async def send(
        self, prepared: tuple[str | list[int], SamplingParams], record: RequestRecord
    ) -> None:
        """Raises EngineStopped when the engine takes nothing more."""
        prompt, params = prepared
        stream = self.engine.submit(
            prompt, params, source=self._source, arrival_ns=record.scheduled
        )
        ended = asyncio.get_running_loop().create_future()
        stream.listen(lambda: self._look(stream, ended))
        try:
            await ended
        except asyncio.CancelledError:
            self.engine.cancel(stream.request_id)
            raise
        finally:
            _read(stream, record)
        _raise_failure(record)

    def _look(self, stream: Stream, ended: asyncio.Future[None]) -> None:
        """In the engine's thread."""
        if not stream.closed:
            return
        self._ended.append(ended)
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError, AttributeError):  # the run is over
                self._loop.call_soon_threadsafe(self._settle)  # type: ignore[union-attr]

    def _settle(self) -> None:
        self._woken = False  # before looking: what ends from here on wakes the loop again
        while self._ended:
            ended = self._ended.popleft()
            if not ended.done():
                ended.set_result(None)


def _read(stream: Stream, record: RequestRecord) -> None:
    """Take over what the engine knows of a request, ended or not."""
    event = stream.poll()
    assert stream.stamps is not None
    ended = event is not None and event.finish_reason is not None
    tokens = stream.stamps.tokens
    record.stamps, record.events = stream.stamps, tokens if ended else tokens[:]
    record.prompt_tokens, record.output_tokens = stream.prompt_tokens, len(record.events)
    if ended:
        assert event is not None and event.finish_reason is not None
        record.finish_reason, record.detail = event.finish_reason.value, event.error


def _raise_failure(record: RequestRecord) -> None:
    detail = record.detail or "no reason given"
    if record.finish_reason in FAILURES:
        raise Failed(str(record.finish_reason), detail)
    if record.finish_reason == FinishReason.CANCELLED and record.detail:
        raise Failed("engine_stopped", detail)
