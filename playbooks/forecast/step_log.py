"""Measured steps: what each computed, and how long it took."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from engine.observing.telemetry import StepRecord
from engine.scheduling.plan import Plan
from engine.simulated.work import StepWork, work_of

if TYPE_CHECKING:
    from engine.core import Engine


@dataclass
class StepLog:
    """One entry a step. A block is a load that is alike throughout; rounds repeat the blocks."""

    works: list[StepWork] = field(default_factory=list)
    ns: list[float] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)

    def add(self, work: StepWork, ns: float, block: int, turn: int) -> None:
        self.works.append(work)
        self.ns.append(ns)
        self.blocks.append(block)
        self.rounds.append(turn)

    @contextmanager
    def of(self, engine: Engine, block: int, turn: int) -> Iterator[StepLog]:
        """Note the steps of a running engine as long as this lasts, each from the beginning of
        its round to its end: planning and bookkeeping are time too."""
        loop = engine.loop
        size = loop.scheduler.pool.page_tokens

        def note(plan: Plan, record: StepRecord) -> None:
            self.add(work_of(plan.items, size), record.end - loop.round_began, block, turn)

        engine.call(lambda: setattr(loop, "on_step", note))
        try:
            yield self
        finally:
            engine.call(lambda: setattr(loop, "on_step", None))

    @property
    def work(self) -> np.ndarray:
        """float [steps, fields of StepWork]"""
        return np.array(self.works, dtype=float).reshape(-1, len(StepWork._fields))
