"""Soak: many short requests, storms of cancellations and refusals, and nothing may be left.

Waves of requests come and go, every third of them cancelled on its way. Between two waves the
engine is idle and is looked at: pages, containers, objects, memory. Slopes are per request
served, by Theil and Sen, with their interval. Then the storms, one kind at a time: afterwards
the ledger is empty and the pool whole.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from engine.core import Engine
from engine.errors import EngineError
from engine.request import FinishReason, SamplingParams
from engine.stream import Stream
from playbooks.diagnosis import Growth
from playbooks.measure.leak_detector import Look, growth, look, objects, slope
from playbooks.measure.witnessed import host_report, witness_of
from playbooks.steps import Progress
from playbooks.steps.models import SoakStep

SCHEMA = 1
PROMPT, OUTPUT = 6, 3
"""Tokens: too few to fill a page, so that the prefix cache stays out of it."""
LONG = 64
"""Of those that are cancelled on their way."""
WARM_UP_WAVES = 2
CANCEL_EVERY = 3
"""Of the requests of a wave one in so many is cancelled."""
ANSWER_S = 120.0
STORM = 24
TIMEOUT_S = 0.002


@dataclass
class Storm:
    """One kind of trouble, and what it left."""

    name: str
    sent: int = 0
    ended: dict[str, int] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    pool: str | None = None
    """What does not add up in the pool; None: it is whole."""

    @property
    def clean(self) -> bool:
        return not self.left and self.pool is None


def run_soak(
    engine: Engine, spec: SoakStep, progress: Progress = lambda *_: None
) -> dict[str, Any]:
    """On a running engine that nobody else uses. Raises EngineError when it stops."""
    start = time.monotonic()
    soak = _Soak(engine, spec, progress)
    with witness_of(engine) as witness:
        soak.waves()
        grown = growth(soak.looks, soak.classes)
        storms = list(soak.storms()) if spec.storms else []
    for storm in storms:
        grown += [Growth(name, "ledger", n / storm.sent) for name, n in storm.left.items()
                  if name not in {g.what for g in grown}]  # fmt: skip
    clean = not grown and all(storm.clean for storm in storms)
    progress(soak.total, soak.total)
    return {
        "schema": SCHEMA,
        "kind": "soak",
        "verdict": "pass" if clean else "fail",
        "model": engine.loaded.spec.name,
        "config": engine.config.to_dict(),
        "work": asdict(spec) | {"cancel_every": CANCEL_EVERY},
        "served": soak.served,
        "slopes": slopes(soak.looks),
        "grew": [asdict(one) for one in grown],
        "held": soak.held,
        "storms": [asdict(storm) | {"clean": storm.clean} for storm in storms],
        "looks": [_row(look) for look in soak.looks],
        "host": host_report([witness.evidence]),
        "seconds": round(time.monotonic() - start, 1),
    }


def grown_of(report: dict[str, Any]) -> tuple[Growth, ...]:
    """The findings of a report as evidence; a broken pool is one too."""
    broken = [s for s in report["storms"] if s["pool"] is not None]
    rows = [Growth(**row) for row in report["grew"]]
    return (*rows, *(Growth(f"pool after {s['name']}: {s['pool']}", "ledger", 0.0)
                     for s in broken))  # fmt: skip


def slopes(looks: list[Look]) -> dict[str, Any]:
    """Per request served; low and high None where there are too few looks."""
    columns: dict[str, list[float | None]] = {
        "rss_bytes": [look.rss for look in looks],
        "allocated_bytes": [look.allocated for look in looks],
        "reserved_bytes": [look.reserved for look in looks],
        "idle_pages": [look.pages for look in looks],
        "container_entries": [sum(look.containers.values()) for look in looks],
    }
    found: dict[str, Any] = {}
    for name, values in columns.items():
        known = [float(v) for v in values if v is not None]
        one = slope(looks, known, name, "memory") if len(known) == len(values) else None
        found[name] = None if one is None else {"per_request": one.per_request, "low": one.low}
    return found


def _row(look: Look) -> dict[str, Any]:
    row = asdict(look)
    row["containers"] = sum(look.containers.values())
    return row


class _Soak:
    def __init__(self, engine: Engine, spec: SoakStep, progress: Progress) -> None:
        self.engine, self.spec, self._progress = engine, spec, progress
        self.served = 0
        self.looks: list[Look] = []
        self.held: dict[str, dict[str, int]] = {}
        """What requests hold by class: before, during and after a wave."""
        self.classes: list[tuple[int, Counter[str]]] = []
        self._rng = np.random.default_rng(spec.seed)
        self.total = spec.wave * spec.waves + (4 * STORM if spec.storms else 0)
        """Requests as planned; a soak by time serves more."""

    # --- waves ------------------------------------------------------------------------------

    def waves(self) -> None:
        spec = self.spec
        for _ in range(WARM_UP_WAVES):
            self.held["before"] = self.engine.ledger().totals
            self._wave(min(spec.wave, STORM))
            self.held["after"] = self.engine.ledger().totals
        self.served = 0
        end = None if spec.duration_s is None else time.monotonic() + spec.duration_s
        done = 0
        while done < spec.waves or (end is not None and time.monotonic() < end):
            self._wave(spec.wave)
            done += 1
            self.looks.append(look(self.engine, self.served))
            if end is not None or done in (1, (spec.waves + 1) // 2, spec.waves):
                self._note_classes()

    def _note_classes(self) -> None:
        """The first and the three latest: a long run keeps no more than it needs."""
        if len(self.classes) > 3:
            del self.classes[1]
        self.classes.append((self.served, objects()))

    def _wave(self, count: int) -> None:
        short = SamplingParams(max_tokens=OUTPUT, ignore_eos=True)
        long = SamplingParams(max_tokens=LONG, ignore_eos=True)  # they are still there to cancel
        every = CANCEL_EVERY
        streams = [self._send(PROMPT, short if (i + 1) % every else long) for i in range(count)]
        streams[0].next(ANSWER_S)
        self.held.setdefault("during", self.engine.ledger().totals)
        for i, stream in enumerate(streams):
            if (i + 1) % every == 0:
                if i % 2:
                    stream.next(ANSWER_S)  # on its way, with pages; the others may still wait
                self.engine.cancel(stream.request_id)
        self._wait(streams)

    def _send(self, prompt: int, params: SamplingParams, timeout: float | None = None) -> Stream:
        vocab = self.engine.loaded.spec.vocab
        ids = self._rng.integers(0, vocab, prompt).tolist()
        return self.engine.submit(ids, params, source="soak", timeout_s=timeout)

    def _wait(self, streams: list[Stream]) -> Counter[str]:
        """Until all have ended; how, as far as it was not read on the way already."""
        ended: Counter[str] = Counter()
        for stream in streams:
            if not stream.finished:
                ended[str(self._end_of(stream))] += 1
            self.served += 1
            self._progress(min(self.served, self.total - 1), self.total)  # not at its end yet
        return ended

    def _end_of(self, stream: Stream) -> FinishReason | None:
        try:
            return stream.result(ANSWER_S).finish_reason
        except TimeoutError as error:
            raise EngineError(f"soak: {error}; the engine does not go on") from error

    # --- storms -----------------------------------------------------------------------------

    def storms(self) -> Iterator[Storm]:
        for name, send in (
            ("cancel storm", self._cancel_storm),
            ("timeout storm", self._timeout_storm),
            ("oversized prompts", self._oversized),
            ("shared-prefix exhaustion", self._prefix_exhaustion),
        ):
            before = self.engine.ledger().totals
            streams = send()
            storm = Storm(name, len(streams), dict(self._wait(streams)))
            after = self.engine.ledger().totals
            storm.left = {k: n - before[k] for k, n in after.items() if n > before[k]}
            storm.pool = self._broken_pool()
            yield storm

    def _cancel_storm(self) -> list[Stream]:
        """Cancelled while they wait, in the prompt, while they write, and twice."""
        params = SamplingParams(max_tokens=LONG, ignore_eos=True)
        streams = [self._send(PROMPT * (1 + i % 6), params) for i in range(STORM)]
        for i, stream in enumerate(streams):
            if i % 3 == 1:
                stream.next(ANSWER_S)
            for _ in range(1 + i % 2):
                self.engine.cancel(stream.request_id)
        return streams

    def _timeout_storm(self) -> list[Stream]:
        params = SamplingParams(max_tokens=LONG, ignore_eos=True)
        return [self._send(PROMPT, params, TIMEOUT_S * (1 + i % 8)) for i in range(STORM)]

    def _oversized(self) -> list[Stream]:
        """Longer than the model takes, and longer than the pool."""
        longest = self.engine.scheduler.max_model_len
        room = self.engine.pool.total * self.engine.pool.page_tokens
        params = SamplingParams(max_tokens=OUTPUT, ignore_eos=True)
        sizes = (longest, longest + 1, min(room, longest) + longest)
        return [self._send(sizes[i % 3], params) for i in range(STORM // 2)]

    def _prefix_exhaustion(self) -> list[Stream]:
        """Many that begin alike and go on differently, more at once than the pool has room for."""
        pool, longest = self.engine.pool, self.engine.scheduler.max_model_len
        common = self._rng.integers(0, self.engine.loaded.spec.vocab, 2 * pool.page_tokens).tolist()
        output = max(min(OUTPUT, longest - len(common) - 4), 1)
        params = SamplingParams(max_tokens=output, ignore_eos=True)
        count = min(2 * STORM, max(pool.total // 2, 8))
        streams = [
            self.engine.submit([*common[: longest - output - 2], i % 100], params, source="soak")
            for i in range(count)
        ]
        for stream in streams[::4]:
            self.engine.cancel(stream.request_id)
        return streams

    def _broken_pool(self) -> str | None:
        """At idle nobody changes it, so it may be looked at from here."""
        try:
            self.engine.scheduler.check_integrity()
        except AssertionError as error:
            return str(error)
        return None
