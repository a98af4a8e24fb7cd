"""A program called `vllm` that takes vLLM's command line and serves a real scrape.

Behaviour by the environment: VLLM_STUB=die (ends with an error while it loads), deaf (ignores
SIGINT and SIGTERM), fork (has a worker process, whose id it prints), late (healthy after a while).
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

PROGRAM = """#!{python}
import http.server, os, signal, subprocess, sys, time
mode = os.environ.get("VLLM_STUB", "")
arguments = sys.argv[1:]
assert arguments[0] == "serve", arguments
port = int(arguments[arguments.index("--port") + 1])
print("arguments:", *arguments, flush=True)
if mode == "die":
    print("Traceback: torch.OutOfMemoryError: CUDA out of memory", file=sys.stderr, flush=True)
    sys.exit(3)
if mode == "deaf":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if mode == "fork":
    worker = subprocess.Popen([sys.executable, "-c",
        "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)"])
    print("worker:", worker.pid, flush=True)
if mode == "late":
    time.sleep(0.6)
PAGES = {{"/health": b"", "/metrics": open({page!r}, "rb").read(),
         "/v1/models": b'{{"data": [{{"id": "smollm2", "max_model_len": 2048}}]}}'}}
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = PAGES.get(self.path)
        self.send_response(404 if body is None else 200)
        self.end_headers()
        self.wfile.write(body or b"")
    def log_message(self, *arguments):
        pass
try:
    print("INFO: Application startup complete.", flush=True)
    http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
except KeyboardInterrupt:
    print("shut down in order", flush=True)
"""


def install(folder: Path, page: Path) -> Path:
    """`vllm` in `folder`, which belongs at the front of PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "vllm"
    program.write_text(PROGRAM.format(python=sys.executable, page=str(page)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie whose parent has ended waits for init: it runs no more.
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
