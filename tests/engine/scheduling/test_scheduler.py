"""The scheduler without a model: every sampled token is 7."""

import random

import pytest

from engine.request import FinishReason, Request, SamplingParams, Status
from engine.scheduling.continuous import Continuous
from engine.scheduling.pages import PagePool
from engine.scheduling.plan import Plan
from engine.scheduling.scheduler import PREEMPTIONS_MAX, Scheduler
from engine.stream import Stream


class World:
    """A scheduler on `pages` pages of 4 tokens, with slabs, and the requests it was given."""

    def __init__(self, pages=12, cap=4, budget=16, longest=1000):
        self.pool = PagePool(pages, 4, slabs=cap)
        self.scheduler = Scheduler(self.pool, Continuous(), cap, budget, longest)
        self.now = 0
        self.requests = []
        self.useful = self.computed = 0

    def add(self, prompt, output=4, deadline=0):
        number = len(self.requests)
        params = SamplingParams(max_tokens=output, ignore_eos=True)
        request = Request(f"r{number}", params, Stream(f"r{number}"), number=number)
        request.set_prompt([1] * prompt)
        request.deadline = deadline
        self.requests.append(request)
        assert self.scheduler.refusal(request) is None
        self.scheduler.add(request)
        return request

    def step(self):
        self.now += 1
        plan = self.scheduler.plan(self.now)
        assert plan.tokens <= self.scheduler.token_budget
        self.scheduler.publish(self.scheduler.accept(plan.items))
        for item in plan.items:
            self.computed += item.tokens
            if item.samples:
                item.request.append(7)
                if len(item.request.output_ids) == item.request.params.max_tokens:
                    self.scheduler.finish(item.request, FinishReason.LENGTH)
        self.scheduler.check_integrity()
        return [(item.request.id, item.tokens) for item in plan.items], plan

    def run(self, limit=10_000):
        for _ in range(limit):
            if not self.scheduler.has_work:
                return
            self.step()
        raise AssertionError("no end")


def test_prefill_is_chunked_and_decode_comes_first():
    world = World(pages=30, budget=16)
    world.add(4, output=9)
    world.add(40)
    assert world.step()[0] == [("r0", 4), ("r1", 12)]
    assert world.step()[0] == [("r0", 1), ("r1", 15)]
    assert world.step()[0] == [("r0", 1), ("r1", 13)]
    assert world.step()[0] == [("r0", 1), ("r1", 1)]


def test_finished_ones_leave_and_waiting_ones_fill_the_gap_in_the_next_step():
    world = World(cap=2)
    world.add(2, output=1)
    world.add(2, output=3)
    world.add(2, output=1)
    items, plan = world.step()
    assert (items, plan.bound_by) == ([("r0", 2), ("r1", 2)], "cap")
    assert world.step()[0] == [("r1", 1), ("r2", 2)]


def test_k19_k35_what_never_fits_is_refused_with_the_reason():
    scheduler = World(pages=4, longest=100).scheduler

    def refusal(prompt):
        request = Request("r", SamplingParams(), Stream("r"), prompt_ids=[1] * prompt)
        return scheduler.refusal(request)

    assert "no tokens" in refusal(0)
    assert "whole KV pool holds 16" in refusal(16)
    assert "model's limit" in refusal(100)
    assert refusal(15) is None


def test_k23_one_that_outgrows_the_pool_ends_with_kv_capacity_and_the_engine_goes_on():
    world = World(pages=3, cap=2)
    big = world.add(10, output=100)
    small = world.add(3, output=2)
    world.run()
    assert big.finish_reason is FinishReason.KV_CAPACITY
    assert len(big.output_ids) == 3  # 12 tokens fit, and the 13th is known but has no room
    assert small.finish_reason is FinishReason.LENGTH


def test_preemption_takes_the_youngest_and_recomputes_it():
    world = World(pages=6, cap=2)
    old = world.add(7, output=9)
    young = world.add(7, output=9)
    world.run()
    assert (old.preemptions, young.preemptions) == (0, 1)
    assert all(len(r.output_ids) == 9 for r in (old, young))
    assert world.pool.free == world.pool.total


def test_k15_tail_of_a_starved_pool_still_drains():
    world = World(pages=8, cap=4, budget=8)
    for _ in range(5):
        world.add(6, output=10)
    world.run()
    assert all(r.finish_reason is FinishReason.LENGTH for r in world.requests)
    assert max(r.preemptions for r in world.requests) <= PREEMPTIONS_MAX + 1


def test_timeouts_end_waiting_and_running_requests():
    world = World(cap=1)
    running = world.add(3, output=50, deadline=3)
    waiting = world.add(3, output=50, deadline=2)
    plans = [world.step()[1] for _ in range(3)]
    assert [plan.ended for plan in plans] == [
        [],
        [(waiting, FinishReason.TIMEOUT)],
        [(running, FinishReason.TIMEOUT)],
    ]
    assert world.pool.free == world.pool.total


def test_ended_requests_do_not_pile_up_behind_far_deadlines():
    world = World()
    for _ in range(500):
        world.add(1, output=1, deadline=10**9)
        world.run()
    assert len(world.scheduler._deadlines) < 100


@pytest.mark.parametrize("state", ["waiting", "prefill", "decode", "preempted", "finished"])
def test_k4_finish_is_legal_and_idempotent_in_every_state(state):
    world = World(pages=30, budget=8)
    request = world.add(12, output=6)
    if state != "waiting":
        world.step()
    if state in ("decode", "preempted"):
        world.step()
    if state == "preempted":
        world.scheduler.preempt(request, Plan())
        assert request.status is Status.PREEMPTED
    if state == "finished":
        world.run()
    for _ in range(2):
        world.scheduler.finish(request, FinishReason.CANCELLED)
        world.scheduler.check_integrity()
    assert world.pool.free == world.pool.total
    assert not world.scheduler.has_work


def test_paused_admits_nobody_and_goes_on_with_the_rest():
    world = World()
    world.add(2, output=3)
    world.step()
    world.scheduler.paused = True
    world.add(2)
    assert world.step()[0] == [("r0", 1)]
    world.scheduler.paused = False
    assert world.step()[0] == [("r0", 1), ("r1", 2)]


@pytest.mark.parametrize("block", range(10))
def test_a_thousand_random_lives_leave_the_pool_whole(block):
    """100 a block: submit, cancel and finish in any order on 12 pages."""
    for seed in range(block * 100, block * 100 + 100):
        rng = random.Random(seed)
        world = World(pages=12, cap=rng.choice([1, 3, 8]), budget=rng.choice([8, 16]))
        for _ in range(rng.randrange(5, 40)):
            move = rng.random()
            if move < 0.4:
                world.add(rng.randrange(1, 40), rng.randrange(1, 30))
            elif move < 0.6 and world.requests:
                world.scheduler.finish(rng.choice(world.requests), FinishReason.CANCELLED)
            else:
                world.step()
        world.run()
        assert world.pool.free == world.pool.total == 12
        assert world.pool.free_slabs == world.pool.slabs
        assert all(r.status is Status.FINISHED for r in world.requests)
