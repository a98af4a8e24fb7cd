"""What building a Snapshot costs the loop."""

import statistics
import time

from engine.config import EngineConfig
from engine.observing.observer import REQUESTS_SHOWN
from engine.request import SamplingParams
from engine.scheduling.plan import ModelFacts
from engine.simulated.cost import LinearCost, kv_facts
from engine.simulated.replica import Replica

FACTS = ModelFacts("simulated", "none", "none", 300, 1000, kv_facts(1280, 16, 100.0, 200.0, 64))


def crowded(waiting):
    config = EngineConfig(max_batch=64, token_budget=128)
    twin = Replica(config, FACTS, LinearCost(1e7, 1e5, 1e5), pages=1280, max_model_len=256)
    params = SamplingParams(200, ignore_eos=True)
    for _ in range(waiting):
        twin.submit([7, 8], params)
    twin.run_until(10**9)
    return twin.loop


def test_a_snapshot_costs_the_same_however_many_wait_and_its_ledger_is_the_full_one():
    loops = [crowded(100), crowded(10_000), crowded(100_000)]
    times: list[list[float]] = [[], [], []]
    for _ in range(40):  # in turn, so that other work on the machine hits both alike
        for loop, spent in zip(loops, times, strict=True):
            start = time.thread_time()
            loop.observer.publish()
            spent.append(time.thread_time() - start)
    few, many, most = map(statistics.median, times)
    assert max(many, most) < 1.5 * few  # 1.13 on a quiet machine
    for loop, shown in zip(loops, (100, REQUESTS_SHOWN, REQUESTS_SHOWN), strict=True):
        assert loop.observer.snapshot.ledger == loop.ledger().totals
        assert len(loop.observer.snapshot.requests) == shown
