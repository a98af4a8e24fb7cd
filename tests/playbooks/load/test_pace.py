"""The console's own load: when it sends, over the simulated engine in virtual time."""

import itertools
import random
import statistics

import pytest

from engine.config import EngineConfig
from engine.request import SamplingParams
from engine.scheduling.plan import ModelFacts
from engine.simulated.cost import LinearCost, kv_facts
from engine.simulated.replica import Replica
from playbooks.load.arrivals import unit_gaps
from playbooks.load.lengths import Lognormal
from playbooks.load.mix import Preset
from playbooks.load.pace import MOST_RATE, FollowingPace, SteadyPace

LOOK_NS = 100_000_000
LENGTHS = Preset(Lognormal.with_mean(60, 0.8, 400), Lognormal.with_mean(30, 0.8, 200))


class Machine:
    """Steps cost as of LinearCost, times `slow`."""

    least = 0

    def __init__(self, floor_ms):
        self.cost, self.slow = LinearCost(floor_ms * 1e6, 0.2e6, 0.6e6), 1.0

    def __call__(self, plan):
        return int(self.cost(plan) * self.slow)


class World:
    """A replica under a pace, and what became of it."""

    def __init__(self, cap=12, floor_ms=40.0, seed=0, pages=4096, pace=None):
        self.machine = Machine(floor_ms)
        config = EngineConfig(model="sim", device="cpu", max_batch=64, token_budget=128)
        facts = ModelFacts("sim", "cpu", "cpu", 49_152, 1, kv_facts(pages, 16, 1e4, 2e4, 64))
        self.replica = Replica(config, facts, self.machine, pages=pages, max_model_len=4096)
        self.loop = self.replica.loop
        self.loop.scheduler.cap = cap
        self.pace = pace or FollowingPace(unit_gaps(seed), self.now)
        self.pairs = LENGTHS.pairs(seed)
        self.under_way = self.failed = 0
        self.sent, self.queues, self.idle, self.ends = [], [], [], []
        """Times; (time, running, waiting) at each look; (time, how long nothing was to do); of
        those that have just ended, whether they were refused."""

    @property
    def now(self):
        return self.replica.clock.ns()

    @property
    def waiting(self):
        scheduler = self.loop.scheduler
        return max(len(scheduler.waiting), self.under_way - len(scheduler.running))

    @property
    def steps(self):
        return self.loop.telemetry.totals["steps"]

    def run(self, seconds):
        """A step, or a sleep; then the load's own thread lives through the same time."""
        end = self.now + int(seconds * 1e9)
        while self.now < end:
            before, busy = self.now, self.loop.scheduler.has_work
            steps = self.steps
            self.replica.run_until(before + 1 if busy else min(before + LOOK_NS // 10, end))
            self._live(before, self.now)
            if self.steps == steps:
                self.idle.append((before, self.now - before))
            while self.ends:
                self.under_way -= 1
                refused = self.ends.pop()
                self.failed += refused
                (self.pace.failed if refused else self.pace.ended)(self.now)
            self.queues.append((self.now, len(self.loop.scheduler.running), self.waiting))

    def _live(self, moment, until):
        while moment <= until:
            cap = self.loop.scheduler.cap
            due = self.pace.due(moment, self.under_way, self.waiting, cap)
            if due is not None and due <= min(moment + LOOK_NS, until):
                moment = due
                self._send(moment)
            else:
                moment += LOOK_NS

    def _send(self, moment):
        prompt, output = next(self.pairs)
        ids = [1 + len(self.sent) % 40_000, *range(2, prompt + 1)]
        params = SamplingParams(max_tokens=output, ignore_eos=True)
        self.under_way += 1
        self.sent.append(moment)
        stream = self.replica.submit(ids, params, at=moment).stream
        stream.listen(None, lambda: self.ends.append(stream.result().error is not None))
        self.pace.sent(moment)

    def mean(self, what, since):
        return statistics.fmean(row[what] for row in self.queues if row[0] >= since)


@pytest.mark.parametrize("seed", range(10))
def test_the_engine_never_idles_and_never_drowns_whatever_changes(seed):
    rng = random.Random(seed)
    cap = most = rng.randint(1, 40)
    world = World(cap, rng.choice([15.0, 40.0, 120.0]), seed)
    world.run(10)
    for _ in range(3):
        if rng.random() < 0.5:
            world.loop.scheduler.cap = cap = rng.randint(1, 40)
            most = max(most, cap)
        else:
            world.machine.slow = rng.choice([0.25, 1.0, 4.0])
        world.run(20)
    assert max(waiting for _, _, waiting in world.queues) <= max(2, most // 4)
    # A cap of one, with answers of a token or two, has to wait for the next to be sent.
    assert max((length for _, length in world.idle), default=0) <= 2e9 / MOST_RATE
    assert sum(length for _, length in world.idle) <= 0.05 * world.now
    assert min(b - a for a, b in itertools.pairwise(world.sent)) >= int(1e9 / MOST_RATE)


@pytest.mark.parametrize("cap", [4, 16, 32])
def test_it_settles_at_a_full_batch_with_a_short_queue(cap):
    world = World(cap)
    world.run(120)
    since = 30 * 10**9
    assert world.mean(1, since) >= 0.8 * cap
    assert world.mean(2, since) <= max(2, cap // 4)
    assert any(waiting == 0 for when, _, waiting in world.queues if when >= since)
    gaps = [b - a for a, b in itertools.pairwise(world.sent) if a >= since]
    assert 0.5 < statistics.stdev(gaps) / statistics.fmean(gaps) < 1.6  # traffic, no drumbeat


def test_a_smaller_cap_drains_without_a_pause():
    world = World(32)
    world.run(30)
    world.loop.scheduler.cap = 4
    since = world.now
    world.run(60)
    assert not [1 for when, _ in world.idle if when >= since]
    assert world.mean(1, since + 20 * 10**9) >= 3


def test_where_pages_are_the_limit_the_queue_stays_short():
    world = World(32, pages=48)
    world.run(60)
    assert world.loop.telemetry.totals["preemptions"] >= 0
    assert max(row[1] for row in world.queues) < 24  # the pool has room for fewer than the cap
    assert world.mean(2, 10 * 10**9) <= 8
    assert not [1 for when, length in world.idle if when > 10**9]


def test_an_engine_that_takes_nothing_is_asked_once_a_second():
    world = World(8)
    world.run(5)
    world.loop.controls.set_draining(True)
    world.run(10)  # what runs ends
    before = world.failed
    world.run(20)
    assert 15 <= world.failed - before <= 21
    world.loop.controls.set_draining(False)
    since = world.now
    world.run(10)
    assert world.mean(1, since + 2 * 10**9) >= 4


def test_what_was_measured_before_a_hold_does_not_count_after_it():
    world = World(16)
    world.run(20)
    world.replica.run_until(world.now + 600 * 10**9)  # held
    world.pace.resume(world.now)
    since = world.now
    world.run(20)
    assert world.mean(1, since + 5 * 10**9) >= 0.7 * 16


def test_a_given_rate_is_kept_whatever_becomes_of_the_requests():
    pace = SteadyPace(unit_gaps(3), 5.0, 0)
    times, now = [], 0
    for _ in range(200):
        due = pace.due(now, under_way=999, waiting=999, cap=1)
        now = max(now, due + 10_000_000)  # late at every one
        times.append(due)
        pace.failed(now)
        pace.sent(now)
    gaps = itertools.islice(unit_gaps(3), 200)
    expected = itertools.accumulate(gap / 5.0 * 1e9 for gap in gaps)
    assert times == pytest.approx(list(expected), abs=1000)
