"""How good the load generator itself is: `python -m benchmarks.bench_generator`.

Three questions, each a block of the JSON that is printed:

`alone`: against a target that answers at once, how late are 2,000 requests/s sent, and what is
the most that it sends?
`stub`: against an HTTP server in another process with known delays, how far off are TTFT, TPOT,
E2E and throughput, in percent?
`overload`: against that server with few seats and too much offered, does latency grow from the
scheduled time as it must? (the slope measured over the slope expected)
"""

import asyncio
import json
import multiprocessing
from contextlib import contextmanager

import numpy as np

from load_stub import StubServer, timed
from playbooks.load.client import run_load
from playbooks.load.endpoint import Endpoint, EndpointSpec
from playbooks.load.loop import new_loop
from playbooks.load.summary import summarize
from playbooks.load.targets import NullTarget
from playbooks.load.workload import make_spec

TTFT, ITL, OUTPUT, PROMPT = 0.15, 0.02, 16, 20
E2E = TTFT + (OUTPUT - 1) * ITL
LENGTHS = f"fixed:{PROMPT},{OUTPUT}"


def serve(capacity, address):
    async def forever():
        async with StubServer(timed(TTFT, ITL, capacity)) as server:
            address.send(server.url)
            await asyncio.Event().wait()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(forever())


@contextmanager
def stub(capacity=10_000):
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(capacity, theirs))
    process.start()
    try:
        yield Endpoint(EndpointSpec(ours.recv()))
    finally:
        process.terminate()
        process.join()


def alone(rate):
    spec = make_spec(f"poisson:{rate}", "chat", duration_s=5)
    found = summarize(run_load(NullTarget(), spec))
    return {
        "rate": rate,
        "sent_per_s": round(found["throughput"]["requests_s"]),
        "send_delay_ms": {k: round(found["send_delay_ms"][k], 2) for k in ("p50", "p99")},
        "generator_bound": found["generator_bound"],
    }


def most():
    """Users without thought on an instant target: as fast as it goes."""
    found = summarize(run_load(NullTarget(), make_spec("closed:8", "chat", duration_s=4)))
    return round(found["throughput"]["requests_s"])


def accuracy(endpoint, arrivals, rate):
    found = summarize(run_load(endpoint, make_spec(arrivals, LENGTHS, requests=300)))
    latency, throughput = found["latency"], found["throughput"]
    pairs = {
        "ttft_p50": (latency["ttft_ms"]["p50"], TTFT * 1e3),
        "ttft_p99": (latency["ttft_ms"]["p99"], TTFT * 1e3),
        "tpot_p50": (latency["tpot_ms"]["p50"], ITL * 1e3),
        "e2e_p50": (latency["e2e_ms"]["p50"], E2E * 1e3),
        "e2e_p99": (latency["e2e_ms"]["p99"], E2E * 1e3),
        "requests_s": (throughput["requests_s"], rate),
        "output_tok_s": (throughput["output_tok_s"], rate * OUTPUT),
        "total_tok_s": (throughput["total_tok_s"], rate * (OUTPUT + PROMPT)),
    }
    off = {name: round((found / truth - 1) * 100, 2) for name, (found, truth) in pairs.items()}
    return {"arrivals": arrivals, "off_percent": off, "verdict": found["verdict"]}


def overload(seats=4, rate=20):
    with stub(seats) as endpoint:
        result = run_load(endpoint, make_spec(f"constant:{rate}", LENGTHS, requests=240))
    due = np.array([(r.scheduled - result.start) / 1e9 for r in result.records])
    latency = np.array([r.e2e_ms / 1e3 for r in result.records])
    slope = np.polyfit(due, latency, 1)[0]
    found = summarize(result)
    return {
        "slope_over_expected": round(slope / (rate * E2E / seats - 1), 4),
        "correlation": round(float(np.corrcoef(due, latency)[0, 1]), 5),
        "throughput_over_capacity": round(found["throughput"]["requests_s"] / (seats / E2E), 4),
        "send_delay_p99_ms": round(found["send_delay_ms"]["p99"], 2),
    }


def main():
    with stub() as endpoint:
        loads = (("constant:20", 20), ("closed:8", 8 / E2E))
        accurate = [accuracy(endpoint, *load) for load in loads]
    report = {
        "alone": [alone(2000), alone(4000)],
        "most_per_s": most(),
        "stub": accurate,
        "overload": overload(),
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
