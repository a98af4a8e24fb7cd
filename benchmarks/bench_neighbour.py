"""What a busy program beside the engine takes of it: `python -m benchmarks.bench_neighbour`.

A closed batch is served in turns without and with `--loops` processes that do nothing but compute,
at the same priority. Where they and the engine's threads are more than the cores, a fair scheduler
gives everybody an equal share: `fair` is what that would take of the engine. The rest of `lost` is
threads that wait for one another.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from engine.config import EngineConfig
from engine.core import Engine
from engine.request import SamplingParams

OUTPUT = 48
WARM_UP_S = 0.5
"""After which a scheduler knows its loops."""


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """So many processes that compute."""
    command = [sys.executable, "-c", "while True: pass"]
    started = [subprocess.Popen(command) for _ in range(loops)]
    try:
        time.sleep(WARM_UP_S)
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()


def rate(engine: Engine, batch: int, seed: int) -> float:
    """Output tokens a second."""
    rng, params = random.Random(seed), SamplingParams(OUTPUT, ignore_eos=True)
    prompts = [[rng.randrange(100, 40_000) for _ in range(32)] for _ in range(batch)]
    start = time.perf_counter()
    streams = [engine.submit(prompt, params) for prompt in prompts]
    tokens = sum(len(stream.result().token_ids) for stream in streams)
    return tokens / (time.perf_counter() - start)


def measure(engine: Engine, batch: int, turns: int, loops: int) -> dict[str, Any]:
    alone, beside = [], []
    rate(engine, batch, 0)
    for turn in range(turns):
        alone.append(rate(engine, batch, turn))
        with busy(loops):
            beside.append(rate(engine, batch, turn))
    lost = [1 - b / a for a, b in zip(alone, beside, strict=True)]
    threads, cores = torch.get_num_threads(), len(os.sched_getaffinity(0))
    return {
        "batch": batch,
        "alone_tokens_s": statistics.median(alone),
        "beside_tokens_s": statistics.median(beside),
        "lost": statistics.median(lost),
        "lost_each": [round(one, 3) for one in lost],
        "fair": 1 - min(1.0, cores / (threads + loops)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 16])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--loops", type=int, default=1)
    parser.add_argument("--compute", default="f32")
    options = parser.parse_args()
    engine = Engine(EngineConfig(compute=options.compute))
    engine.start()
    for batch in options.batch:
        print(json.dumps(measure(engine, batch, options.turns, options.loops)), flush=True)
    engine.stop()


if __name__ == "__main__":
    main()
