"""The engine stepped by hand, with its thread's CPU time for a clock: what a load is like on a
machine that nobody else uses, measured on one that others use too.

The thread that steps takes part in all parallel loops and sleeps where it waits for others, so its
CPU time is what a step takes when the other threads have a core of their own.
"""

from __future__ import annotations

import time

from engine.config import EngineConfig
from engine.core import Engine
from engine.models import LoadedModel
from engine.request import SamplingParams
from engine.stream import Stream
from playbooks.load.arrivals import Closed
from playbooks.load.client import LoadResult
from playbooks.load.prompts import TokenPrompts, plain_ids
from playbooks.load.record import RequestRecord
from playbooks.load.workload import LoadSpec, Planned, Workload


class CpuClock:
    """Of the calling thread; idle time is passed with `move_to`."""

    def __init__(self) -> None:
        self._ahead = 10**15 - time.thread_time_ns()

    def ns(self) -> int:
        return self._ahead + time.thread_time_ns()

    def unix(self) -> float:
        return self.ns() / 1e9

    def move_to(self, moment: int) -> None:
        self._ahead += max(0, moment - self.ns())


class SteppedEngine:
    """A loaded engine without a thread of its own."""

    def __init__(self, config: EngineConfig, loaded: LoadedModel | None = None) -> None:
        self.clock = CpuClock()
        self.engine = Engine(config, loaded, clock=self.clock)
        self.engine.load()
        self.engine.submit([0] * 32, SamplingParams(4, ignore_eos=True))
        while self.engine.step():
            pass

    def run(self, spec: LoadSpec) -> LoadResult:
        """As the load client would have had it."""
        engine, clock = self.engine, self.clock
        engine.reset()
        pool = engine.pool
        limit = min(engine.scheduler.max_model_len, pool.total * pool.page_tokens)
        loaded = engine.loaded
        ids = plain_ids(loaded.spec.vocab, loaded.tokenizer.special_ids)
        prompts = TokenPrompts(ids, spec.words_seed, spec.shared_prefix)
        made = ((p, prompts.make(p.number, p.prompt)) for p in Workload(spec, limit))
        start = clock.ns()
        result = LoadResult(spec, {"kind": "stepped"}, start=start, issued_until=start)
        sent: list[tuple[Planned, int, Stream]] = []
        coming = next(made, None)
        while coming is not None or engine.loop.open:
            while coming is not None and (due := self._due(coming[0], result)) <= clock.ns():
                planned, prompt = coming
                params = SamplingParams(planned.output, ignore_eos=True)
                sent.append((planned, due, engine.submit(prompt, params, arrival_ns=due)))
                result.issued_until = due
                coming = next(made, None)
                if isinstance(spec.arrivals, Closed) and due > start + (spec.seconds or 0) * 1e9:
                    coming = None
            if not engine.step() and coming is not None:
                clock.move_to(self._due(coming[0], result))
        result.end = clock.ns()
        result.records = [_record(*one) for one in sent]
        if spec.seconds is not None and not isinstance(spec.arrivals, Closed):
            result.issued_until = start + int(spec.seconds * 1e9)
        return result

    def _due(self, planned: Planned, result: LoadResult) -> int:
        """When it is to be sent; while all users of a closed loop wait, not yet."""
        arrivals, now = result.spec.arrivals, self.clock.ns()
        if not isinstance(arrivals, Closed):
            return result.start + (planned.at_ns or 0)
        return now if len(self.engine.loop.open) < arrivals.users else now + 10**9


def _record(planned: Planned, due: int, stream: Stream) -> RequestRecord:
    event, stamps = stream.poll(), stream.stamps
    assert event is not None and stamps is not None and event.finish_reason is not None
    return RequestRecord(
        planned.number, due, planned.prompt, planned.output, sent=due, events=stamps.tokens,
        ended=stamps.finished, prompt_tokens=stream.prompt_tokens,
        output_tokens=len(stamps.tokens), finish_reason=event.finish_reason.value, stamps=stamps,
    )  # fmt: skip
