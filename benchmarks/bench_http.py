"""What HTTP costs: `python -m benchmarks.bench_http [--client light|openai] [--clients 64]`.

The same closed-loop work (mixed lengths, every client its requests one after another) goes to one
engine, in turn through `Engine.submit` in this process and through the server, streamed, from
clients in a process of their own on the same machine. `light` reads bytes off the socket and counts
them, so that what is measured is the server; `openai` is the official client with all its own work.

Judged by CPU time, which does not care who else runs, and with its 95 % interval:

- `server_share`: of this process's CPU time while clients came by HTTP, that of the server's
  thread;
- `cost`: what a token took of this process by HTTP over what it took through `submit`, less 1, of
  pairs of rounds.

Rounds go on until both are known within ± 1 %, `--most` at most; exit code 3 if they are not then.
Tokens per second are given beside them, and scatter with whatever else this machine does.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass

import psutil

from playbooks.statistics.intervals import mean_interval, paired_change

KNOWN = 0.01
"""Half of an interval, when it is narrow enough."""
PROMPTS, OUTPUTS = (16, 32, 48, 64), (12, 16, 24, 32, 40)


def lengths(client, turn):
    n = client * 7 + turn * 3
    return PROMPTS[n % len(PROMPTS)], OUTPUTS[(client + turn) % len(OUTPUTS)]


def prompt(client, turn, tokens, salt):
    return [1000 + (client * 977 + turn * 131 + salt * 7919 + i * 31) % 20_000
            for i in range(tokens)]  # fmt: skip


# --- in process ----------------------------------------------------------------------


async def inside(engine, args, salt):
    from engine.request import SamplingParams
    from playbooks.load.record import RequestRecord, now_ns
    from playbooks.load.targets import EmbeddedTarget

    tokens = 0

    async def one(target, client):
        nonlocal tokens
        for turn in range(args.turns):
            length, output = lengths(client, turn)
            record = RequestRecord(0, now_ns(), length, output, sent=now_ns())
            params = SamplingParams(max_tokens=output, ignore_eos=True)
            await target.send((prompt(client, turn, length, salt), params), record)
            tokens += record.output_tokens

    async with EmbeddedTarget(engine) as target, asyncio.TaskGroup() as group:
        for client in range(args.clients):
            group.create_task(one(target, client))
    return tokens


# --- clients in a process of their own -------------------------------------------------


def body(client, turn, salt):
    length, output = lengths(client, turn)
    return {
        "prompt": prompt(client, turn, length, salt),
        "max_tokens": output,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


class Light(asyncio.Protocol):
    """One connection, requests one after another."""

    def __init__(self):
        self.ended = None
        self.tail = b""

    def connection_made(self, transport):
        self.transport = transport

    def connection_lost(self, error):
        if self.ended and not self.ended.done():
            self.ended.set_exception(ConnectionError("the server closed"))

    def data_received(self, data):
        self.tail = (self.tail + data)[-2000:]
        if self.tail.endswith(b"0\r\n\r\n"):
            self.ended.set_result(self.tail)

    async def ask(self, content):
        self.ended, self.tail = asyncio.get_running_loop().create_future(), b""
        head = (
            "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\n"
            f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
        )
        self.transport.write(head.encode() + content)
        tail = await self.ended
        assert b"[DONE]" in tail, tail
        return int(tail.rpartition(b'"completion_tokens":')[2].partition(b",")[0])


async def light(host, port, args, salt):
    async def one(client):
        loop, total = asyncio.get_running_loop(), 0
        _, connection = await loop.create_connection(Light, host, port)
        for turn in range(args.turns):
            total += await connection.ask(json.dumps(body(client, turn, salt)).encode())
        connection.transport.close()
        return total

    return sum(await asyncio.gather(*(one(i) for i in range(args.clients))))


async def official(host, port, args, salt):
    import openai

    asking = openai.AsyncOpenAI(base_url=f"http://{host}:{port}/v1", api_key="-", timeout=600)

    async def one(client):
        total = 0
        for turn in range(args.turns):
            extra = body(client, turn, salt)
            ignore_eos = {"ignore_eos": extra.pop("ignore_eos")}
            stream = await asking.completions.create(
                model=args.model, extra_body=ignore_eos, **extra
            )
            async for chunk in stream:
                if chunk.usage:
                    total += chunk.usage.completion_tokens
        return total

    async with asking:
        return sum(await asyncio.gather(*(one(i) for i in range(args.clients))))


def child(args):
    """For each line of standard input (a salt) one round; its tokens to standard output."""
    host, port = args.child.split(":")
    work = light if args.client == "light" else official
    for line in sys.stdin:
        print(asyncio.run(work(host, int(port), args, int(line))), flush=True)


# --- both ------------------------------------------------------------------------------


@dataclass
class Round:
    """CPU seconds of this process's threads but the server's, of that, and of the clients."""

    tokens: int
    wall_s: float
    engine_s: float
    server_s: float
    clients_s: float

    @property
    def rate(self):
        return self.tokens / self.wall_s

    @property
    def ms_per_token(self):
        return (self.engine_s + self.server_s) * 1e3 / self.tokens

    @property
    def server_share(self):
        return self.server_s / (self.engine_s + self.server_s)


def measured(work, client):
    before, start = cpu_seconds(client), time.perf_counter()
    tokens = work()
    wall, after = time.perf_counter() - start, cpu_seconds(client)
    return Round(tokens, wall, *(b - a for a, b in zip(before, after, strict=True)))


def cpu_seconds(client):
    """Of this process but for the server's thread, of that, and of the clients' process."""
    (server,) = (t for t in threading.enumerate() if t.name == "evewatch-http")
    here = psutil.Process()
    times = {t.id: t.user_time + t.system_time for t in here.threads()}
    own, serving = here.cpu_times(), times[server.native_id]
    theirs = psutil.Process(client).cpu_times()
    return own.user + own.system - serving, serving, theirs.user + theirs.system


def compare(engine, clients, args):
    """Pairs of rounds, inside and by HTTP in turns, until what is asked is known."""

    def ask(salt):
        clients.stdin.write(f"{salt}\n")
        clients.stdin.flush()
        return int(clients.stdout.readline())

    def inside_round(salt):
        engine.reset()  # no prompt of a round before is in the prefix cache
        return measured(lambda: asyncio.run(inside(engine, args, salt)), clients.pid)

    def http_round(salt):
        engine.reset()
        return measured(lambda: ask(salt), clients.pid)

    inside_round(0)
    http_round(1)  # both warm
    pairs = []
    while len(pairs) < args.rounds or (len(pairs) < args.most and not known(pairs)):
        i = len(pairs)
        if i % 2:
            http, own = http_round(100 + i), inside_round(10 + i)
        else:
            own, http = inside_round(10 + i), http_round(100 + i)
        pairs.append((own, http))
    return pairs


def server_share(pairs):
    return mean_interval([http.server_share for _, http in pairs])


def cost(pairs):
    return paired_change([own.ms_per_token for own, _ in pairs],
                         [http.ms_per_token for _, http in pairs])  # fmt: skip


def within(interval):
    """How far from its middle the value may be."""
    return (interval.high - interval.low) / 2


def known(pairs):
    return max(within(server_share(pairs)), within(cost(pairs))) <= KNOWN


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--client", choices=("light", "openai"), default="light")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=6, help="pairs at least")
    parser.add_argument("--most", type=int, default=40, help="pairs at most")
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--child")
    args = parser.parse_args()
    if args.child:
        child(args)
        return
    if args.rounds < 2:
        parser.error("--rounds: expected at least 2: one pair has no spread")
    from console.server import ServerSettings, serve_in_thread
    from engine.config import EngineConfig
    from engine.core import Engine

    config = EngineConfig(kv_memory=512 << 20, max_batch=48, model=args.model)
    name = "bench"
    with (
        Engine(config) as engine,
        serve_in_thread(engine, ServerSettings(port=0, served_name=name)) as server,
    ):
        command = [
            sys.executable, "-m", "benchmarks.bench_http",
            "--child", f"127.0.0.1:{server.port}", "--model", name,
            "--client", args.client, "--clients", str(args.clients), "--turns", str(args.turns),
        ]  # fmt: skip
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as clients:
            pairs = compare(engine, clients, args)
            clients.stdin.close()
    share, more = server_share(pairs), cost(pairs)
    print(json.dumps({
        "kind": "bench_http", "client": args.client, "clients": args.clients, "pairs": len(pairs),
        "server_share": asdict(share), "server_share_within": within(share),
        "cost": asdict(more), "cost_within": within(more),
        "known": known(pairs),
        "client_ms_per_token": statistics.median(h.clients_s * 1e3 / h.tokens for _, h in pairs),
        "inside_tok_s": statistics.median(own.rate for own, _ in pairs),
        "http_tok_s": statistics.median(http.rate for _, http in pairs),
        "rate_ratio": statistics.median(http.rate / own.rate for own, http in pairs),
    }, indent=1))  # fmt: skip
    sys.exit(0 if known(pairs) else 3)


if __name__ == "__main__":
    main()
