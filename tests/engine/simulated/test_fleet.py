"""Replicas behind a router: where requests go, what becomes of them; time can be skipped."""

import random

import pytest

from engine.config import EngineConfig
from engine.scheduling.plan import ModelFacts
from engine.simulated.cost import LinearCost, kv_facts
from engine.simulated.fleet import LOST, UNFINISHED, UNSERVED, Fleet
from engine.simulated.replica import Replica
from engine.simulated.routers import ROUTERS, LeastOutstanding, PrefixAffinity, RoundRobin
from engine.simulated.scaling import Autoscaler, Scaling

FACTS = ModelFacts("simulated", "none", "none", 1 << 40, 1000, kv_facts(64, 16, 100.0, 200.0, 8))
SETTINGS = {"max_batch": 8, "token_budget": 64}


def make(seed=0, spread=0.0, pages=200):
    def one(number, clock):
        cost = LinearCost(10e6, 0.1e6, 1e6, spread=spread, seed=seed + number)
        config = EngineConfig(**SETTINGS)
        return Replica(config, FACTS, cost, pages=pages, max_model_len=512, clock=clock)

    return one


def busy(fleet, seconds, rate, seed=0, begin=0.0, prefixes=0):
    """Requests at random moments; `prefixes`: so many beginnings that they share."""
    rng, at, number = random.Random(seed), begin, 10_000 * seed
    while True:
        at += rng.expovariate(rate)
        if at >= begin + seconds:
            return
        number += 1
        which = rng.randrange(prefixes) if prefixes else None
        blocks = None if which is None else tuple(range(4 * which, 4 * which + 4))
        shared = [900_000 + block for block in blocks or () for _ in range(32)]
        prompt = shared + [1000 + number] * rng.randint(1, 60)
        fleet.send(at, prompt, rng.randint(1, 40), blocks)


@pytest.mark.parametrize("router", ROUTERS)
def test_every_request_ends_and_latencies_begin_at_its_arrival(router):
    fleet = Fleet(make(spread=0.3), ROUTERS[router](), 3, block_tokens=32)
    busy(fleet, 20, 20, prefixes=5)
    fleet.finish(600)
    assert len(fleet.outcomes) > 300
    assert {o.reason for o in fleet.outcomes} == {"length"}
    for o in fleet.outcomes:
        assert 0 <= o.queue_ms <= o.ttft_ms <= o.e2e_ms
    for member in fleet.members:
        member.replica.loop.scheduler.check_integrity()


def test_the_same_seed_gives_the_same_outcomes_and_looking_changes_nothing():
    def outcomes(look_s):
        fleet = Fleet(make(spread=0.3), LeastOutstanding(), 3)
        rng, at, looks = random.Random(4), 0.0, 0.0
        for number in range(120):
            at += rng.expovariate(12)
            while looks + look_s < at:
                looks += look_s
                fleet.run_until(looks)
            fleet.send(at, [1000 + number] * rng.randint(1, 60), rng.randint(1, 40))
        fleet.finish(600)
        return sorted(fleet.outcomes)

    assert outcomes(1e9) == outcomes(1e9) == outcomes(0.35)


def test_round_robin_goes_round_whoever_comes_and_goes():
    fleet = Fleet(make(), RoundRobin(), 3)
    took = []

    def send(at):
        before = {m.number: m._open for m in fleet.members}
        fleet.send(at, [1000 + int(at * 10)] * 4, 30)
        took.append(next(m.number for m in fleet.members if m._open > before.get(m.number, 0)))

    for i in range(4):
        send(i / 10)
    fleet.lose(1)
    for i in range(4, 8):
        send(i / 10)
    fleet.grow(1)
    for i in range(8, 12):
        send(i / 10)
    assert took == [0, 1, 2, 0, 1, 2, 1, 2, 3, 1, 2, 3]


def test_least_outstanding_counts_what_has_not_ended_at_the_moment_of_arrival():
    fleet = Fleet(make(), LeastOutstanding(), 2)
    fleet.send(0.0, [1001] * 4, 2)
    fleet.send(0.0, [1002] * 4, 40)
    first, second = fleet.members
    assert first.outstanding(fleet._ns(0.001)) == second.outstanding(fleet._ns(0.001)) == 1
    fleet.run_until(0.1)
    end = fleet.outcomes[0].e2e_ms / 1e3
    assert first.outstanding(fleet._ns(0.1)) == 0 < second.outstanding(fleet._ns(0.1))
    assert end < 0.1
    fleet.send(0.1, [1003] * 4, 2)
    assert first.outstanding(fleet._ns(0.1)) == 1


