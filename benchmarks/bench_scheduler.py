"""What a step costs without the model: `python -m benchmarks.bench_scheduler`.

256 requests run, and 0, 1,000 or 100,000 wait. Model and sampler are stubs; everything else is
the engine's own step: intake, plan, batch tensors, apply, detokenize, streams, telemetry.
Prints the median CPU time of a step in ms (so that other work on the machine does not count),
and its ratio to the case where nobody waits.
"""

import json
import statistics
import time

import torch

from engine.request import SamplingParams
from engines import tiny_engine

RUNNING, STEPS, ROUNDS = 256, 150, 3


def engine_with(waiting):
    engine = tiny_engine(
        pages=RUNNING * 20, max_batch=RUNNING, token_budget=512, max_waiting=200_000
    )
    engine.runner.run = lambda batch: torch.zeros(len(batch.sampling), 4)
    engine.sampler.sample = lambda logits, requests, ahead=(): [5] * len(requests)
    params = SamplingParams(max_tokens=230, ignore_eos=True)
    for _ in range(RUNNING + waiting):
        engine.submit([7, 8], params)
    while len(engine.scheduler.running) < RUNNING:
        engine.step()
    engine.step()
    return engine


def step_ms(engine):
    times = []
    for _ in range(STEPS // ROUNDS):
        start = time.thread_time()
        engine.step()
        times.append(time.thread_time() - start)
    return times


def main():
    engines = {waiting: engine_with(waiting) for waiting in (0, 1_000, 100_000)}
    times = {waiting: [] for waiting in engines}
    for _ in range(ROUNDS):  # in turn, so that a drift of the machine hits all alike
        for waiting, engine in engines.items():
            times[waiting] += step_ms(engine)
            assert len(engine.scheduler.running) == RUNNING
            assert len(engine.scheduler.waiting) == waiting
    medians = {w: statistics.median(t) * 1e3 for w, t in times.items()}
    report = {
        "kind": "bench_scheduler",
        "running": RUNNING,
        "step_ms": medians,
        "ratio_to_none_waiting": {w: m / medians[0] for w, m in medians.items()},
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
