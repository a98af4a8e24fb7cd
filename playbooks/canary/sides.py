"""The two sides of a canary: engines in this process, or endpoints by URL, behind one face."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import psutil

from engine.core import Engine
from engine.errors import EngineError, EngineStopped
from engine.models import LoadedModel
from engine.observing.machine import available_memory
from engine.remote.answer import ENDS, text_of
from engine.request import FinishReason, SamplingParams
from engine.snapshot import Snapshot, SourceState
from playbooks.canary.evidence import Gauge
from playbooks.canary.fair_scheduler import FairScheduler
from playbooks.load.endpoint import Endpoint
from playbooks.load.record import RequestRecord, now_ns
from playbooks.load.targets import EmbeddedTarget, Failed, Target
from playbooks.quality.cases import plain_text, prompt_tokens

ASK_S = 120.0
"""A golden or marked prompt that is not answered by then has failed."""
SOURCE = "canary"


@dataclass(frozen=True)
class Said:
    """What a side answered to one prompt."""

    text: str
    token_ids: tuple[int, ...]
    """Of an endpoint: its words, by number, because it tells no ids."""
    stopped: bool


@dataclass(frozen=True)
class Ask:
    """A chat, and how many tokens come back at most."""

    messages: tuple[dict[str, str], ...]
    tokens: int
    ignore_eos: bool = False


class Side(ABC):
    """Entered before it is asked anything."""

    name: str
    target: Target

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def describe(self) -> dict[str, Any]:
        return self.target.describe()

    async def answers(self, asks: Sequence[Ask], together: bool) -> list[Said | None]:
        """Greedy answers in order, all at once or one after another; None where one failed."""
        if together:
            return list(await asyncio.gather(*map(self._answer, asks)))
        return [await self._answer(ask) for ask in asks]

    @abstractmethod
    async def _answer(self, ask: Ask) -> Said | None: ...

    @abstractmethod
    async def gauges(self) -> list[Gauge]:
        """What could run out, as it stands now; empty where nobody can tell."""

    async def left(self) -> int | None:
        """What requests still hold when none is open; None: not known."""
        return None

    def held_ns(self, start: int, end: int) -> int:
        """How long it stood back for the other side between two moments, in ns: not at all where
        each has its own machine, as far as we know."""
        return 0


class EmbeddedSide(Side):
    """An engine that `turns` steps. `shows_process`: its gauges include the process itself."""

    def __init__(
        self, name: str, engine: Engine, turns: FairScheduler, shows_process: bool = True
    ) -> None:
        self.name, self.engine, self._turns = name, engine, turns
        self._shows_process = shows_process
        self.target: Target = _Live(engine, SOURCE)
        self._process = psutil.Process()

    @property
    def loaded(self) -> LoadedModel:
        return self.engine.loaded

    async def _answer(self, ask: Ask) -> Said | None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        params = SamplingParams(ask.tokens, ignore_eos=ask.ignore_eos)
        try:
            stream = self.engine.submit(self._prompt(ask), params, source=SOURCE)
        except EngineStopped:
            return None
        stream.listen(lambda: _wake(loop, ended) if stream.closed else None)
        try:
            async with asyncio.timeout(ASK_S):
                await ended.wait()
        except BaseException as error:
            self.engine.cancel(stream.request_id)
            if isinstance(error, TimeoutError):
                return None
            raise
        event = stream.poll()
        assert event is not None
        if event.error is not None or not event.token_ids:
            return None
        return Said(event.text, event.token_ids, event.finish_reason is FinishReason.STOP)

    def _prompt(self, ask: Ask) -> list[int]:
        """Here and now: these prompts are short, and a thread is not worth its while."""
        return prompt_tokens(ask.messages, self.loaded.tokenizer)

    async def gauges(self) -> list[Gauge]:
        """KV memory that no request owns, which is exact, and what the process holds."""
        ledger = await self._ledger()
        cache = self.engine.cache
        layers, layout = len(cache.layers), cache.layout
        lost = ledger.unowned.get("pages", 0) * layout.page_bytes * layers
        lost += ledger.unowned.get("slabs", 0) * layout.slab_bytes * layers
        found = [Gauge("KV memory that nobody owns", max(lost, 0), cache.bytes, exact=True)]
        if self._shows_process:
            rss = self._process.memory_info().rss
            room = rss + available_memory()
            found.append(Gauge("resident memory of the process", rss, room))
        return found

    async def left(self) -> int | None:
        return sum((await self._ledger()).totals.values())

    def held_ns(self, start: int, end: int) -> int:
        return self._turns.held_ns(self.name, start, end)

    async def _ledger(self) -> Any:
        return await self._turns.call(self.engine.loop.ledger)


class _Live(EmbeddedTarget):
    """An engine that has died fails its requests; it does not end the traffic of the other."""

    async def send(self, prepared: Any, record: RequestRecord) -> None:
        try:
            await super().send(prepared, record)
        except EngineStopped as error:
            raise Failed("engine_stopped", str(error)) from error


def _wake(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop is over
        loop.call_soon_threadsafe(ended.set)


class EndpointSide(Side):
    """An OpenAI-compatible endpoint. `scrape`: where its Snapshots come from, if not from its
    metrics page."""

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        scrape: Callable[[], Awaitable[Snapshot | None]] | None = None,
    ) -> None:
        self.name, self.endpoint = name, endpoint
        self.target: Target = endpoint
        self._scrape = scrape or self._from_metrics
        self._meter: Any = None
        self._words: dict[str, int] = {}

    async def __aenter__(self) -> Self:
        """Raises TargetUnreachable when nobody answers."""
        await self.endpoint.__aenter__()
        return self

    async def __aexit__(self, *details: Any) -> None:
        await self.endpoint.__aexit__(*details)
        if self._meter is not None:
            self._meter.stop()

    async def _answer(self, ask: Ask) -> Said | None:
        asked: dict[str, Any] = {"max_tokens": ask.tokens}
        if self.endpoint.spec.chat:
            asked["messages"] = list(ask.messages)
        else:
            asked["prompt"] = plain_text(ask.messages)
        now = now_ns()
        record = RequestRecord(0, now, 0, ask.tokens, sent=now)
        try:
            async with asyncio.timeout(ASK_S):
                text = text_of(await self.endpoint.whole(asked, record))
        except (Failed, TimeoutError):
            return None
        if not text or record.finish_reason is None:
            return None
        ids = tuple(self._words.setdefault(word, len(self._words)) for word in text.split())
        stopped = ENDS[record.finish_reason.lower()] is FinishReason.STOP
        return Said(text, ids or (0,), stopped)

    async def gauges(self) -> list[Gauge]:
        """What the endpoint's metrics say of its KV cache and its process."""
        snapshot = await self._scrape()
        if snapshot is None:
            return []
        found = []
        rss, available = snapshot.memory.rss_bytes, snapshot.memory.available_bytes
        if rss is not None and available is not None:
            found.append(Gauge("resident memory", rss, rss + available))
        if snapshot.kv.usage is not None:
            found.append(Gauge("KV cache in use", snapshot.kv.usage, 1.0, "of all"))
        return found

    async def _from_metrics(self) -> Snapshot | None:
        """The endpoint's Snapshot; None where it exports none that we can read."""

        def poll() -> Snapshot:
            if self._meter is None:
                from engine.remote import attach

                spec = self.endpoint.spec
                self._meter = attach(spec.base, spec.key)
            found: Snapshot = self._meter.poll()
            return found

        try:
            snapshot = await asyncio.to_thread(poll)
        except (EngineError, OSError):
            return None
        return snapshot if snapshot.source.state is SourceState.LIVE else None
