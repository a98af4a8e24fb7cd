"""Against a real vLLM: `make test-vllm`. Elsewhere these are skipped.

What stubs and kept pages cannot show: that the names which the adapter reads are those of the
engine that is run today, that its streams are read to their end, and that a check-up of a sound
server passes.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from repository import ROOT

FOLDER = os.environ.get("VLLM_FOLDER")
pytestmark = pytest.mark.skipif(not FOLDER, reason="make test-vllm runs these")
START_S = 900.0
"""It compiles its kernels first."""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def started(folder: Path, port: int, log: Path) -> subprocess.Popen[bytes]:
    env = os.environ | {
        "LD_PRELOAD": str(folder / "env/lib/libiomp5.so"),
        "VLLM_CPU_OMP_THREADS_BIND": "0-1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
    }
    command = [
        folder / "env/bin/python", "-m", "vllm.entrypoints.openai.api_server",
        "--model", folder / "model", "--served-model-name", "smol", "--dtype", "float32",
        "--max-model-len", "2048", "--max-num-seqs", "16", "--host", "127.0.0.1",
        "--port", str(port),
    ]  # fmt: skip
    with log.open("wb") as file:
        return subprocess.Popen(command, env=env, stdout=file, stderr=file, cwd=log.parent)


def wait_for(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text(errors="replace")[-2000:]
        try:
            if httpx.get(f"{url}/health", timeout=2.0).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(1.0)
    raise AssertionError(f"vLLM did not start in {START_S:.0f} s: {log}")


@pytest.fixture(scope="module")
def urls(tmp_path_factory):
    """Two of them: a canary has a baseline and a candidate."""
    folder, scratch = Path(FOLDER or ""), tmp_path_factory.mktemp("vllm")
    running = []
    try:
        for name in ("a", "b"):
            port, log = free_port(), scratch / f"{name}.log"
            process = started(folder, port, log)
            running.append(process)
            wait_for(process, f"http://127.0.0.1:{port}", log)
            if name == "a":
                first = f"http://127.0.0.1:{port}"
        yield first, f"http://127.0.0.1:{port}"
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(60)


def evewatch(home, *words, codes=(0,)):
    """The command as a user runs it; its JSON report."""
    done = subprocess.run(
        [sys.executable, "main.py", *words, "--json"],
        cwd=ROOT, capture_output=True, text=True, timeout=1200,
        env=os.environ | {"EVEWATCH_HOME": str(home)},
    )  # fmt: skip
    assert done.returncode in codes, (
        f"{done.returncode}\n{done.stderr[-3000:]}\n{done.stdout[-3000:]}"
    )
    return json.loads(done.stdout)


def told(value, path=""):
    """Paths of what is not None, empty or a fact of the look itself."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from told(one, f"{path}.{key}" if path else key)
    elif value is not None and value not in ((), []):
        yield path


def test_a_look_names_what_it_exports(urls, tmp_path):
    evewatch(tmp_path, "load", "--target", urls[0], "--arrivals", "closed:2", "--lengths",
             "fixed:64,16", "--requests", "6")  # fmt: skip
    (target,) = evewatch(tmp_path, "watch", "--once", urls[0])["targets"]
    assert (target["engine"], target["state"]) == ("vllm", "live")
    names = set(told(target["snapshot"]))
    assert {
        "engine.model", "engine.max_model_len", "queue.waiting", "queue.requests_total",
        "batch.running", "batch.steps_total", "batch.output_tokens_total",
        "batch.prompt_tokens_total", "batch.preemptions_total", "kv.usage", "kv.total",
        "kv.page_tokens", "kv.pool_bytes", "memory.rss_bytes", "finished.length",
    } <= names  # fmt: skip
    page = httpx.get(f"{urls[0]}/metrics").text
    assert "vllm:kv_cache_usage_perc" in page, "it was renamed: the adapter has to know"
    assert target["snapshot"]["finished"]["length"] == 6


def test_load_counts_what_it_counts(urls, tmp_path):
    report = evewatch(
        tmp_path, "load", "--target", urls[0], "--api", "chat", "--arrivals", "closed:3",
        "--lengths", "uniform:32-64,8-24", "--requests", "12",
    )  # fmt: skip
    assert report["requests"]["completed"] == 12 and report["errors"] == {}
    assert report["tokens"]["counted_by_target"] == 12


def test_a_sound_server_passes_a_quick_check(urls, tmp_path):
    report = evewatch(tmp_path, "check", "quick_check", "--target", urls[0])
    assert report["verdict"] == "pass", report["findings"]


RUNGS = """
title = "Rungs"
about = "One, two and four users."

[[steps]]
id = "sweep"
kind = "sweep"

[steps.with]
batches = [1, 2, 4]
repeats = 1
refine = false
least_requests = 8
requests_per_user = 2
lengths = "fixed:48,12"
"""


def test_a_sweep_runs_to_its_end(urls, tmp_path):
    playbook = tmp_path / "rungs.toml"
    playbook.write_text(RUNGS, "utf-8")
    report = evewatch(tmp_path, "check", playbook, "--target", urls[0], codes=(0, 3))
    (step,) = report["steps"]
    assert step["verdict"] in ("pass", "inconclusive"), step  # so short a ladder may show no knee


def test_a_canary_of_two_addresses_runs_to_its_end(urls, tmp_path):
    report = evewatch(
        tmp_path, "canary", "--baseline", urls[0], "--candidate", urls[1], "--arrivals", "closed:4",
        "--lengths", "fixed:32,12", "--stages", "50,100", "--least", "15s", "--hold", "90s",
        "--min-samples", "30", "--metric", "e2e", "--tail-ratio", "4", "--waive", "memory",
        codes=(0, 3),
    )  # fmt: skip
    assert report["outcome"] != "rolled_back", report
