"""`watch --alerts` as a process, told by a target whose queue comes and goes, with webhooks that
misbehave: who is told when, what is lost, and what is sent twice.

    python -m benchmarks.bench_ways [--seconds 60] [--down 30]

A webhook each that hangs, drips, answers 500 or a redirect for the first `--down` seconds, or that
nobody listens at until then, and a command that always works. After the last alert there is time
for what is left. For each way: how many messages arrived of those that the command was told, how
many of them twice, how many of these without the mark `repeat`, and how long after the command.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.breaches import Traffic

ROOT = Path(__file__).parents[1]
BREACH_S, LIMIT_S = 6.0, 3.0
RULES = """
group = "1s"
[[rules]]
name = "queue"
field = "queue.waiting"
above = 50
lasts = "1s"
"""
MODES = ("hangs", "drips", "500", "redirects", "down", "works")
Got = list[tuple[float, str, bool]]


class Hook(ThreadingHTTPServer):
    """Misbehaves as `mode` says until `cured`; what it answered 200 to is in `got`."""

    daemon_threads = True

    def __init__(self, mode: str) -> None:
        self.mode, self.got, self.seen = mode, Got(), Got()
        super().__init__(("127.0.0.1", 0), Answers, bind_and_activate=False)
        self.server_bind()
        if mode != "down":
            self.activate()

    def activate(self) -> None:
        self.server_activate()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def cure(self) -> None:
        if self.mode == "down":
            self.activate()
        self.mode = "works"


class Answers(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        told = (time.time(), message["id"], message["repeat"])
        self.server.seen.append(told)
        match self.server.mode:
            case "hangs":
                time.sleep(10 * LIMIT_S)
            case "drips":  # until the other side has had enough
                with suppress(OSError):
                    for letter in b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 100:
                        self.wfile.write(bytes([letter]))
                        time.sleep(LIMIT_S / 5)
            case "500" | "redirects" as how:
                self.send_response(500 if how == "500" else 302)
                self.send_header("Location", "http://127.0.0.1:9/elsewhere")
                self.end_headers()
            case _:
                self.server.got.append(told)
                self.send_response(200)
                self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Target(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        self.traffic = Traffic()
        super().__init__(("127.0.0.1", 0), Page)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Page(BaseHTTPRequestHandler):
    server: Target

    def do_GET(self) -> None:
        body = self.server.traffic.page() if self.path == "/metrics" else b""
        self.send_response(200 if body else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def told_by_command(file: Path) -> Got:
    lines = file.read_text().splitlines() if file.exists() else []
    rows = [json.loads(line) for line in lines]
    return [(row["at"], row["id"], row["repeat"]) for row in rows]


def run(options: argparse.Namespace, folder: Path) -> tuple[dict[str, Hook], Got, str]:
    target, hooks, out = Target(), {mode: Hook(mode) for mode in MODES}, folder / "command"
    code = (
        "import json, sys, time; row = json.load(sys.stdin) | {'at': time.time()}; "
        f"print(json.dumps(row), file=open({str(out)!r}, 'a'))"
    )
    ways = [f'[[ways]]\nkind = "command"\nargv = [{sys.executable!r}, "-c", {json.dumps(code)}]\n']
    ways += [
        f'[[ways]]\nkind = "webhook"\nlimit = "{LIMIT_S:g}s"\n'
        f'url = "http://127.0.0.1:{hook.server_port}/{mode}"\n'
        for mode, hook in hooks.items()
    ]
    (folder / "alerts.toml").write_text(RULES + "".join(ways))
    command = [sys.executable, "main.py", "watch", f"http://127.0.0.1:{target.server_port}",
               "--alerts", str(folder / "alerts.toml"), "--interval", "0.5"]  # fmt: skip
    process = subprocess.Popen(
        command, cwd=ROOT, env=os.environ | {"EVEWATCH_HOME": str(folder / "home")},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    began, cured = time.monotonic(), False
    while (passed := time.monotonic() - began) < options.seconds:
        target.traffic.waiting = 90 if passed // BREACH_S % 2 else 0
        if not cured and passed >= options.down:
            cured = True
            for hook in hooks.values():
                hook.cure()
        time.sleep(0.1)
    if not cured:  # this process itself was held up
        for hook in hooks.values():
            hook.cure()
    target.traffic.waiting = 0
    give_up = time.monotonic() + 90.0
    while time.monotonic() < give_up and not all(_whole(h, out) for h in hooks.values()):
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    return hooks, told_by_command(out), said


def _whole(hook: Hook, out: Path) -> bool:
    return {name for _, name, _ in told_by_command(out)} == {name for _, name, _ in hook.got}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="in which alerts come and go")
    parser.add_argument("--down", type=float, default=30.0, help="until the webhooks behave")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        hooks, told, said = run(options, Path(folder))
    at = {name: when for when, name, _ in told}
    print(f"{len(told)} messages, each {BREACH_S:g} s; misbehaviour ends after {options.down:g} s")
    for mode, hook in hooks.items():
        tries = Counter(name for _, name, _ in hook.seen)
        firsts = dict.fromkeys(name for _, name, _ in hook.seen)
        unmarked = Counter(name for _, name, repeat in hook.got if not repeat)
        unmarked_twice = sum(count > 1 for count in unmarked.values())
        late = [when - at[name] for when, name, _ in hook.got if name in at]
        order = [name for _, name, _ in hook.got] == [name for _, name, _ in told]
        print(
            f"  {mode:10} got {len({n for _, n, _ in hook.got})} of {len(told)}, tried "
            f"{sum(tries.values())} times for {len(firsts)}, twice unmarked {unmarked_twice}, "
            f"{'in order' if order else 'not in order'}, "
            f"after the command {max(late, default=0):.1f} s at most"
        )
    print("what it said of its ways:")
    lines = said.splitlines()
    for line in lines:
        if "webhook" in line:
            print(f"  {line}")
    print(f"  not delivered: {sum(line.startswith('not delivered') for line in lines)}")


if __name__ == "__main__":
    main()
