"""`evewatch load` as a script sees it."""

import asyncio
import contextlib
import json
import sys
import threading
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

import pytest

from builders import tiny_spec, tiny_tensors
from console.cli import main
from console.commands.load import exit_code, progress_text
from console.commands.terminal import show_report
from load_stub import StubServer, timed
from model_files import write_hf
from playbooks.load.client import LoadProgress
from waiting import CEILING_S


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    spec = tiny_spec()
    return str(write_hf(tmp_path_factory.mktemp("model"), spec, tiny_tensors(spec)))


@pytest.fixture
def load(monkeypatch, tmp_path):
    """Run `evewatch load …`: exit code, standard output, standard error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["evewatch", "load", *map(str, arguments)])
        monkeypatch.chdir(tmp_path)
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code or 0, out.getvalue(), err.getvalue()

    return run


@pytest.fixture
def server():
    """A stub on a loop and a thread of its own; its URL."""
    started, stop = threading.Event(), None
    address = []
    loop = asyncio.new_event_loop()

    async def serve():
        nonlocal stop
        stop = asyncio.Event()
        async with StubServer(timed(0.005, 0.001)) as stub:
            address.append(stub.url)
            started.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert started.wait(CEILING_S)
    yield address[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(CEILING_S)
    loop.close()


ENGINE = ("--kv-memory", "16M", "--max-batch", "8", "--set", "token_budget=32")


def test_json_is_one_object_and_the_lines_are_the_requests(load, folder, tmp_path):
    code, out, err = load(
        "--model", folder, *ENGINE, "--arrivals", "poisson:100", "--lengths", "uniform:5-20,3-9",
        "--requests", 20, "--ignore-eos", "--slo", "e2e=60s", "--json",
        "--out", tmp_path / "r.json", "--jsonl", tmp_path / "r.jsonl",
    )  # fmt: skip
    report = json.loads(out)
    assert code in (0, 3)  # 3: a busy machine made the generator late
    assert err == ""
    assert (report["schema"], report["kind"]) == (1, "load")
    assert json.loads((tmp_path / "r.json").read_text()) == report
    assert report["goodput"]["share"] == 1.0
    assert set(report["throughput"]) == {"output_tok_s", "total_tok_s", "requests_s"}
    for name in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms", "queue_ms"):
        assert set(report["latency"][name]) == {"p50", "p90", "p99", "mean", "n"}
    rows = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert sum(row["output_tokens"] for row in rows) == report["tokens"]["output"]


def test_an_endpoint_for_people(load, server):
    code, out, err = load(
        "--target", server, "--arrivals", "closed:4", "--lengths", "fixed:9,5", "--requests", 40
    )
    assert code in (0, 3)
    assert "proves nothing about production" in err
    assert "40 sent, 40 completed, 0 failed" in out
    assert f"{server}/v1/completions, stub" in out


def test_a_trace_says_what_was_met_in_it(load, tmp_path):
    path = tmp_path / "t.csv"
    head = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    path.write_text(head + "0,M,5,5,10,x\n0.1,M,-5,5,0,x\n0.1,M,5,0,5,x\n0.2,M,5,5,10,x\n")
    arguments = ("--target", "null", "--trace", path, "--time-scale", "0.5")
    code, out, _ = load(*arguments, "--json")
    report = json.loads(out)
    (trace,) = report["traces"]
    assert (trace["rows"], trace["used"], trace["malformed"], trace["failed"]) == (4, 2, 1, 1)
    assert trace["first_problem"].startswith("line 3: length")
    assert report["load"]["arrivals"] == "t.csv*0.5"
    assert "first problem: line 3" in load(*arguments)[1]
    assert code in (0, 3)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--arrivals", "often"), "arrivals: 'often' is not known"),
        (("--lengths", "long"), "lengths: 'long' is not known"),
        (("--trace", "none.csv"), "trace none.csv: cannot be read"),
        (("--slo", "fast"), "slo: 'fast'"),
        (("--requests", "0"), "requests: expected at least 1"),
        (("--target", "somewhere"), "target somewhere: expected embedded, null or http"),
        (("--target", "null", "--max-batch", "4"), "--max-batch: sets the embedded engine"),
        (("--target", "null", "--jsonl", "no/such/file"), "--jsonl no/such/file: cannot be"),
        (("--time-scale", "2"), "none to stretch"),
    ],
)
def test_bad_input_gets_one_line_and_exit_2(load, arguments, why):
    code, out, err = load(*arguments)
    assert (code, out) == (2, "")
    assert why in err
    assert len(err.strip().splitlines()) == 1


def test_nobody_at_the_address_is_exit_4(load):
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        listener = loop.run_until_complete(asyncio.start_server(lambda *_: None, "127.0.0.1", 0))
        port = listener.sockets[0].getsockname()[1]
        listener.close()
        loop.run_until_complete(listener.wait_closed())
    url = f"http://127.0.0.1:{port}"
    code, out, err = load("--target", url, "--requests", 3)
    assert (code, out) == (4, "")
    assert url in err
    code, out, _ = load(
        "--target", url, "--model", "m", "--requests", 3, "--arrivals", "constant:99", "--json"
    )
    assert code == 4
    assert json.loads(out)["errors"] == {"connect": 3}


def test_exit_codes():
    report = {"interrupted": False, "errors": {}, "requests": {"completed": 5}, "verdict": "pass"}
    assert exit_code(report) == 0
    assert exit_code(report | {"verdict": "fail", "errors": {"connect": 1}}) == 1
    assert exit_code(report | {"verdict": "inconclusive"}) == 3
    assert exit_code(report | {"interrupted": True}) == 130


def test_the_progress_line_says_rate_in_flight_and_p99():
    many = LoadProgress(10.0, 300, 280, 0, 1000, [100.0] * 280, [1500.0] * 280)
    assert progress_text(many) == (
        "10 s · 280 of 1000 done · 30.0 requests/s · 20 in flight · TTFT p50 100 ms p99 100 ms · "
        "E2E p99 1.50 s"
    )
    few = LoadProgress(0.0, 3, 2, 1, None, [100.0], [200.0])
    assert progress_text(few).endswith("TTFT p50 100 ms p99 – · E2E p99 – · 1 failed")
    assert progress_text(few).startswith("0 s · 2 done · 0.0 requests/s · 1 in flight")


def test_the_table_of_a_run_without_answers(load, capsys):
    _, out, _ = load(
        "--target", "null", "--arrivals", "poisson:0.001", "--duration", "0.1", "--json"
    )
    show_report(json.loads(out))
    shown = capsys.readouterr().out
    assert "verdict     inconclusive" in shown
    assert "no request was due" in shown