def test_prefix_affinity_finds_its_cache_again_and_leaves_a_crowded_replica():
    hits = {}
    for name in ("round_robin", "prefix_affinity"):
        fleet = Fleet(make(pages=160), ROUTERS[name](), 4, block_tokens=32)
        busy(fleet, 50, 12, prefixes=30)
        fleet.finish(600)
        index = [m.replica.loop.scheduler.pool.index for m in fleet.members]
        hits[name] = sum(i.hit_tokens for i in index) / sum(i.queried_tokens for i in index)
    assert hits["prefix_affinity"] > 1.3 * hits["round_robin"]
    crowd = Fleet(make(), PrefixAffinity(), 4, block_tokens=32)
    busy(crowd, 3, 150, prefixes=1)
    assert min(m.replica.loop.telemetry.totals["requests"] for m in crowd.members) > 10


def test_a_lost_replica_takes_its_requests_with_it_and_the_others_go_on():
    fleet = Fleet(make(), RoundRobin(), 2)
    busy(fleet, 10, 20)
    fleet.run_until(10)
    assert fleet.lose(1) > 0
    lost = [o for o in fleet.outcomes if o.reason == LOST]
    assert lost and all(o.e2e_ms is None for o in lost)
    busy(fleet, 10, 5, seed=1, begin=10.0)
    assert fleet.lose(1) > 0
    fleet.send(21.0, [1] * 4, 4)
    assert fleet.outcomes[-1].reason == UNSERVED
    assert fleet.load() == (0, 0, 0, 0, None)


def test_replicas_start_drain_and_are_gone():
    fleet = Fleet(make(), LeastOutstanding(), 1)
    fleet.grow(1, start_s=5.0)
    busy(fleet, 4, 10)
    assert fleet.load()[:2] == (1, 1)
    assert not fleet.members[1]._open
    busy(fleet, 4, 10, seed=1, begin=5.5)
    assert fleet.load()[:2] == (2, 0)
    assert fleet.members[1]._open
    fleet.shrink(1)
    open_before = len(fleet.outcomes)
    fleet.finish(60)
    assert fleet.load()[:2] == (1, 0) and not fleet._leaving
    assert {o.reason for o in fleet.outcomes[open_before:]} == {"length"}


def test_time_that_is_skipped_passes_outside_and_counts_for_those_who_waited():
    fleet = Fleet(make(), RoundRobin(), 1)
    fleet.send(0.0, [1001] * 4, 20)
    fleet.run_until(0.05)
    fleet.skip(1000.0)
    assert fleet.now_s == pytest.approx(1000.05)
    fleet.send(400.0, [1002] * 4, 2)
    fleet.finish(60)
    running, late = sorted(fleet.outcomes, key=lambda o: o.at_s)
    assert running.e2e_ms < 1000
    assert 600e3 < late.ttft_ms < 601e3


def test_what_waits_or_runs_can_be_dropped_and_leaves_no_outcome():
    fleet = Fleet(make(), RoundRobin(), 1)
    for i in range(30):
        fleet.send(0.01 * i, [1000 + i] * 4, 40)
    fleet.run_until(0.35)
    assert fleet.load().waiting == 22
    assert fleet.drop_waiting() == 22
    assert fleet.drop_running(0.5) == 4
    fleet.finish(60)
    assert len(fleet.outcomes) == 4
    assert fleet.members[0].outstanding(fleet._ns(fleet.now_s)) == 0


def test_what_is_open_at_the_end_is_unfinished():
    fleet = Fleet(make(), RoundRobin(), 1)
    for i in range(20):
        fleet.send(0.0, [1000 + i] * 4, 400)
    fleet.finish(1.0)
    assert {o.reason for o in fleet.outcomes} == {UNFINISHED}
    assert len(fleet.outcomes) == 20


@pytest.mark.parametrize(
    ("outstanding", "size", "wanted"),
    [(100, 10, 10), (109, 10, 10), (120, 10, 12), (500, 10, 20), (0, 10, 10), (95, 10, 10)],
)
def test_the_rule_follows_the_load_within_its_limits_and_comes_down_late(outstanding, size, wanted):
    rule = Autoscaler(Scaling(2, 20, 10.0, hold_s=300))
    assert rule.wanted(0.0, 100, size) == 10
    assert rule.wanted(60.0, outstanding, size) == wanted


def test_the_rule_comes_down_when_nothing_more_was_wanted_for_long():
    rule = Autoscaler(Scaling(2, 20, 10.0, hold_s=300))
    loads = ((0, 100), (200, 30), (299, 0), (301, 0), (700, 0))
    assert [rule.wanted(t, outstanding, 10) for t, outstanding in loads] == [10, 10, 10, 3, 2]
