"""Engines on tiny models, stepped by hand or running, with an exact number of pages."""

from __future__ import annotations

from typing import Any

from builders import tiny_loaded
from engine.config import EngineConfig
from engine.core import Completion, Engine, completion
from engine.execution.kv_cache import layout_for, memory_needed
from engine.observing.clock import Clock
from engine.stream import Stream
from kernels import dispatch
from waiting import CEILING_S


class Ticking:
    """A clock of which every look costs a millisecond: time passes, whatever the machine does."""

    def __init__(self) -> None:
        self.now = 1

    def ns(self) -> int:
        self.now += 1_000_000
        return self.now

    def unix(self) -> float:
        return self.now / 1e9


def tiny_engine(
    pages: int = 64,
    seed: int = 0,
    kernels: str = "reference",
    layers: int = 2,
    clock: Clock | None = None,
    **settings: Any,
) -> Engine:
    """A loaded engine with `pages` pages; `settings` are fields of EngineConfig."""
    config = EngineConfig(kernels=kernels, **{"max_batch": 8, "token_budget": 32} | settings)
    loaded = tiny_loaded(dispatch.select(kernels).ops, seed=seed, layers=layers)
    layout = layout_for(config, loaded.spec.kv_heads, loaded.spec.head_dim)
    memory = memory_needed(layout, layers, pages, config.max_batch, config.token_budget)
    engine = Engine(config.with_(kv_memory=memory), loaded, clock)
    engine.load()
    assert engine.pool.total == pages
    return engine


def step_until_idle(engine: Engine, limit: int = 2000) -> None:
    """Step by hand, checking the pool after each step."""
    for _ in range(limit):
        busy = engine.step()
        engine.scheduler.check_integrity()
        if not busy and not engine.scheduler.has_work:
            return
    raise AssertionError(f"still busy after {limit} steps")


def answers(engine: Engine, streams: list[Stream]) -> list[Completion]:
    step_until_idle(engine)
    return [completion(stream, timeout=CEILING_S) for stream in streams]


def assert_nothing_held(engine: Engine) -> None:
    """At idle nobody holds a page or a slab and no request is known."""
    engine.scheduler.check_integrity()
    assert engine.pool.used == 0
    assert engine.pool.free_slabs == engine.pool.slabs
    assert not engine.scheduler.waiting
    assert not engine.scheduler.running
    assert not engine._open
    assert engine.ledger().is_zero, engine.ledger()
