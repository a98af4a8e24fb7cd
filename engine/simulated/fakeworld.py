"""The scripted world behind FakeEngine: requests, a batch and pages in simulated time.

It follows the engine's rules (pages in exactly one state, preemption when none is left, a cap
that moves with the queue), so pictures made from it are possible ones. Seeded: the same script
gives the same world. No threads, no clock of its own.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil, pi, sin

from engine.request import FinishReason
from engine.snapshot import Event, Histogram, Percentiles
from engine.stream import Stream

DT = 0.1
"""Simulated seconds in one tick."""
PAGE_TOKENS = 16
PREFILL_TOKENS_PER_TICK = 96
LOWEST_CAP = 8
CAP_EVERY = 20
"""Ticks between moves of a dynamic cap."""
EDGES_MS = tuple(m * 10.0**e for e in range(6) for m in (1, 1.5, 2, 3, 5, 7))
WINDOW = 256
"""Finished requests that percentiles look back on."""
ANSWER = [
    "The",
    "queue",
    "is",
    "short",
    "and",
    "the",
    "pages",
    "are",
    "half",
    "full,",
    "so",
    "there",
    "is",
    "room.",
    "If",
    "it",
    "grows",
    "overnight,",
    "lower",
    "the",
    "arrival",
    "rate",
    "before",
    "you",
    "raise",
    "the",
    "cap:",
    "a",
    "larger",
    "batch",
    "makes",
    "every",
    "step",
    "slower,",
    "and",
    "the",
    "KV",
    "pages",
    "run",
    "out",
    "first.",
    "Write",
    "down",
    "what",
    "you",
    "changed",
    "and",
    "what",
    "it",
    "did.",
]


@dataclass(frozen=True)
class Script:
    """What happens. Rates per simulated second; lengths in tokens, (least, most)."""

    arrivals: float = 3.0
    wave: float = 0.5
    """How far arrivals swing around their mean, 0–1, every `period` seconds."""
    period: float = 40.0
    prompt: tuple[int, int] = (24, 220)
    output: tuple[int, int] = (32, 160)
    pages: int = 512
    cap: int = 32
    cap_max: int = 48
    most_waiting: int = 40
    """No arrivals while so many wait: the load follows the queue."""
    warm_s: float = 90.0
    """Simulated before the first Snapshot."""


@dataclass(eq=False)
class Job:
    id: str
    prompt: int
    max_tokens: int
    arrival: float
    source: str = "load"
    stream: Stream | None = None
    words: Sequence[str] = ()
    computed: int = 0
    output: int = 0
    progress: float = 0.0
    """Part of the next token."""
    pages: list[int] = field(default_factory=list)
    first_scheduled: float | None = None
    first_token: float | None = None
    preemptions: int = 0

    @property
    def tokens(self) -> int:
        return self.prompt + self.output

    @property
    def prefilling(self) -> bool:
        return self.computed < self.prompt


@dataclass(frozen=True)
class Done:
    """Of one finished request, seconds."""

    wait: float
    ttft: float
    tpot: float
    e2e: float


class World:
    def __init__(self, script: Script, seed: int, started: float) -> None:
        self.script = script
        self.began = self.now = started
        self.waiting: deque[Job] = deque()
        self.running: list[Job] = []
        self.states = ["f"] * script.pages
        self.free = list(range(script.pages))
        self.born = [started] * script.pages
        """When each page was taken."""
        self.bounds: deque[str] = deque(maxlen=round(60 / DT))
        """What bound the last minute's ticks."""
        self.cached: deque[int] = deque()
        self.cap, self.dynamic, self.paused = script.cap, True, False
        self.max_wait_ms, self.draining = 1000.0, False
        self.events: deque[Event] = deque(maxlen=50)
        self.finished: dict[str, int] = {}
        self.done: deque[Done] = deque(maxlen=WINDOW)
        self.arrived: deque[float] = deque(maxlen=WINDOW)
        self.ended: deque[float] = deque(maxlen=WINDOW)
        self.total = self.preemptions = self.ticks = 0
        self.output_tokens = self.prompt_tokens = 0
        self.tick_prefill = self.tick_decode = 0
        self.bound_by = "queue"
        self._random = random.Random(seed)

    def skip_to(self, now: float) -> None:
        """Let time pass without anything happening in it."""
        self.began += max(0.0, now - self.now)
        self.now = max(self.now, now)

    # what happens in a tick

    def tick(self) -> None:
        self.ticks += 1
        self.now = self.began + self.ticks * DT
        self._arrive()
        self._admit()
        self._prefill()
        self._decode()
        if self.running:
            self.bounds.append(self.bound_by)
        if self.dynamic and self.ticks % CAP_EVERY == 0:
            self._move_cap()

    def _arrive(self) -> None:
        swing = 1 + self.script.wave * sin(2 * pi * self.ticks * DT / self.script.period)
        comes = self._random.random() < self.script.arrivals * swing * DT
        if comes and not self.draining and len(self.waiting) < self.script.most_waiting:
            prompt = self._random.randint(*self.script.prompt)
            self.add(prompt, self._random.randint(*self.script.output), "load")

    def add(self, prompt: int, max_tokens: int, source: str, words: Sequence[str] = ()) -> Job:
        self.total += 1
        job = Job(f"r-{self.total}", prompt, max_tokens, self.now, source, words=words)
        self.waiting.append(job)
        self.arrived.append(self.now)
        return job

    def _admit(self) -> None:
        self.bound_by = "queue" if not self.waiting else "cap"
        while self.waiting and not self.paused and len(self.running) < self.cap:
            job = self.waiting[0]
            # A page of room for everybody who runs: fresh arrivals must not preempt at once.
            needed = ceil((job.tokens + 1) / PAGE_TOKENS) + len(self.running)
            if needed > len(self.free) + len(self.cached):
                self.bound_by = "kv"
                return
            self.waiting.popleft()
            if job.first_scheduled is None:
                job.first_scheduled = self.now
            self._grow(job, job.tokens + 1)
            self.running.append(job)

    def _prefill(self) -> None:
        budget = PREFILL_TOKENS_PER_TICK
        for job in self.running:
            take = min(budget, max(0, job.tokens - job.computed)) if job.prefilling else 0
            job.computed += take
            budget -= take
        self.tick_prefill = PREFILL_TOKENS_PER_TICK - budget
        self.prompt_tokens += self.tick_prefill

    def _decode(self) -> None:
        self.tick_decode = 0
        tpot = self.tpot
        for job in list(self.running):
            if job.prefilling or job not in self.running:
                continue
            job.progress += DT / tpot * self._random.uniform(0.8, 1.2)
            while job.progress >= 1 and job in self.running:
                job.progress -= 1
                self._token(job)

    @property
    def tpot(self) -> float:
        """Seconds a token at the present batch."""
        return 0.04 + 0.0009 * len(self.running)

    def _token(self, job: Job) -> None:
        job.output += 1
        job.computed = job.tokens
        self.output_tokens += 1
        self.tick_decode += 1
        if job.first_token is None:
            job.first_token = self.now
        last = job.output >= job.max_tokens or (job.words and job.output >= len(job.words))
        if job.stream is not None:
            gap = "" if job.output == 1 else " "
            job.stream.put(gap + job.words[job.output - 1], [job.output])
        if last:
            whole = bool(job.words) and job.output >= len(job.words)
            self.end(job, FinishReason.STOP if whole else FinishReason.LENGTH)
        elif not self._grow(job, job.tokens + 1):
            self._preempt(self.running[-1])

    # pages

    def _grow(self, job: Job, tokens: int) -> bool:
        """Give `job` pages for `tokens`; False when the pool is empty."""
        while len(job.pages) * PAGE_TOKENS < tokens:
            if not self.free and not self.cached:
                return False
            page = self.free.pop() if self.free else self.cached.popleft()
            if job.pages:
                self.states[job.pages[-1]] = "s"
            job.pages.append(page)
            self.born[page] = self.now
            self.states[page] = "o"
        return True

    def _release(self, job: Job, keep: int = 0) -> None:
        """Give the pages back; the first `keep` stay cached for a prompt that begins alike."""
        for at, page in enumerate(job.pages):
            kept = at < keep
            self.states[page] = "c" if kept else "f"
            (self.cached if kept else self.free).append(page)
        job.pages = []

    def _preempt(self, job: Job) -> None:
        pages = len(job.pages)
        self.running.remove(job)
        self._release(job)
        job.computed = 0
        job.preemptions += 1
        self.waiting.appendleft(job)
        self.preemptions += 1
        self.log("preempt", f"preempted {job.id}: no page free, {pages} given back")

    # ends

    def end(self, job: Job, reason: FinishReason) -> None:
        if job in self.running:
            self.running.remove(job)
            self._release(job, keep=1 if self._random.random() < 0.3 else 0)
        else:
            self.waiting.remove(job)
        self.finished[reason] = self.finished.get(reason, 0) + 1
        self.ended.append(self.now)
        if job.first_scheduled is not None and job.first_token is not None:
            rest = max(1, job.output - 1)
            self.done.append(
                Done(
                    wait=job.first_scheduled - job.arrival,
                    ttft=job.first_token - job.arrival,
                    tpot=(self.now - job.first_token) / rest,
                    e2e=self.now - job.arrival,
                )
            )
        if job.stream is not None:
            job.stream.close(reason)

    def find(self, request_id: str) -> Job | None:
        return next((j for j in (*self.running, *self.waiting) if j.id == request_id), None)

    # control

    def _move_cap(self) -> None:
        cap = self.cap
        if len(self.waiting) > 2:
            cap = min(self.script.cap_max, cap + 4)
        elif len(self.running) < cap - 6:
            cap = max(LOWEST_CAP, cap - 2)
        self.set_cap(cap)

    def set_cap(self, cap: int) -> None:
        if cap != self.cap:
            self.log("cap", f"cap {self.cap} → {cap}")
        self.cap = cap

    def log(self, kind: str, text: str) -> None:
        self.events.append(Event(self.now, kind, text))

    # figures

    def percentiles(self, read: Callable[[Done], float]) -> Percentiles:
        values = sorted(read(done) * 1e3 for done in self.done)
        n = len(values)
        if not n:
            return Percentiles()
        ranks = [values[min(n - 1, ceil(n * q) - 1)] for q in (0.5, 0.9, 0.99)]
        return Percentiles(ranks[0], ranks[1], ranks[2], sum(values) / n, n)

    def histogram(self, read: Callable[[Done], float]) -> Histogram | None:
        if not self.done:
            return None
        counts = [0] * (len(EDGES_MS) + 1)
        for done in self.done:
            counts[bisect_left(EDGES_MS, read(done) * 1e3)] += 1
        return Histogram(EDGES_MS, tuple(counts))

    def per_second(self, times: deque[float], span: float = 10.0) -> float:
        return sum(1 for time in times if time > self.now - span) / span

    def largest_free_run(self) -> int:
        """Pages; what one contiguous block could be at most."""
        runs = "".join("f" if s in "fc" else " " for s in self.states).split()
        return max((len(run) for run in runs), default=0)
