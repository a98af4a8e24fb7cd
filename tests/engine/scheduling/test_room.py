"""Who is taken in beside those that run: by what is known, and by what is predicted."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.request import FinishReason, Priority, Request, SamplingParams
from engine.scheduling.continuous import Continuous
from engine.scheduling.controls import Controls
from engine.scheduling.lengths import SCORED
from engine.scheduling.pages import ContiguousPool, PagePool
from engine.scheduling.prefix import PrefixIndex
from engine.scheduling.room import EQUAL_NS, KnownRoom, PredictedRoom, room_in
from engine.scheduling.scheduler import PREEMPTIONS_MAX, Scheduler
from engine.stream import Stream

MS = 1_000_000
MOST = 400


class World:
    """Requests that may say MOST tokens and stop by themselves after `end`, pages of 4 tokens."""

    def __init__(self, pages=64, cap=16, reserve="predicted", budget=64, index=None, pool=None):
        self.pool = pool or PagePool(pages, 4, slabs=cap, index=index)
        self.scheduler = Scheduler(self.pool, Continuous(), cap, budget, 10_000, reserve)
        self.now, self.requests, self.ends = 0, [], {}

    def add(self, prompt, end, most=MOST, sure=False, priority=Priority.NORMAL):
        number = len(self.requests)
        params = SamplingParams(max_tokens=end if sure else most, ignore_eos=sure)
        request = Request(f"r{number}", params, Stream("r"), number=number)
        request.set_prompt([number] * prompt if isinstance(prompt, int) else prompt)
        request.priority, request.stamps.queued = priority, self.now
        self.requests.append(request)
        self.ends[request.id] = min(end, request.params.max_tokens)
        assert self.scheduler.refusal(request) is None
        self.scheduler.add(request)
        return request

    def step(self):
        self.now += MS
        plan = self.scheduler.plan(self.now)
        self.scheduler.publish(self.scheduler.accept(plan.items))
        for item in plan.items:
            if item.samples:
                item.request.append(7)
                if len(item.request.output_ids) == self.ends[item.request.id]:
                    self.scheduler.finish(item.request, FinishReason.STOP)
        return plan

    def run(self):
        steps = 0
        while self.scheduler.has_work:
            self.step()
            if steps % 8 == 0 or not self.scheduler.has_work:
                self.scheduler.check_integrity()
            steps += 1
            assert steps < 50_000, "no end"
        return steps


def crowd(reserve, seed, pages=120, sure=False, count=400):
    """A queue of requests whose outputs disperse, learnt on the way: (world, steps)."""
    world, rng = World(pages, cap=32, reserve=reserve), random.Random(seed)
    for _ in range(count):
        end = min(MOST, max(1, round(rng.lognormvariate(3, 0.9))))
        world.add(rng.randrange(4, 40), end, sure=sure)
    return world, world.run()


def total(world):
    return sum(r.preemptions for r in world.requests)


# --- what it brings ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
def test_less_is_computed_twice_and_it_takes_no_longer(seed):
    known, steps = crowd("known", seed, count=200)
    predicted, ahead = crowd("predicted", seed, count=200)
    assert known.scheduler.recomputed_tokens > 0
    assert predicted.scheduler.preemption_tax < known.scheduler.preemption_tax / 2
    assert ahead < steps


@pytest.mark.parametrize("seed", range(2))
def test_with_lengths_that_are_certain_hardly_anybody_is_preempted(seed):
    final, slow = crowd("final", seed, sure=True)
    ahead, steps = crowd("predicted", seed, sure=True)
    assert total(final) == 0
    assert ahead.scheduler.preemption_tax < 0.002
    assert steps < slow


def test_room_that_somebodys_end_will_give_is_used():
    """One holds eight of ten pages and says one token more: when the other grows it is gone."""
    world = World(pages=10, reserve="predicted")
    world.add(28, 4, sure=True)
    for _ in range(3):
        world.step()
    late = world.add(7, 20, sure=True)
    assert late in [item.request for item in world.step().items]
    world.run()
    assert total(world) == 0


def test_room_that_will_be_needed_is_not_given_away():
    """The same, but the first one stays: to its end it needs what the second would take."""
    world = World(pages=10, reserve="predicted")
    world.add(20, 18, sure=True)
    world.step()
    late = world.add(7, 20, sure=True)
    assert late not in [item.request for item in world.step().items]
    world.run()
    assert total(world) == 0
    known = World(pages=10, reserve="known")
    known.add(20, 18, sure=True)
    known.step()
    late = known.add(7, 20, sure=True)
    assert late in [item.request for item in known.step().items]


def test_pages_that_somebody_holds_already_are_not_counted_as_new():
    world = World(pages=26, cap=8, index=PrefixIndex(), budget=200)
    shared = list(range(100, 148))
    world.add([*shared, 1], 1, sure=True)
    world.run()
    for i in range(5):
        world.add([*shared, *[10 * i + n for n in range(10)]], 2, sure=True)
    world.step()
    assert len(world.scheduler.running) == 4
    assert world.pool.used == 12 + 4 * 3
    world.run()
    assert total(world) == 0


# --- order ------------------------------------------------------------------------------------


def test_among_equals_the_shorter_goes_first():
    world = World(pages=200, cap=1)
    first = world.add(8, 90, sure=True)
    world.step()
    long, short = world.add(8, 60, sure=True), world.add(8, 5, sure=True)
    world.now += 2 * EQUAL_NS
    later = world.add(8, 2, sure=True)
    world.run()
    started = sorted(world.requests, key=lambda r: r.stamps.first_scheduled)
    assert started == [first, short, long, later]


def test_the_order_of_priorities_stays():
    world = World(pages=200, cap=1)
    world.add(8, 30, sure=True)
    world.step()
    short = world.add(8, 2, sure=True)
    urgent = world.add(8, 50, sure=True, priority=Priority.HIGH)
    world.run()
    assert urgent.stamps.first_scheduled < short.stamps.first_scheduled


def test_a_long_one_is_passed_a_bounded_number_of_times():
    world = World(pages=200, cap=1)
    world.add(8, 3, sure=True)
    world.step()
    long = world.add(8, 90, sure=True)
    for _ in range(100):
        world.add(8, 1, sure=True)
    world.run()
    started = sorted(world.requests, key=lambda r: r.stamps.first_scheduled)
    assert 10 < started.index(long) <= 34


# --- when it does not hold ------------------------------------------------------------------------


def test_what_does_not_hold_is_not_used_and_both_turns_are_told():
    world, told = World(), []
    controls = Controls(world.scheduler, EngineConfig(), lambda *event: told.append(event))

    def end_of(count, length):
        """So many outputs of that length end of which 10 to 20 tokens were expected."""
        for _ in range(count):
            row = world.add(8, length)
            row.expected, row.output_ids = (10, 20), [7] * length
            world.scheduler.finish(row, FinishReason.STOP)
            controls.ended(row)

    end_of(SCORED, 15)
    world.add(8, 10)
    world.step()
    assert isinstance(room_in(world.scheduler), PredictedRoom)
    assert told == []
    end_of(SCORED // 2, 30)
    assert isinstance(room_in(world.scheduler), KnownRoom)
    (said,) = told
    assert said[0] == "reserve"
    assert "do not hold: 64 % of the last" in said[1] and "goes by what is known" in said[1]
    end_of(SCORED, 12)
    assert isinstance(room_in(world.scheduler), PredictedRoom)
    assert len(told) == 2
    assert "hold again: 70 %" in told[1][1] and "goes by what is predicted" in told[1][1]


def plans(world, seed):
    rng = random.Random(seed)
    for _ in range(120):
        world.add(rng.randrange(4, 30), rng.randrange(1, 90))
        if rng.random() < 0.7:
            yield from _plain(world.step())
    while world.scheduler.has_work:
        yield from _plain(world.step())


def _plain(plan):
    yield [(i.request.id, i.start, i.tokens) for i in plan.items]
    yield [r.id for r in plan.preempted]


@pytest.mark.parametrize("seed", range(3))
def test_without_predictions_it_plans_what_known_plans(seed):
    known, fallen = World(40, reserve="known"), World(40, reserve="predicted")
    fallen.scheduler.lengths.hold = False
    fallen.scheduler.lengths._score = lambda *_: None
    ours = list(plans(fallen, seed))
    assert ours == list(plans(known, seed))
    assert total(known) > 0


# --- promises ---------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_every_request_ends_and_the_pool_is_whole(data):
    pages = data.draw(st.integers(4, 20))
    index = PrefixIndex() if data.draw(st.booleans()) else None
    budget, cap = data.draw(st.integers(6, 40)), data.draw(st.integers(1, 6))
    world = World(pages, cap, budget=budget, index=index)
    sizes = st.tuples(st.integers(1, pages * 4 - 1), st.integers(1, 60), st.integers(1, 60))
    for prompt, end, most in data.draw(st.lists(sizes, max_size=12)):
        sure, priority = data.draw(st.booleans()), data.draw(st.sampled_from(Priority))
        world.add(prompt, end, most, sure, priority)
        for _ in range(data.draw(st.integers(0, 3))):
            world.step()
    world.scheduler.lengths.hold = data.draw(st.booleans())
    world.run()
    assert world.pool.used == 0
    assert all(r.preemptions <= PREEMPTIONS_MAX for r in world.requests)
    for request in world.requests:
        fits = len(request.prompt_ids) + world.ends[request.id] - 1 <= pages * 4
        reason = FinishReason.STOP if fits else FinishReason.KV_CAPACITY
        assert request.finish_reason is reason


@pytest.mark.parametrize("seed", range(2))
def test_a_starved_pool_preempts_nobody_often(seed):
    world, rng = World(pages=60), random.Random(seed)
    for _ in range(60):
        world.add(rng.randrange(4, 30), rng.choice([5, 120]))
        if rng.random() < 0.7:
            world.step()
    world.run()
    assert max(r.preemptions for r in world.requests) <= PREEMPTIONS_MAX
    assert all(r.finish_reason is FinishReason.STOP for r in world.requests)


def test_what_lies_scattered_is_no_room_for_one_run():
    """Eight of twelve pages are free, four and four: who needs five in a row waits."""
    world = World(pool=ContiguousPool(12, 4, slabs=8), cap=8, reserve="final")
    rows = [world.add(8, 8, sure=True) for _ in range(3)]
    world.step()
    for row in (rows[0], rows[2]):
        world.scheduler.finish(row, FinishReason.CANCELLED)
    assert world.pool.page_map() == "ffffssooffff"
    big = world.add(12, 8, sure=True)
    assert big not in [item.request for item in world.step().items]
    world.run()
    assert big.finish_reason is FinishReason.STOP


@pytest.mark.parametrize(
    "other", [{"policy": "static"}, {"allocator": "contiguous"}], ids=["static", "contiguous"]
)
def test_predicting_needs_pages_that_can_be_added(other):
    with pytest.raises(ConfigError, match="reserve: predicted needs pages"):
        EngineConfig(reserve="predicted", **other)
