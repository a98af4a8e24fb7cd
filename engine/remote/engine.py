"""RemoteEngine: an external engine with the surface of the embedded one.

It polls on a thread of its own and keeps the last good numbers, with a state, an age and a
reason for when they are not of now. What only the inside of an engine can do raises
NotAvailable.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import httpx

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.observing.objectives import Objective
from engine.observing.watchable import MEASURE, Reach
from engine.remote.adapters import NAMES, by_name
from engine.remote.adapters.base import Adapter
from engine.remote.chat import Chat
from engine.remote.client import Client
from engine.remote.controls import OutOfReach
from engine.remote.diary import Diary
from engine.remote.errors import NotAvailable, Trouble, Unparsable, Unreachable
from engine.remote.metrics import view
from engine.remote.metrics.numbers import Numbers
from engine.remote.probe import Card, Found, Probe
from engine.remote.tracker import Tracker
from engine.request import SamplingParams
from engine.snapshot import EngineInfo, Event, Snapshot, Source, SourceState
from engine.stream import Stream

log = logging.getLogger(__name__)
INTERVAL_S = 1.0
STALL_S = 30.0
"""Requests are in the engine and no counter moves for so long: the alarm says so."""
KEPT = 900
"""Snapshots of the past that `series` gives."""

Prompt = str | list[dict[str, str]] | list[int]


class RemoteEngine(OutOfReach):
    """Made by `attach`. Methods may be called from any thread.

    `clock` is Unix seconds, `monotonic` seconds for rates; both are for tests.
    """

    def __init__(
        self,
        client: Client,
        *,
        name: str | None = None,
        group: str | None = None,
        expected: str | None = None,
        interval_s: float = INTERVAL_S,
        cap: int | None = None,
        model: str | None = None,
        objectives: Sequence[Objective] = (),
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url = client.url
        self.name = name or client.url.partition("://")[2]
        self.group = group
        self.interval_s = interval_s
        self._client, self._probe = client, Probe(client, expected, model)
        self._expected = expected
        self._models: tuple[str, ...] = ()
        self._cap, self._clock, self._monotonic = cap, clock, monotonic
        self._objectives = tuple(objectives)
        self._tracker = Tracker()
        self._adapter: Adapter | None = by_name(expected) if expected else None
        self._card = Card()
        self._numbers: Numbers | None = None
        self._misses = 0
        self._diary = Diary(clock)
        self._good = Snapshot(time=clock())
        self._state = SourceState.STALE
        self._reason: str | None = "not asked yet"
        self._seq = 0
        self._kept: deque[Snapshot] = deque(maxlen=KEPT)
        self._lock, self._polling = threading.RLock(), threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._chats: dict[str, Chat] = {}

    # what it is

    @property
    def config(self) -> EngineConfig:
        return EngineConfig(model=self.model or self.name)

    @property
    def model(self) -> str | None:
        """As its API or its metrics call it."""
        return self._probe.model or self._card.model or self._good.engine.model

    @property
    def models(self) -> tuple[str, ...]:
        """All on its metrics page; the numbers are of one."""
        return self._models

    def divide(self) -> list[RemoteEngine]:
        """Engines for the other models on its page, once; this one stays with the first."""
        if self._probe.model is not None or len(self._models) < 2:
            return []
        self._probe.model, *others = self._models
        return [self._beside(model) for model in others]

    def _beside(self, model: str) -> RemoteEngine:
        return RemoteEngine(
            self._client,
            name=f"{self.name} {model}",
            group=self.group,
            expected=self._expected,
            interval_s=self.interval_s,
            model=model,
            objectives=self._objectives,
            clock=self._clock,
            monotonic=self._monotonic,
        )

    @property
    def reach(self) -> Reach | None:
        return self._client.reach

    @property
    def stale_after_s(self) -> float:
        """Age at which a live number would be an old one, in s."""
        return max(super().stale_after_s, 2.5 * self.interval_s)

    @property
    def loading(self) -> str:
        """What the console says until the first answer."""
        return f"the metrics of {self.name}"

    @property
    def engine(self) -> str | None:
        """The engine found: vllm, sglang, …"""
        return self._adapter.name if self._adapter else None

    @property
    def title(self) -> str:
        return self._adapter.title if self._adapter else "an unknown engine"

    @property
    def cannot_know(self) -> tuple[str, ...]:
        """What this engine does not tell, in words."""
        return self._adapter.cannot_know if self._adapter else ()

    def version(self) -> str | None:
        """As the server says; asks for it. None where it says none, or was never seen."""
        return None if self._adapter is None else self._probe.ask_version(self._adapter)

    @property
    def restarts(self) -> int:
        """How often its counters began again since we watch."""
        return self._tracker.restarts

    @property
    def numbers(self) -> Numbers | None:
        """The latest in a form that merges with others'; None while it is not live."""
        with self._lock:
            return self._numbers if self._state is SourceState.LIVE else None

    @property
    def counted(self) -> Numbers | None:
        """The latest that there ever was, live or not: its counters stay counted."""
        with self._lock:
            return self._numbers

    # life

    def start(self) -> None:
        """Ask once, then go on asking on a thread. A target that is down is no error: it is
        watched until it is up."""
        if self._thread is None:
            self.poll()
            self._ended.clear()
            self._thread = threading.Thread(target=self._live, name="remote", daemon=True)
            self._thread.start()

    def _live(self) -> None:
        while not self._ended.wait(self.interval_s):
            self.poll()

    def stop(self) -> None:
        self._ended.set()
        for chat in list(self._chats.values()):
            chat.cancel()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=1.0)
        if thread is None or not thread.is_alive():
            self._client.close()

    # numbers

    def poll(self) -> Snapshot:
        """Scrape once, now. What goes wrong is in the Snapshot's source, not raised."""
        with self._polling:
            try:
                self._took(self._probe.scrape())
            except Trouble as trouble:
                self._failed(trouble)
            except Exception as error:  # one bad look ends no watch, and hides no other target
                log.exception("polling %s", self.url)
                self._failed(Unparsable(f"not understood ({type(error).__name__})"))
        return self.snapshot()

    def snapshot(self) -> Snapshot:
        """The latest, with its age as of now; the last good numbers while there are no new."""
        with self._lock:
            now = self._clock()
            age = max(0.0, now - self._good.time)
            source = Source(self._state, self.engine or "unknown", self.url, age, self._reason)
            inner = self._good.source
            if self._state is SourceState.LIVE and inner.state is not SourceState.LIVE:
                # EveWatch says of itself that its numbers are old.
                source = replace(source, state=inner.state, age_s=inner.age_s, reason=inner.reason)
            events = self._diary.with_those(self._good.events)
            return replace(self._good, source=source, events=events)

    def series(self) -> tuple[Snapshot, ...]:
        """The live Snapshots of the recent past, the oldest first."""
        with self._lock:
            return tuple(self._kept)

    def _failed(self, trouble: Trouble) -> None:
        with self._lock:
            self._misses += 1
            state = trouble.state
            hiccup = isinstance(trouble, Unreachable) and not trouble.certain
            if hiccup and self._misses == 1 and self._seq:
                state = SourceState.STALE
            if state is not self._state:
                self._say("error", f"{state.value.replace('_', ' ')}: {trouble}")
            self._state, self._reason = state, str(trouble)

    def _took(self, found: Found) -> None:
        with self._lock:
            now = self._clock()
            restarts, before = self._tracker.restarts, self._numbers
            if self._cap is not None and found.scrape.cap is None:
                found.scrape.cap = float(self._cap)
            numbers = self._tracker.push(found.scrape, self._monotonic())
            self._greet(found, now)
            self._diary.changed(self._tracker.restarts > restarts, before, numbers)
            self._adapter, self._card = found.adapter, self._probe.card or Card()
            self._numbers, self._misses, self._models = numbers, 0, found.scrape.models
            self._state, self._reason = SourceState.LIVE, None
            self._seq += 1
            if found.own is not None:
                own = found.own
                good = replace(own, seq=self._seq, time=now - own.source.age_s)
            else:
                good = self._view(found, numbers, now)
            since = None if self.restarts else found.scrape.started
            counted = view.objectives(numbers, self._objectives, since)
            self._good = replace(good, objectives=counted)
            self._kept.append(self.snapshot())

    def _view(self, found: Found, numbers: Numbers, now: float) -> Snapshot:
        scrape, gauges = found.scrape, found.scrape.gauges
        info = EngineInfo(
            model=scrape.model,
            note=view.note(scrape.notes, numbers),
            max_model_len=self._card.max_model_len,
            uptime_s=max(0.0, now - scrape.started) if scrape.started else None,
            alarm=self._alarm(numbers),
        )
        return view.snapshot(numbers, gauges, info, self._seq, now)

    def _alarm(self, numbers: Numbers) -> str | None:
        inside = (numbers.running or 0) + (numbers.waiting or 0)
        still = self._monotonic() - self._tracker.progress
        if not inside or still < STALL_S or "output_tokens" not in numbers.totals:
            return None
        return f"{inside:.0f} requests are in the engine and no token came for {still:.0f} s"

    def _greet(self, found: Found, now: float) -> None:
        if not self._seq:
            self._diary.found(found.adapter, self.url)
        elif self._state is not SourceState.LIVE:
            self._say("info", f"live again after {now - self._good.time:.0f} s")
        if self._adapter is not None and found.adapter.name != self._adapter.name:
            self._say("info", f"another engine answers: {found.adapter.title}")

    def _say(self, kind: str, text: str) -> None:
        self._diary.say(kind, text)

    def happened(self, since: int = 0) -> tuple[int, tuple[Event, ...]]:
        """Events after the first `since`, as far as they are kept, and how many there were."""
        with self._lock:
            return self._diary.since(since)

    # requests

    def submit(
        self,
        prompt: Prompt,
        params: SamplingParams,
        *,
        source: str = "console",
        timeout_s: float | None = None,
    ) -> Stream:
        """Ask over the OpenAI API; the answer streams on a thread of its own.

        Raises NotAvailable where the engine has no such API.
        """
        if not self._chats_with():
            raise NotAvailable(self.why_not("submit"))
        chat = Chat(self._client, self.model, prompt, params, timeout_s)
        self._chats[chat.stream.request_id] = chat
        chat.start(lambda: self._chats.pop(chat.stream.request_id, None))
        return chat.stream

    def cancel(self, request_id: str) -> None:
        """Of what this console asked; others' requests are out of reach."""
        chat = self._chats.get(request_id)
        if chat is not None:
            chat.cancel()

    # controls: the inside of an engine

    def why_not(self, control: str) -> str:
        """Why that control is not to be had from outside, "" if it is."""
        asks = control in ("submit", MEASURE)
        if control == "cancel" or (asks and self._chats_with()):
            return ""
        if asks:
            return f"{self.title} has no OpenAI API at the address of its metrics"
        return f"{self.name} is {self.title}: watched from outside, not changed"

    def _chats_with(self) -> bool:
        return self._adapter is None or self._adapter.chats


def attach(
    url: str,
    token: str | None = None,
    *,
    name: str | None = None,
    group: str | None = None,
    engine: str | None = None,
    interval_s: float = INTERVAL_S,
    cap: int | None = None,
    objectives: Sequence[Objective] = (),
    transport: httpx.BaseTransport | None = None,
    **clocks: Any,
) -> RemoteEngine:
    """Watch the engine at `url`; nothing is asked of it before `poll` or `start`.

    `engine` is the one expected there (any, when None), `group` the name that replicas of one
    service share, `cap` the batch cap where we know it and the engine does not tell; Snapshots
    count who meets the `objectives`.
    Raises ConfigError for an address or a name that cannot be.
    """
    if engine is not None and engine not in NAMES:
        raise ConfigError(f"engine {engine!r}: expected one of {', '.join(NAMES)}")
    if not interval_s > 0:
        raise ConfigError(f"interval: expected seconds above 0, got {interval_s:g}")
    client = Client(url, token, transport)
    return RemoteEngine(
        client, name=name, group=group, expected=engine, interval_s=interval_s, cap=cap,
        objectives=objectives, **clocks,
    )  # fmt: skip
