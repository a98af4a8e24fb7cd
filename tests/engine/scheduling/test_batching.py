"""Policies, preemption limits, prefix hits and the moving cap, without a model."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.request import FinishReason, Priority, Request, SamplingParams
from engine.scheduling.assemble import make_scheduler
from engine.scheduling.cap import BatchController, Objective
from engine.scheduling.continuous import Continuous
from engine.scheduling.pages import ContiguousPool, PagePool
from engine.scheduling.prefix import ROOT, PrefixIndex
from engine.scheduling.scheduler import PREEMPTIONS_MAX, Scheduler
from engine.scheduling.static import Static
from engine.scheduling.waiting import HANDICAP_NS, PASSES_MAX
from engine.stream import Stream

MS = 1_000_000


class World:
    """A scheduler on pages of 4 tokens; each output token is 7 unless `end` stops it early."""

    def __init__(
        self, pages=32, cap=4, budget=64, policy=None, reserve="known", pool=None, index=None
    ):
        self.pool = pool or PagePool(pages, 4, slabs=cap, index=index)
        self.scheduler = Scheduler(self.pool, policy or Continuous(), cap, budget, 10_000, reserve)
        self.now = 0
        self.requests = []
        self.ends = {}

    def add(self, prompt, output=4, end=None, priority=Priority.NORMAL):
        number = len(self.requests)
        params = SamplingParams(max_tokens=output, ignore_eos=True)
        request = Request(f"r{number}", params, Stream("r"), number=number)
        request.set_prompt([1] * prompt if isinstance(prompt, int) else prompt)
        request.priority = priority
        request.stamps.queued = self.now
        self.ends[request.id] = min(end or output, output)
        self.requests.append(request)
        assert self.scheduler.refusal(request) is None
        self.scheduler.add(request)
        return request

    def step(self, ms=1):
        self.now += ms * MS
        plan = self.scheduler.plan(self.now)
        self.scheduler.publish(self.scheduler.accept(plan.items))
        for item in plan.items:
            if item.samples:
                item.request.append(7)
        for item in plan.items:
            r = item.request
            if item.samples and len(r.output_ids) == self.ends[r.id]:
                self.scheduler.finish(r, FinishReason.STOP)
        self.scheduler.check_integrity()
        return plan

    def run(self, limit=20_000):
        for _ in range(limit):
            if not self.scheduler.has_work:
                return
            self.step()
        raise AssertionError("no end")


def ids(plan):
    return [item.request.id for item in plan.items]


# --- admission --------------------------------------------------------------------------


def test_pages_that_somebody_holds_already_are_not_counted_as_new():
    """26 pages; 12 that all share and 3 of its own for each: four run."""
    world = World(pages=26, cap=8, index=PrefixIndex(), budget=200)
    shared = list(range(100, 148))
    world.add([*shared, 1], output=1)
    world.run()
    for i in range(5):
        world.add([*shared, *[10 * i + n for n in range(10)]], output=2)
    world.step()
    assert len(world.scheduler.running) == 4
    assert world.pool.used == 12 + 4 * 3
    world.run()
    assert all(r.preemptions == 0 for r in world.requests)


def test_a_cached_prefix_that_nobody_holds_takes_room_when_it_is_shared():
    """A page of the cache is as available as a free one, and is gone once it is held."""
    world = World(pages=20, cap=8, index=PrefixIndex(), budget=200)
    shared = list(range(100, 148))
    world.add([*shared, 1], output=1)
    world.run()
    assert world.pool.cached == 12
    keeper = world.add(21, output=3)  # 6 pages: 14 are left, 12 of them cached
    world.step()
    world.add([*shared, *range(10)], output=2)  # 15 pages in all
    assert ids(world.step()) == [keeper.id]
    world.run()
    assert world.requests[-1].finish_reason is FinishReason.STOP
    assert world.pool.index.hit_tokens == 48


def test_k20_a_small_one_passes_a_big_one_that_does_not_fit():
    world = World(pages=12, cap=4)
    world.add(30, output=14)  # holds 8 of 12 pages and grows to 11
    world.step()
    big, small = world.add(20, output=4), world.add(3, output=2)
    assert ids(world.step()) == ["r0", "r2"]
    assert big.passed == 1
    world.run()
    assert all(r.finish_reason is FinishReason.STOP for r in (big, small))


def test_k20_a_big_one_is_passed_a_bounded_number_of_times():
    world = World(pages=12, cap=4)
    keeper = world.add(18, output=1000, end=900)
    world.step()
    big = world.add(30, output=2)
    for _ in range(PASSES_MAX * 3):
        world.add(2, output=1)
        world.step()
        if keeper.finish_reason:
            break
    assert big.passed <= PASSES_MAX


def test_k24_a_cold_request_does_not_starve_under_a_stream_of_high_priority():
    world = World(cap=1, pages=64)
    cold = world.add(4, output=2, priority=Priority.LOW)
    rounds = 0
    while not cold.finish_reason:
        world.add(4, output=2, priority=Priority.HIGH)
        world.step(ms=1000)
        world.step(ms=1000)  # as fast as they come, so that one always waits
        rounds += 1
        assert rounds < 100
    assert world.now <= 2 * HANDICAP_NS + 6_000 * MS


def test_higher_priority_goes_first_and_equals_go_in_order():
    world = World(cap=1, pages=64)
    for priority in (Priority.LOW, Priority.NORMAL, Priority.NORMAL, Priority.HIGH):
        world.add(2, output=1, priority=priority)
    order = [ids(world.step())[0] for _ in range(4)]
    assert order == ["r3", "r1", "r2", "r0"]


def test_k21_paused_as_many_as_the_cap_and_then_freed_admission_resumes():
    world = World(cap=2)
    world.add(2, output=2)
    world.add(2, output=2)
    world.step()
    world.scheduler.paused = True
    world.add(2, output=1)
    world.step()
    assert world.step().items == []
    world.scheduler.paused = False
    assert ids(world.step()) == ["r2"]


# --- preemption -------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_k22_under_any_load_little_is_recomputed_and_nobody_is_preempted_often(seed):
    rng = random.Random(seed)
    world = World(pages=40, cap=16, budget=64)
    for _ in range(150):
        output = rng.randrange(20, 90)
        world.add(rng.randrange(4, 30), output=output, end=rng.choice([output, output // 3 + 1]))
        if rng.random() < 0.7:
            world.step()
    world.run()
    assert world.scheduler.recomputed_tokens > 0
    assert world.scheduler.preemption_tax <= 0.25
    assert max(r.preemptions for r in world.requests) <= PREEMPTIONS_MAX
    assert all(r.finish_reason is FinishReason.STOP for r in world.requests)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_every_request_ends_and_the_pool_is_whole(data):
    pages = data.draw(st.integers(4, 20))
    index = PrefixIndex() if data.draw(st.booleans()) else None
    world = World(pages, data.draw(st.integers(1, 6)), data.draw(st.integers(6, 40)), index=index)
    sizes = data.draw(
        st.lists(st.tuples(st.integers(1, pages * 4 - 1), st.integers(1, 60)), max_size=12)
    )
    for prompt, output in sizes:
        world.add(prompt, output, priority=data.draw(st.sampled_from(Priority)))
        for _ in range(data.draw(st.integers(0, 3))):
            world.step()
    world.run()
    assert world.pool.used == 0
    assert all(r.preemptions <= PREEMPTIONS_MAX for r in world.requests)
    for r in world.requests:
        fits = len(r.prompt_ids) + r.params.max_tokens - 1 <= pages * 4
        assert r.finish_reason is (FinishReason.STOP if fits else FinishReason.KV_CAPACITY)


# --- prefix cache -----------------------------------------------------------------------


def test_a_known_prefix_is_not_computed_again():
    world = World(index=PrefixIndex())
    prompt = list(range(10, 23))  # 13 tokens: three full pages and one
    world.add(prompt, output=1)
    world.run()
    assert (world.pool.cached, world.pool.used) == (3, 0)
    second = world.add([*prompt[:9], 99, 98, 97, 96], output=1)  # two pages are the same
    plan = world.step()
    assert plan.items[0].start == 8
    assert plan.items[0].tokens == 5
    assert second.finish_reason is FinishReason.STOP
    assert world.pool.index.hit_tokens == 8


def test_at_least_one_token_is_computed_for_its_logits():
    world = World(index=PrefixIndex())
    for _ in range(2):
        world.add(list(range(8)), output=1)
        plan = world.step()
    assert plan.items[0].start == 4  # not 8: the second page is looked up only from token 8 on


def test_open_pages_are_never_hit():
    world = World(index=PrefixIndex())
    world.add(list(range(6)), output=20)
    world.step()
    world.add(list(range(6)), output=1)
    assert world.step().items[1].start == 4


def test_cached_pages_make_room_the_oldest_first():
    world = World(pages=6, index=PrefixIndex())
    for first in (100, 200):
        world.add([first + i for i in range(9)], output=1)
        world.run()
    assert world.pool.cached == 4
    world.add([300 + i for i in range(17)], output=1)  # 5 pages: evicts 3
    world.run()
    index = world.pool.index
    assert index.find([100 + i for i in range(9)], 4) == []
    assert len(index.find([300 + i for i in range(17)], 4)) == 4
    assert world.pool.evictions == 3


def test_equal_tokens_after_different_prefixes_are_different_pages():
    index = PrefixIndex()
    a = index.publish(0, ROOT, [1, 2])
    index.publish(1, a, [5, 6])
    assert index.find([5, 6], 2) == []
    assert index.find([1, 2, 5, 6], 2) == [0, 1]


def test_k6_cancelling_the_queue_returns_pinned_prefixes():
    world = World(index=PrefixIndex(), cap=2)
    world.add(list(range(12)), output=1)
    world.run()
    waiting = [world.add(list(range(12)), output=9) for _ in range(50)]
    world.step()
    for request in waiting:
        world.scheduler.finish(request, FinishReason.CANCELLED)
    world.scheduler.check_integrity()
    assert world.pool.references == 0


def test_k7_k8_usage_never_exceeds_the_pool():
    world = World(pages=8, index=PrefixIndex())
    for i in range(30):
        world.add([i % 3, *range(11)], output=3)
        plan = world.step()
        assert plan is not None
        pool = world.pool
        assert 0 <= pool.used <= pool.total
        assert pool.free + pool.open + pool.sealed + pool.cached == pool.total
    world.run()


# --- the static baseline ----------------------------------------------------------------


def static_world(pages=64, cap=3, wait_ms=10, **kwargs):
    return World(pages, cap, policy=Static(wait_ms * MS), reserve="final", **kwargs)


def test_a_static_batch_waits_until_it_is_full():
    world = static_world()
    world.add(4, output=2)
    world.add(4, output=2)
    assert world.step().items == []
    world.add(4, output=2)
    assert ids(world.step()) == ["r0", "r1", "r2"]


def test_or_until_the_first_has_waited_long_enough():
    world = static_world(wait_ms=10)
    world.add(4, output=2)
    assert world.step(ms=9).items == []
    assert ids(world.step(ms=1)) == ["r0"]


def test_nobody_joins_a_running_batch_and_finished_rows_are_computed_on():
    world = static_world(cap=2)
    short, long = world.add(4, output=1), world.add(4, output=6)
    world.step()
    assert short.finish_reason is FinishReason.STOP
    world.add(4, output=1)
    world.add(4, output=1)
    for _ in range(5):
        plan = world.step()
        assert [(i.request.id, i.padding) for i in plan.items] == [("r0", True), ("r1", False)]
    assert long.finish_reason is FinishReason.STOP
    assert ids(world.step()) == ["r2", "r3"]
    assert world.pool.used == 0


def test_a_static_row_holds_room_to_its_end():
    world = static_world(pages=10, cap=2)
    world.add(4, output=20, end=2)
    world.add(4, output=12)
    world.step(ms=10)
    assert world.pool.used == 6 + 4
    world.run()
    assert world.scheduler.policy.padded_tokens == 10


def test_cancelling_a_static_row_frees_it():
    world = static_world(cap=2)
    rows = [world.add(4, output=9) for _ in range(2)]
    world.step()
    for row in rows:
        world.scheduler.finish(row, FinishReason.CANCELLED)
        world.scheduler.check_integrity()
    assert world.pool.used == 0
    assert world.scheduler.policy.batch == []


def test_contiguous_memory_is_one_run_and_refuses_when_it_lies_scattered():
    world = World(pool=ContiguousPool(12, 4, slabs=8), cap=8, reserve="final")
    requests = [world.add(8, output=8, end=8 if i % 2 else 1) for i in range(3)]
    world.step()
    assert world.pool.page_map().count("f") == 8  # two of three ended: 4 + 4 pages, apart
    assert not world.pool.fits(8)
    assert world.pool.fits(4)
    pages = requests[1].pages
    assert pages == list(range(pages[0], pages[0] + 4))
    world.run()


# --- settings ---------------------------------------------------------------------------


def test_the_scheduler_that_the_settings_ask_for():
    def made(**changes):
        return make_scheduler(EngineConfig(**changes), 64, 48, 1000)

    assert isinstance(made().policy, Continuous)
    assert made().pool.index is not None
    assert made(prefix_cache=False).pool.index is None
    assert made(policy="static").reserve == "final"
    assert isinstance(made(allocator="contiguous").pool, ContiguousPool)
    assert made(dynamic_batch=True, min_batch=4).cap == 4
    with pytest.raises(ConfigError, match="reserve"):
        EngineConfig(policy="static", reserve="known")


# --- the moving cap ---------------------------------------------------------------------


class Machine:
    """Steps take `base + per_row · rows` ms; decides every half second."""

    def __init__(self, base=10, per_row=1.0, **objective):
        self.base, self.per_row = base, per_row
        self.controller = BatchController(Objective(**({"least": 1, "most": 64} | objective)))
        self.cap, self.now, self.caps = 8, 0, []

    def settle(self, demand, rounds=200, wait_ms=0.0):
        for _ in range(rounds):
            running, waiting = min(demand, self.cap), max(0, demand - self.cap)
            self.controller.observe(self.base + self.per_row * running)
            self.now += BatchController.INTERVAL_NS
            decided = self.controller.decide(self.now, self.cap, running, waiting, wait_ms)
            if decided is not None:
                self.cap = decided[0]
                assert decided[1]
            self.caps.append(self.cap)
        return self.cap


def test_the_cap_grows_with_the_queue_to_the_objective_and_rests_there():
    machine = Machine(tpot_ms=40)
    cap = machine.settle(demand=100, rounds=60)
    assert 10 + cap <= 40 * 1.05
    assert cap >= 20
    steady = machine.caps[-30:]
    assert max(steady) - min(steady) <= max(2, cap // 6), steady


def test_constant_load_does_not_swing():
    machine = Machine(tpot_ms=40)
    machine.settle(demand=20, rounds=40)
    tail = machine.caps[-20:]
    assert len(set(tail)) == 1


def test_without_a_queue_the_cap_comes_down_and_not_below_the_load():
    machine = Machine(tpot_ms=1000)
    machine.settle(demand=60, rounds=60)
    assert machine.cap >= 60
    assert 5 <= machine.settle(demand=5, rounds=300) <= 12


def test_a_slower_machine_lowers_it_at_once():
    machine = Machine(tpot_ms=40)
    before = machine.settle(demand=100, rounds=60)
    machine.per_row = 4.0
    assert machine.settle(demand=100, rounds=20) < before * 0.5


def test_one_that_waited_too_long_opens_it_faster():
    patient, late = Machine(), Machine()
    patient.settle(demand=100, rounds=5)
    late.settle(demand=100, rounds=5, wait_ms=5000)
    assert late.cap > patient.cap
