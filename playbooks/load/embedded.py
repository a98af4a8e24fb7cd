"""Traffic for the engine in this process, so that the console has something to show."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np

from engine.core import Engine
from engine.errors import EngineError
from engine.request import SamplingParams
from engine.stream import Stream
from playbooks.load.lengths import Preset

RATE_START = 2.0
RATE_LIMITS = (0.05, 50.0)
STEP_UP, STEP_DOWN = 1.05, 0.85
SHARE_OF_LIMIT = 0.8
"""Prompt and output together stay below this share of the longest request that fits."""


class BackgroundLoad:
    """Poisson arrivals of random prompts on a thread of its own, until stopped.

    `rate` in requests/s; None follows the queue, so that any machine is kept busy without
    drowning: a little faster while the batch has room, slower while many wait. The prompts
    are random tokens, unique, and outputs run to their drawn length.
    """

    def __init__(
        self,
        engine: Engine,
        lengths: Preset,
        rate: float | None = None,
        seed: int = 0,
        sleep: Callable[[float], bool] | None = None,
    ) -> None:
        self._engine = engine
        self._lengths = lengths
        self._rate = rate
        self._rng = np.random.default_rng(seed)
        self._stop = threading.Event()
        self._sleep = sleep or self._stop.wait
        self._thread = threading.Thread(target=self._run, name="evewatch-load", daemon=True)
        self._open: list[Stream] = []
        self.current_rate = rate or RATE_START

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            due += self._rng.exponential(1 / self.current_rate)
            if self._sleep(max(0.0, due - time.monotonic())):
                return
            try:
                self._send(int(due * 1e9))
            except EngineError:
                return  # the engine has stopped, and so does its load
            self._take_answers()
            if self._rate is None:
                self._follow_queue()
                due = max(due, time.monotonic() - 1.0)  # a stall is not made up in one burst

    def _send(self, arrival_ns: int) -> None:
        spec = self._engine.loaded.spec
        limit = int(self._engine.scheduler.max_model_len * SHARE_OF_LIMIT)
        room = int(self._engine.pool.total * self._engine.pool.page_tokens * SHARE_OF_LIMIT)
        output = min(self._lengths.output.draw(self._rng, 1)[0], limit // 2, room // 2)
        prompt = min(self._lengths.prompt.draw(self._rng, 1)[0], min(limit, room) - output)
        ids = self._rng.integers(0, spec.vocab, size=max(prompt, 1)).tolist()
        params = SamplingParams(max_tokens=max(output, 1), ignore_eos=True)
        stream = self._engine.submit(ids, params, source="load", arrival_ns=arrival_ns)
        self._open.append(stream)

    def _take_answers(self) -> None:
        for stream in self._open:
            stream.poll()
        self._open = [stream for stream in self._open if not stream.finished]

    def _follow_queue(self) -> None:
        snapshot = self._engine.snapshot()
        waiting, running = snapshot.queue.waiting or 0, snapshot.batch.running or 0
        cap = snapshot.batch.cap or 1
        if waiting > max(2, cap // 4):
            self.current_rate *= STEP_DOWN
        elif running < cap * 0.9:
            self.current_rate *= STEP_UP
        self.current_rate = min(max(self.current_rate, RATE_LIMITS[0]), RATE_LIMITS[1])
