"""The simulator runs the engine's own loop: same arrivals and step times, same plans."""

import random
import time

import pytest

from engine.config import EngineConfig
from engine.request import FinishReason, Priority, SamplingParams
from engine.scheduling.plan import ModelFacts
from engine.simulated.clock import VirtualClock
from engine.simulated.cost import LinearCost, RecordedCost, kv_facts
from engine.simulated.replica import Replica
from engines import tiny_engine

FACTS = ModelFacts("simulated", "none", "none", 300, 1000, kv_facts(64, 16, 100.0, 200.0, 8))


def replica(cost=None, pages=64, max_model_len=512, **settings):
    config = EngineConfig(**{"max_batch": 8, "token_budget": 32} | settings)
    cost = cost or LinearCost(10e6, 0.1e6, 1e6, 100.0, spread=0.2)
    return Replica(
        config, FACTS, cost, pages=pages, max_model_len=max_model_len, leaps=False
    )  # every step is planned, for those who look at plans


def noted(scheduler):
    """Every plan that this scheduler makes from now on, as plain numbers."""
    plans, plan = [], scheduler.plan

    def watched(now):
        made = plan(now)
        items = [(i.request.id, i.start, i.tokens, i.samples, i.padding) for i in made.items]
        gone = [r.id for r in made.preempted], [(r.id, str(why)) for r, why in made.ended]
        if items or any(gone):
            plans.append((now, items, gone, made.bound_by, scheduler.cap, scheduler.pool.cached))
        return made

    scheduler.plan = watched
    return plans


def arrivals(count, seed):
    """(ns, prompt, params, options): a third begin alike, some are urgent, some give up."""
    rng, at, shared = random.Random(seed), 1_000_000, [7 + i for i in range(40)]
    for i in range(count):
        at += int(rng.expovariate(1 / 25e6))
        prompt = (shared if i % 3 == 0 else []) + rng.choices(range(3, 270), k=rng.randint(1, 90))
        params = SamplingParams(rng.randint(1, 60), temperature=1.5, seed=i, ignore_eos=True)
        options = {"priority": rng.choice(list(Priority)), "source": "load"}
        options["timeout_s"] = 0.4 if rng.random() < 0.1 else None
        yield at, prompt, params, options


WORLDS = {
    "plenty": {"pages": 400},
    "preemption": {"pages": 16, "token_budget": 64},
    "predicted lengths": {"pages": 16, "token_budget": 64, "reserve": "predicted"},
    "a moving cap": {
        "pages": 60, "dynamic_batch": True, "tpot_objective_ms": 14.0, "max_batch": 16,
    },
    "long prompts in small chunks": {"pages": 60, "token_budget": 9},
    "static": {"pages": 120, "policy": "static", "max_wait_ms": 30.0},
    "contiguous": {"pages": 120, "allocator": "contiguous"},
}  # fmt: skip


@pytest.mark.parametrize("world", WORLDS)
def test_the_same_arrivals_and_step_times_give_the_engines_plans_in_order(world):
    work, rng = list(arrivals(60, seed=3)), random.Random(1)
    clock, times = VirtualClock(), []
    engine = tiny_engine(kernels="cpu", layers=1, clock=clock, **WORLDS[world])
    run = engine.runner.run

    def timed(batch):
        times.append(rng.randint(4_000_000, 22_000_000))
        clock.advance(times[-1])
        return run(batch)

    engine.runner.run = timed
    theirs = noted(engine.scheduler)
    todo = list(work)
    while todo or engine.loop.open:
        while todo and todo[0][0] <= clock.ns():
            at, prompt, params, options = todo.pop(0)
            stream = engine.submit(prompt, params, arrival_ns=at, **options)
            if options["timeout_s"] is not None:  # a client of its own would have sent it then
                engine._open[stream.request_id].deadline = at + int(options["timeout_s"] * 1e9)
        if not engine.step():
            waits = engine.scheduler.has_work
            coming = todo[0][0] if todo else clock.ns() + 2_000_000
            clock.move_to(min(coming, clock.ns() + 2_000_000) if waits else coming)
        engine.scheduler.check_integrity()

    settings = {k: v for k, v in WORLDS[world].items() if k != "pages"}
    twin = replica(
        RecordedCost(times),
        WORLDS[world]["pages"],
        engine.scheduler.max_model_len,
        **settings,
    )
    ours = noted(twin.loop.scheduler)
    for at, prompt, params, options in work:
        twin.submit(prompt, params, at=at, **options)
    twin.run()
    assert len(ours) > 100
    assert ours == theirs
    assert twin.loop.telemetry.finished == engine.telemetry.finished
    index = twin.loop.scheduler.pool.index
    assert index is None or index.hit_tokens > 0
    if world != "predicted lengths":  # these leave room, and may still be wrong
        assert (engine.telemetry.totals["preemptions"] > 0) == (world == "preemption")
    assert (len({plan[4] for plan in ours}) > 3) == (world == "a moving cap")


def story(cuts, seed=5):
    twin = replica(pages=40, dynamic_batch=True)
    plans = noted(twin.loop.scheduler)
    for at, prompt, params, options in arrivals(80, seed):
        twin.submit(prompt, params, at=at, **options)
    for moment in cuts:
        twin.run_until(moment)
    twin.run()
    return plans


def test_how_the_time_is_cut_changes_nothing():
    whole = story([])
    assert story(range(0, 4 * 10**9, 7_000_000)) == whole
    assert story([10**9]) == whole
    assert story([], seed=6) != whole


def test_a_replica_serves_everything_and_holds_nothing():
    twin = replica(pages=30)
    requests = [twin.submit(p, q, at=at, **o) for at, p, q, o in arrivals(100, seed=9)]
    twin.run()
    assert {r.finish_reason for r in requests} <= {FinishReason.LENGTH, FinishReason.TIMEOUT}
    assert all(r.stream.closed for r in requests)
    assert twin.loop.ledger().is_zero
    twin.loop.observer.publish()
    snapshot = twin.loop.observer.snapshot
    assert snapshot.queue.requests_total == 100
    assert snapshot.kv.pool_bytes == FACTS.kv.pool_bytes
    assert snapshot.time == pytest.approx(twin.clock.unix())


def test_a_record_that_is_too_short_ends_its_requests():
    twin = replica(RecordedCost([10**6]))
    request = twin.submit([5, 6], SamplingParams(5, ignore_eos=True))
    twin.run()
    assert request.finish_reason is FinishReason.ERROR
    assert "no more steps" in request.stream.poll().error


def test_costs_rise_with_tokens_and_context():
    def step_ms(**changes):
        cost = LinearCost(**{"floor": 1e6, "prompt_token": 0, "decode_token": 0} | changes)
        twin = replica(cost)
        twin.submit([5] * 20, SamplingParams(1, ignore_eos=True))
        twin.run()
        return twin.loop.telemetry.busy_ns / 1e6

    assert step_ms() == pytest.approx(1.0)
    assert step_ms(prompt_token=1e5) == pytest.approx(3.0)
    assert step_ms(context_token=1e5) == pytest.approx(3.0)


def test_a_minute_passes_in_a_moment():
    """A minute in less than 0.6 s: the aim is 500 times real time, on a machine that is free."""
    twin = replica(LinearCost(30e6, 0.3e6, 1e6), pages=400, max_batch=32, token_budget=128)
    rng, params = random.Random(0), SamplingParams(60, ignore_eos=True)
    for second in range(60):
        twin.submit(rng.choices(range(3, 270), k=80), params, at=second * 10**9)
    start = time.thread_time()
    twin.run_until(60 * 10**9)
    assert time.thread_time() - start < 60 / 100
