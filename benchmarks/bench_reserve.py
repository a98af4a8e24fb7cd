"""What admission by learnt lengths brings: `python -m benchmarks.bench_reserve TRACE …`.

Each trace is replayed in virtual time through the real loop, at equal KV memory and several loads,
with admission by what is known, by what is predicted, to the end that clients allow, and by an
oracle: the same look-ahead, and room to the end, with the true lengths. An output ends by itself
where the trace's ended; only the oracles are told where.

Loads are shares of what the better oracle serves when everything comes at once. Prints Markdown:
recomputed over useful tokens (tax), output tokens a second while requests arrive, and as a share
of the better oracle's, and the time to the first token in s.
"""

import argparse
import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine.config import EngineConfig
from engine.request import SamplingParams
from engine.scheduling.plan import ModelFacts
from engine.simulated.cost import LinearCost, kv_facts, made_up
from engine.simulated.replica import Replica
from playbooks.load.traces import Trace

PAGES, PAGE_TOKENS, MAX_BATCH = 1536, 16, 256
LIMIT = 2048
"""Output tokens that clients allow: more than any of the traces' outputs has."""
MAX_MODEL_LEN = 32_768
EOS = 1 << 15
WARM_UP = 0.1
"""Of the time in which requests arrive: learnt from, not counted."""
COST = {"floor": 12e6, "prompt_token": 60e3, "decode_token": 100e3, "context_token": 20.0}
"""About a model of 7 B on a data centre's GPU, in ns."""
ARMS = {
    "known": ("known", False),
    "predicted": ("predicted", False),
    "final": ("final", False),
    "oracle, look-ahead": ("predicted", True),
    "oracle, final": ("final", True),
}
"""What is reserved, and whether the true lengths are told."""


@dataclass(frozen=True)
class Result:
    seconds: float
    """In which the last requests arrived and all of them ended."""
    tax: float
    preemptions: int
    output_s: float
    ttft: tuple[float, float]
    """P50 and P99, s."""
    coverage: float | None


def replay(rows, arm, rate_factor, pages):
    """`rows`: (at_s, prompt, output) …; times are divided by `rate_factor`."""
    reserve, told = ARMS[arm]
    config = EngineConfig(
        max_batch=MAX_BATCH, token_budget=2048, page_tokens=PAGE_TOKENS, reserve=reserve
    )
    facts = ModelFacts("simulated", "none", "none", EOS + 1, 0,
                       kv_facts(pages, PAGE_TOKENS, 100.0, 200.0, MAX_BATCH))  # fmt: skip
    ends = {}

    def token(request):
        last = len(request.output_ids) + 1 >= ends[request.number]
        return EOS if last and not request.params.ignore_eos else made_up(request)

    replica = Replica(
        config, facts, LinearCost(**COST), pages=pages, max_model_len=MAX_MODEL_LEN,
        token=token, eos_ids=frozenset({EOS}),
    )  # fmt: skip
    requests = []
    for number, (at_s, prompt, output) in enumerate(rows, 1):
        ends[number] = output
        at = 1 + int(at_s / rate_factor * 1e9)
        replica.run_until(at)
        params = SamplingParams(output if told else LIMIT, ignore_eos=told)
        requests.append(replica.submit([number] * prompt, params, at=at))
    replica.run()
    begin, arrived = WARM_UP * at, at
    stamps = [request.stamps for request in requests]
    times = np.concatenate([np.frombuffer(s.tokens, np.int64) for s in stamps])
    counted = [s for s in stamps if s.arrival >= begin]
    ttft = np.array([s.first_token - s.arrival for s in counted]) / 1e9
    scheduler = replica.loop.scheduler
    return Result(
        seconds=replica.clock.ns() / 1e9,
        tax=scheduler.preemption_tax,
        preemptions=replica.loop.telemetry.totals["preemptions"],
        output_s=float(((times >= begin) & (times < arrived)).sum() / (arrived - begin) * 1e9),
        ttft=(float(np.quantile(ttft, 0.5)), float(np.quantile(ttft, 0.99))),
        coverage=scheduler.lengths.coverage if scheduler.lengths else None,
    )


def compare(path, loads, count, pages):
    rows = [(r.at_s, r.prompt, min(r.output, LIMIT))
            for r in itertools.islice(Trace(path).rows(), count)]  # fmt: skip
    start = rows[0][0]
    rows = [(at - start, prompt, output) for at, prompt, output in rows]
    own_rate = len(rows) / rows[-1][0]
    at_once = [replay(rows, arm, 1e6, pages).seconds for arm in ARMS if ARMS[arm][1]]
    capacity = len(rows) / min(at_once)
    print(f"\n{path.name}: the first {len(rows):,} requests, {pages} pages; the better oracle "
          f"serves {capacity:.2f} requests/s\n")  # fmt: skip
    heads = ("load", "admission", "tax", "preempted", "output tok/s", "of the oracle's",
             "TTFT P50, s", "P99", "coverage")  # fmt: skip
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
    for load in loads:
        results = {arm: replay(rows, arm, load * capacity / own_rate, pages) for arm in ARMS}
        best = max(r.output_s for arm, r in results.items() if ARMS[arm][1])
        for arm, r in results.items():
            coverage = "–" if r.coverage is None else f"{r.coverage:.0%}"
            print(f"| {load:.2f} | {arm} | {r.tax:.2%} | {r.preemptions:,} | {r.output_s:,.0f} | "
                  f"{r.output_s / best:.1%} | {r.ttft[0]:.2f} | {r.ttft[1]:.2f} | {coverage} |",
                  flush=True)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("traces", nargs="+", type=Path, help="files that `evewatch load` reads")
    parser.add_argument("--loads", type=float, nargs="+", default=[0.7, 0.9, 1.1, 1.4])
    parser.add_argument("--requests", type=int, default=2000, help="of each trace, its first ones")
    parser.add_argument("--pages", type=int, default=PAGES)
    given = parser.parse_args()
    for path in given.traces:
        compare(path, given.loads, given.requests, given.pages)


if __name__ == "__main__":
    main()
