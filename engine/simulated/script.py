"""What happens in a demo: traffic from a seed, canned answers, and engines that fail."""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import pi, sin

from engine.config import EngineConfig
from engine.request import Request, SamplingParams
from engine.scheduling.plan import ModelFacts
from engine.simulated.clock import VirtualClock
from engine.simulated.cost import LinearCost, kv_facts
from engine.simulated.replica import Replica
from engine.snapshot import SourceState

TEXT = (  # not shown
    "The queue is short and the pages are half full, so there is room. If it grows overnight, "
    "lower the arrival rate before you raise the cap: a larger batch makes every step slower, "
    "and the KV pages run out first. Write down what you changed and what it did."
)
ANSWER = TEXT.split()
VOCAB = 49_152
EOS = VOCAB - 1
MAX_MODEL_LEN = 8192
PAGE_TOKENS = 16
MAX_BATCH = 48
BYTES_PER_TOKEN, FP16_BYTES_PER_TOKEN = 11_970, 23_040
WEIGHT_BYTES = 96_000_000
TOKENIZE_NS = 800_000
SYSTEM_PROMPT = list(range(1000, 1040))
"""How some prompts begin: what the prefix cache is for."""
SHARE_WITH_SYSTEM = 0.3


@dataclass(frozen=True)
class Script:
    """Rates per second; lengths in tokens, (least, most)."""

    arrivals: float = 3.0
    wave: float = 0.5
    """How far arrivals swing around their mean, 0–1, every `period` seconds."""
    period: float = 40.0
    prompt: tuple[int, int] = (24, 220)
    output: tuple[int, int] = (32, 160)
    pages: int = 512
    most_waiting: int = 40
    """No arrivals while so many wait: the load follows the queue."""
    warm_s: float = 90.0
    """Lived through before the first Snapshot."""


@dataclass(frozen=True)
class Failure:
    """From `after_s` on, the numbers no longer come. STALE: in silence."""

    after_s: float
    state: SourceState
    reason: str | None = None


SCRIPTS: dict[str, Script] = {
    "idle": Script(arrivals=0.0, warm_s=0.0),
    "typical": Script(),
    "full": Script(arrivals=7.0, pages=272, output=(56, 160), most_waiting=24),
    "preempting": Script(arrivals=6.0, pages=256, output=(96, 320)),
    "stale": Script(),
    "dead": Script(),
}
FAILURES = {
    "stale": Failure(2.0, SourceState.STALE),
    "dead": Failure(2.0, SourceState.UNREACHABLE, "the engine thread ended: out of memory"),
}


def answer(request: Request) -> int:
    """The next word of the canned answer; whoever ignores its end hears it again."""
    said = len(request.output_ids)
    return EOS if said >= len(ANSWER) and not request.params.ignore_eos else said % len(ANSWER)


class Scene:
    """A replica under a script's traffic. Seeded: the same seed gives the same scene."""

    def __init__(self, script: Script, seed: int, start: int, unix: float) -> None:
        self.script = script
        config = EngineConfig(
            model="demo", device="cpu", seed=seed, page_tokens=PAGE_TOKENS, token_budget=128,
            dynamic_batch=True, min_batch=8, max_batch=MAX_BATCH,
        )  # fmt: skip
        kv = kv_facts(script.pages, PAGE_TOKENS, BYTES_PER_TOKEN, FP16_BYTES_PER_TOKEN, MAX_BATCH)
        facts = ModelFacts("SmolLM2-135M", "cpu", "cpu", VOCAB, WEIGHT_BYTES, kv)
        cost = LinearCost(42e6, 0.3e6, 0.8e6, 600.0, spread=0.15, seed=seed)
        self.replica = Replica(
            config, facts, cost, pages=script.pages, max_model_len=MAX_MODEL_LEN,
            clock=VirtualClock(start, unix), token=answer, eos_ids=frozenset({EOS}), words=ANSWER,
        )  # fmt: skip
        self._random = random.Random(seed)
        self._next = float(start)
        """When the next request comes (ns)."""
        self._draw_gap()

    def run_until(self, moment: int) -> None:
        """Live on to `moment` (ns)."""
        while self._next <= moment:
            self.replica.run_until(int(self._next))
            self._arrive(int(self._next))
            self._draw_gap()
        self.replica.run_until(moment)

    def skip_to(self, moment: int) -> None:
        """Let time pass without anything happening in it."""
        self._next += max(0, moment - self.replica.clock.ns())
        self.replica.clock.move_to(moment)

    def _arrive(self, at: int) -> None:
        loop, rng = self.replica.loop, self._random
        length = rng.randint(*self.script.prompt)
        head = SYSTEM_PROMPT if rng.random() < SHARE_WITH_SYSTEM else []
        prompt = [*head, *rng.choices(range(2000, VOCAB - 1), k=length)]
        params = SamplingParams(max_tokens=rng.randint(*self.script.output), ignore_eos=True)
        if not loop.controls.draining and len(loop.scheduler.waiting) < self.script.most_waiting:
            self.replica.submit(prompt, params, at=at, tokenize_ns=TOKENIZE_NS)

    def _draw_gap(self) -> None:
        swing = 1 + self.script.wave * sin(2 * pi * self._next / 1e9 / self.script.period)
        rate = self.script.arrivals * swing
        self._next += self._random.expovariate(rate) * 1e9 if rate > 0 else float("inf")
