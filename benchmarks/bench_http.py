"""What HTTP costs: `python -m benchmarks.bench_http [--client light|openai] [--clients 64]`.

The same closed-loop work (mixed lengths, every client its requests one after another) goes to one
engine, in turn through `Engine.submit` in this process and through the server, streamed, from
clients in a process of their own on the same machine. Prints output tokens/s of both, round by
round, and the median ratio of the pairs. `light` reads bytes off the socket and counts them, so
that what is measured is the server; `openai` is the official client with all its own work.

On a machine that is not quiet the ratios scatter; what does so less: `server_cpu` and `client_cpu`,
the share of one core that the server's thread and the clients took while they were served, and
`cpu_ratio`, the CPU time of a token in process over that of one by HTTP, clients included.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import threading
import time

import psutil

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

    start = time.perf_counter()
    async with EmbeddedTarget(engine) as target, asyncio.TaskGroup() as group:
        for client in range(args.clients):
            group.create_task(one(target, client))
    return tokens / (time.perf_counter() - start)


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
    """For each line of standard input (a salt) one round; its tokens/s to standard output."""
    host, port = args.child.split(":")
    work = light if args.client == "light" else official
    for line in sys.stdin:
        start = time.perf_counter()
        tokens = asyncio.run(work(host, int(port), args, int(line)))
        print(tokens / (time.perf_counter() - start), flush=True)


# --- both ------------------------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--client", choices=("light", "openai"), default="light")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--child")
    args = parser.parse_args()
    if args.child:
        child(args)
        return
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
            rounds, shares, cpu = compare(engine, clients, args)
            clients.stdin.close()
    ratios = [http / own for own, http in rounds]
    print(json.dumps({
        "kind": "bench_http", "client": args.client, "clients": args.clients,
        "inside_tok_s": [round(own, 1) for own, _ in rounds],
        "http_tok_s": [round(http, 1) for _, http in rounds],
        "ratios": [round(ratio, 4) for ratio in ratios],
        "ratio": round(statistics.median(ratios), 4),
        "cpu_ratio": round(statistics.median(cpu), 4),
        "server_cpu": round(statistics.median(own for own, _ in shares), 4),
        "client_cpu": round(statistics.median(theirs for _, theirs in shares), 4),
    }, indent=1))  # fmt: skip


def compare(engine, clients, args):
    """Pairs of tokens/s; of each HTTP round the CPU shares; of each pair the ratio of CPU times."""
    rounds, shares, cpu = [], [], []

    def inside_round(salt):
        before, start = cpu_seconds(clients.pid), time.perf_counter()
        rate = asyncio.run(inside(engine, args, salt))
        spent = sum(cpu_seconds(clients.pid)) - sum(before)
        return rate, spent / (rate * (time.perf_counter() - start))

    def http_round(salt):
        before, start = cpu_seconds(clients.pid), time.perf_counter()
        clients.stdin.write(f"{salt}\n")
        clients.stdin.flush()
        rate = float(clients.stdout.readline())
        wall, after = time.perf_counter() - start, cpu_seconds(clients.pid)
        shares.append([(b - a) / wall for a, b in zip(before[1:], after[1:], strict=True)])
        return rate, (sum(after) - sum(before)) / (rate * wall)

    inside_round(0)
    http_round(1)  # both warm
    shares.clear()
    for i in range(args.rounds):
        if i % 2:
            http, own = http_round(100 + i), inside_round(10 + i)
        else:
            own, http = inside_round(10 + i), http_round(100 + i)
        rounds.append((own[0], http[0]))
        cpu.append(own[1] / http[1])
    return rounds, shares, cpu


def cpu_seconds(client):
    """Of this process but for the server's thread, of that, and of the clients' process."""
    (server,) = (t for t in threading.enumerate() if t.name == "evewatch-http")
    here = psutil.Process()
    times = {t.id: t.user_time + t.system_time for t in here.threads()}
    own, serving = here.cpu_times(), times[server.native_id]
    theirs = psutil.Process(client).cpu_times()
    return own.user + own.system - serving, serving, theirs.user + theirs.system


if __name__ == "__main__":
    main()
