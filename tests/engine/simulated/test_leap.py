"""A leap leaves what the same steps of the loop would have left, to the byte."""

import random

import numpy as np
import pytest

from engine.config import EngineConfig
from engine.request import SamplingParams
from engine.scheduling.plan import ModelFacts
from engine.simulated.cost import LinearCost, kv_facts
from engine.simulated.fitted import CostCoefficients, FittedCost
from engine.simulated.replica import Replica

FACTS = ModelFacts("simulated", "none", "none", 300, 1000, kv_facts(64, 16, 100.0, 200.0, 8))
WORLDS = {
    "plenty": {"pages": 400},
    "long outputs": {"pages": 900, "outputs": 300},
    "preemption": {"pages": 26, "token_budget": 64},
    "the pool is full": {"pages": 60, "outputs": 150},
    "the cap is full": {"pages": 400, "max_batch": 3, "outputs": 90},
    "a moving cap": {
        "pages": 90, "dynamic_batch": True, "tpot_objective_ms": 14.0, "max_batch": 16,
    },
    "room to the end": {"pages": 90, "reserve": "final"},
    "no prefix cache": {"pages": 90, "prefix_cache": False},
    "drafts": {"pages": 90, "speculate": "prompt"},
    "static": {"pages": 120, "policy": "static", "max_wait_ms": 30.0},
    "contiguous": {"pages": 120, "allocator": "contiguous"},
}  # fmt: skip
COSTS = {
    "linear": lambda: LinearCost(10e6, 0.1e6, 1e6, 100.0, spread=0.2, seed=3),
    "fitted": lambda: FittedCost(
        CostCoefficients(((1, 8e6), (4, 10e6), (32, 60e6)), 1e5, 90.0, 20.0, 4e5), (0.9, 1, 1.1),
        seed=3,
    ),
}  # fmt: skip


def arrivals(count, outputs, seed=3):
    rng, at, shared = random.Random(seed), 1_000_000, [7 + i for i in range(40)]
    for i in range(count):
        at += int(rng.expovariate(1 / 90e6))
        prompt = (shared if i % 3 == 0 else []) + rng.choices(range(3, 270), k=rng.randint(1, 90))
        stop = {"stop_token_ids": (i % 40,)} if i % 11 == 0 else {}
        params = SamplingParams(rng.randint(1, outputs), ignore_eos=True, **stop)
        yield prompt, params, {"at": at, "timeout_s": 0.4 if rng.random() < 0.1 else None}


def lived(world, cost, leaps):
    settings = {"max_batch": 8, "token_budget": 32} | world
    pages, outputs = settings.pop("pages"), settings.pop("outputs", 60)
    config = EngineConfig(**settings)
    twin = Replica(config, FACTS, COSTS[cost](), pages=pages, max_model_len=512, leaps=leaps)
    twin.planned = 0
    plan = twin.loop.scheduler.plan

    def counted(now):
        twin.planned += 1
        return plan(now)

    twin.loop.scheduler.plan = counted
    requests = [twin.submit(p, q, **more) for p, q, more in arrivals(60, outputs)]
    for moment in range(0, 3 * 10**9, 170_000_000):
        twin.run_until(moment)
        twin.loop.scheduler.check_integrity()
    twin.run()
    return twin, requests


def left(twin, requests):
    """All that can be seen of it afterwards."""
    loop, telemetry = twin.loop, twin.loop.telemetry
    meters = {name: m.read() for name, m in vars(telemetry.meters).items() if hasattr(m, "read")}
    loop.observer.machine_state = type(loop.observer.machine_state())
    loop.observer.watch_pages(1e6)
    loop.observer.publish()
    pool = loop.scheduler.pool
    return {
        "clock": twin.clock.ns(),
        "requests": [(r.stamps, r.output_ids, r.stream.poll(), r.preemptions) for r in requests],
        "counts": (telemetry.totals, telemetry.finished, telemetry.meters.totals, telemetry.events),
        "kv": (telemetry.kv_bytes, telemetry.kv_tokens, telemetry.busy_ns),
        "meters": meters,
        "pages": (pool.page_map(), pool.born, pool.peak_used, pool.evictions, pool._free),
        "taxes": (loop.scheduler.useful_tokens, loop.scheduler.recomputed_tokens),
        "snapshot": loop.observer.snapshot.to_json(),
    }


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("world", WORLDS)
def test_a_leap_leaves_what_its_steps_would_have_left(world, cost):
    leapt, stepped = (lived(WORLDS[world], cost, leaps) for leaps in (True, False))
    theirs, ours = left(*stepped), left(*leapt)
    for what in theirs:
        assert ours[what] == theirs[what], what
    for ring in ("steps", "ended", "gaps", "arrivals"):
        rows = [getattr(twin.loop.telemetry, ring).since(0) for twin in (leapt[0], stepped[0])]
        assert np.array_equal(*rows, equal_nan=True), ring
    made = stepped[0].loop.telemetry.totals["steps"]
    assert made == leapt[0].loop.telemetry.totals["steps"]
    if world in ("static", "drafts"):
        assert leapt[0].planned == stepped[0].planned
    else:
        assert leapt[0].planned < stepped[0].planned
    assert (leapt[0].loop.telemetry.totals["preemptions"] > 0) >= (world == "preemption")


def test_who_looks_on_sees_every_step():
    """A Snapshot that is wanted, and a listener of steps, are served by the loop itself."""
    twin = Replica(EngineConfig(max_batch=8), FACTS, COSTS["linear"](), pages=64, max_model_len=512)
    seen = []
    twin.loop.on_step = lambda plan, record: seen.append(len(plan.items))
    twin.submit([5] * 20, SamplingParams(50, ignore_eos=True))
    twin.run()
    assert seen == [1] * 50


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("world", WORLDS)
def test_nobody_ends_before_it_is_said_to_be_possible(world, cost):
    settings = {"max_batch": 8, "token_budget": 32} | WORLDS[world]
    pages, outputs = settings.pop("pages"), settings.pop("outputs", 60)
    twin = Replica(EngineConfig(**settings), FACTS, COSTS[cost](), pages=pages, max_model_len=512)
    requests = [twin.submit(p, q, **more) for p, q, more in arrivals(60, outputs)]
    looks = []
    for moment in range(0, 5 * 10**9, 13_000_000):
        twin.run_until(moment)
        open_ones = [r for r in requests if r.finish_reason is None]
        looks.append((twin.quiet_until(), twin.clock.ns(), open_ones))
    twin.run()
    ends = {r.id: r.stamps.finished for r in requests}
    ahead = 0
    for quiet, now, open_ones in looks:
        assert all(ends[r.id] >= quiet for r in open_ones)
        ahead += open_ones != [] and quiet > now
    assert ahead > 10 or world == "drafts"
