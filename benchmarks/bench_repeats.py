"""Can one `bench` run be believed? `python -m benchmarks.bench_repeats [--runs 10] [--busy 1]`.

Runs of `evewatch bench` in a row, beside processes that compute for a random while and rest for a
random while. Each run says what fraction of the machine's limit it reached, what others took of
the CPU time that it asked for, and whether its report is marked. Runs that are not marked have to
lie within ± .06 of each other: exit code 0; 1 if they do not; 3 if fewer than two are not marked.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager

from engine.config import EngineConfig
from playbooks.measure.bench import run_bench
from playbooks.steps.models import BenchWork

WITHIN = 0.06
BUSY_S, REST_S = (1.0, 15.0), (5.0, 60.0)
"""For so long a busy process computes, and rests: some runs meet it and some do not."""


@contextmanager
def comes_and_goes(seed):
    """A process that takes all it gets of one core, now and then."""
    rng, ended = random.Random(seed), threading.Event()
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])

    def drive():
        while not ended.is_set():
            os.kill(busy.pid, signal.SIGSTOP)
            ended.wait(rng.uniform(*REST_S))
            os.kill(busy.pid, signal.SIGCONT)
            ended.wait(rng.uniform(*BUSY_S))

    thread = threading.Thread(target=drive, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        busy.kill()
        busy.wait()


def judged(runs):
    """Of rows with `roofline_fraction` and `doubt`: how far apart the unmarked are."""
    found = [row["roofline_fraction"] for row in runs if row["doubt"] is None]
    if len(found) < 2:
        return {"unmarked": len(found), "apart": None, "verdict": "inconclusive"}
    apart = max(found) - min(found)
    return {"unmarked": len(found), "apart": apart,
            "verdict": "pass" if apart <= WITHIN else "fail"}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--busy", type=int, default=1, help="processes that come and go")
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", default="embedded")
    args = parser.parse_args()
    work, config = BenchWork(requests=args.requests), EngineConfig(model=args.model)
    rows = []
    with ExitStack() as stack:
        for number in range(args.busy):
            stack.enter_context(comes_and_goes(args.seed + number))
        for number in range(args.runs):
            report = run_bench(config, work)
            host = report["host"]
            rows.append({
                "roofline_fraction": report["roofline_fraction"],
                "output_tok_s": report["throughput"]["output_tok_s"],
                "lost": host["lost"], "doubt": host["doubt"],
            })  # fmt: skip
            row = rows[-1]
            lost = "–" if row["lost"] is None else f"{row['lost']:.0%}"
            mark = "marked" if row["doubt"] else ""
            print(f"{number + 1:>3}  roofline {row['roofline_fraction']:.3f}  "
                  f"{row['output_tok_s']:7.1f} tok/s  lost {lost:>4}  {mark}",
                  file=sys.stderr, flush=True)  # fmt: skip
    found = judged(rows)
    print(json.dumps({"kind": "bench_repeats", "runs": rows, **found}, indent=1))
    sys.exit({"pass": 0, "fail": 1, "inconclusive": 3}[found["verdict"]])


if __name__ == "__main__":
    main()
