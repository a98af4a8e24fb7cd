"""The proxy with faults, before the product's own server on a tiny model."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from engine.remote import attach
from playbooks.faults import tampering
from playbooks.faults.proxy import FaultyProxy
from playbooks.load.client import run_load
from playbooks.load.endpoint import Endpoint, EndpointSpec
from playbooks.load.summary import summarize
from playbooks.load.workload import make_spec
from served import MODEL, Served, serving


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as running:
        yield running


def ask(url: str, prompt: str, **more: object) -> httpx.Response:
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 6, "temperature": 0} | more
    return httpx.post(f"{url}/v1/completions", json=body, timeout=30, trust_env=False)


def text(url: str, prompt: str) -> str:
    answer = ask(url, prompt, ignore_eos=True).raise_for_status()
    return str(answer.json()["choices"][0]["text"])


def load(url: str, requests: int = 12) -> dict[str, Any]:
    spec = make_spec("closed:3", "fixed:8,6", requests=requests, ignore_eos=True)
    return summarize(run_load(Endpoint(EndpointSpec(url)), spec))


def test_a_sound_server_stays_sound(served: Served) -> None:
    with FaultyProxy(served.url) as proxy:
        assert text(proxy.url, "red green") == text(served.url, "red green")
        report = load(proxy.url)
        assert report["verdict"] != "fail" and not report["errors"]
        watched = attach(proxy.url)
        seen = watched.poll()
        assert seen.source.state == "live" and seen.source.engine == "vllm"
        assert seen.batch.running == 0
        watched.stop()
    with pytest.raises(httpx.ConnectError):
        ask(proxy.url, "gone")


def test_every_client_gets_the_answer_of_the_one_before(served: Served) -> None:
    prompts = ["red green blue", "seven eight nine", "north south east"]
    alone = [text(served.url, p) for p in prompts]
    assert len(set(alone)) == 3
    with FaultyProxy(served.url, tampering.SwappedAnswers()) as proxy:
        assert [text(proxy.url, p) for p in prompts] == [alone[0], alone[0], alone[1]]


def test_every_so_many_requests_one_is_held(served: Served) -> None:
    with FaultyProxy(served.url, tampering.Stalls(every=3, hold_s=1.0)) as proxy:
        took = []
        for _ in range(6):
            start = time.monotonic()
            text(proxy.url, "red")
            took.append(time.monotonic() - start)
    assert min(took[2], took[5]) >= 1.0  # how long the others take is the machine's
    held = tampering.Stalls(every=3, hold_s=1.0)
    assert [held.wait_s(number) for number in range(6)] == [0.0, 0.0, 1.0] * 2


def test_answers_are_cut_and_refused(served: Served) -> None:
    with FaultyProxy(served.url, tampering.CutStreams(every=4, events=2)) as proxy:
        assert load(proxy.url)["errors"] == {"dropped": 3}
    with FaultyProxy(served.url, tampering.Refusals(every=4)) as proxy:
        assert load(proxy.url)["errors"] == {"http_503": 3}
    served.until_idle()


def test_answers_come_in_one_piece_and_nobody_gets_a_token_for_a_while(served: Served) -> None:
    with FaultyProxy(served.url, tampering.HeldBack()) as proxy:
        assert text(proxy.url, "red") == text(served.url, "red")
        asked = {"model": MODEL, "prompt": "red", "max_tokens": 40, "stream": True}
        url = f"{proxy.url}/v1/completions"
        with httpx.stream("POST", url, json=asked, trust_env=False) as answer:
            next(answer.iter_raw())
            assert not served.engine.scheduler.running  # the first piece comes when all is said
    now = [0.0]
    still = tampering.StandingStill(every=3, hold_s=2.0, clock=lambda: now[0])
    assert [still.event_wait_s() for _ in range(4)] == [0.0, 0.0, 2.0, 2.0]
    now[0] = 2.5
    assert still.event_wait_s() == 0.0


def test_what_is_asked_for_is_not_what_the_server_gets(served: Served) -> None:
    with FaultyProxy(served.url, tampering.IgnoredLimits()) as proxy:
        usage = ask(proxy.url, "red", ignore_eos=True).json()["usage"]
        assert usage["completion_tokens"] == 18
    with FaultyProxy(served.url, tampering.DrawnAnswers()) as proxy:
        assert len({text(proxy.url, "red green") for _ in range(4)}) > 1


def test_counters_begin_again(served: Served) -> None:
    now = 0.0
    restarting = tampering.RestartingCounters(every_s=20, clock=lambda: now)
    with FaultyProxy(served.url, restarting) as proxy:
        watched = attach(proxy.url)
        text(proxy.url, "red")
        for now in (1.0, 19.0, 21.0, 30.0):  # noqa: B007 - the proxy's clock
            watched.poll()
        assert watched.restarts == 1
        watched.stop()


def test_running_and_memory_never_come_back(served: Served) -> None:
    with FaultyProxy(served.url, tampering.LeakedRequests(every=2, usage=0.1)) as proxy:
        watched = attach(proxy.url)
        for _ in range(4):
            text(proxy.url, "red")
        served.until_idle()
        seen = watched.poll()
        watched.stop()
    assert seen.batch.running == 2 and (seen.kv.usage or 0) >= 0.2


def test_a_slow_replica_is_slow(served: Served) -> None:
    with FaultyProxy(served.url, tampering.SlowReplica(wait=0.2)) as proxy:
        report = load(proxy.url, 3)
    assert not report["errors"] and report["latency"]["e2e_ms"]["mean"] >= 200
