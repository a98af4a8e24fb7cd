"""Canaries between two endpoints: the same rules, on what a server shows from outside."""

import itertools
import json
import re
from dataclasses import replace

import pytest

from engine.errors import ConfigError
from engine.snapshot import KvState, MemoryState, Snapshot
from load_stub import DONE, ScriptedTransport, event, run_virtual, token, usage
from playbooks.canary.plan import CanaryPlan
from playbooks.canary.router import BASELINE, CANDIDATE
from playbooks.canary.sides import EndpointSide
from playbooks.canary.step import SidePair, changes_between, conduct, run_canary
from playbooks.load.arrivals import Gamma
from playbooks.load.endpoint import Endpoint, EndpointSpec
from playbooks.load.mix import parse_mix
from playbooks.load.workload import LoadSpec
from playbooks.measure.crosstalk import MARKS
from report_schemas import violations

PLAN = CanaryPlan(
    stages="20,100", least_s=10.0, hold_s=60.0, drain_s=5.0, min_samples=30, tail_ratio=1.3,
    users=500, waive=("memory",),
)  # fmt: skip
LOAD = LoadSpec(Gamma(20.0), parse_mix("lognormal:8,4,0.3"), duration_s=1e6, timeout_s=20.0)
SPECS = {name: EndpointSpec(f"http://{name}") for name in (BASELINE, CANDIDATE)}


def server(pace=0.01, fail=lambda number: False, say=lambda number, prompt: f"I say {prompt}."):
    """A server's script: `say` answers what is not streamed, `fail` which stream breaks."""
    asked, streamed = itertools.count(), itertools.count()

    def script(body):
        if not body:
            return [json.dumps({"data": [{"id": "m"}]}).encode()]
        if not body.get("stream"):
            text = say(next(asked), body["prompt"].strip())
            choice = {"text": text, "finish_reason": "stop"}
            return [json.dumps({"choices": [choice]}).encode()]
        if fail(next(streamed)):
            return [event({"error": "CUDA error: an illegal memory access"})]
        tokens = [piece for _ in range(body["max_tokens"]) for piece in (pace, token())]
        return [*tokens, token("", "length"), usage(8, body["max_tokens"]), DONE]

    return ScriptedTransport(script)


def run(candidate, plan=PLAN, scrape=None):
    async def nothing():
        return None

    async def canary():
        sides = {}
        for name, transport in ((BASELINE, server()), (CANDIDATE, candidate)):
            side = EndpointSide(name, Endpoint(SPECS[name], transport), scrape or nothing)
            sides[name] = await side.__aenter__()
        changes = changes_between(SPECS[BASELINE], SPECS[CANDIDATE])
        report = await conduct(plan, SidePair(sides), LOAD, changes, log=False)
        for side in sides.values():
            await side.__aexit__()
        return report

    report = run_virtual(canary())
    assert violations(report, "canary") == []
    return report


def last_rules(report):
    return report["decisions"][-1]["action"], set(report["decisions"][-1]["rules"])


def test_a_healthy_endpoint_gets_everybody():
    report = run(server(pace=0.0101))
    assert report["outcome"] == "promoted", report["why"]
    assert report["changes"] == {"url": {"before": "http://baseline", "after": "http://candidate"}}
    assert report["quality"]["note"] == "no distributions: not embedded"
    assert report["probes"][CANDIDATE]["asked"] == 16
    assert report["warnings"][-1] == "done without, as asked: memory"
    ttft = report["stages"][-1]["candidate"]["latency"]["ttft_ms"]
    assert ttft["p50"] == pytest.approx(10.1, rel=0.05)


def test_a_slow_one_does_not():
    report = run(server(pace=0.02))
    assert last_rules(report) == ("roll_back", {"tail"})
    assert report["decisions"][-1]["stage"] == 1


def test_errors_inside_a_stream_are_faults():
    report = run(server(fail=lambda number: number % 10 == 9))
    assert last_rules(report) == ("roll_back", {"faults"})
    assert report["stages"][-1]["candidate"]["errors"] == {"api_error": 3}


def test_another_clients_mark_is_cross_talk():
    """Alone it answers well; in company it says what a neighbour asked about."""

    def confused(number, prompt):
        mark = re.search(r"My word is (\w+)", prompt)
        if mark is None or number < 20:  # golden prompts, and the marked ones alone
            return f"I say {prompt}."
        return f"You said {MARKS[(MARKS.index(mark[1]) + 1) % 8]}."

    report = run(server(say=confused))
    assert last_rules(report) == ("roll_back", {"crosstalk"})
    assert report["probes"][CANDIDATE]["mixed"] == 8


@pytest.mark.parametrize(
    ("say", "why"),
    [
        (lambda number, prompt: "la la la " * 20, "loop"),
        (lambda number, prompt: "\ufffd\ufffd what", "U+FFFD"),
        (lambda number, prompt: "", "not answered"),
    ],
)
def test_garbage_is_seen_before_any_user_is(say, why):
    report = run(server(say=say))
    assert last_rules(report) == ("roll_back", {"quality"})
    assert why in report["why"]
    assert report["routed"][CANDIDATE] == 0


def test_memory_comes_from_its_metrics():
    held = itertools.count(10**9, 10**7)

    async def growing():
        memory = MemoryState(rss_bytes=next(held), available_bytes=10**10)
        return Snapshot(memory=memory, kv=KvState(usage=0.3))

    report = run(server(), replace(PLAN, waive=()), growing)
    assert last_rules(report) == ("roll_back", {"memory"})

    async def steady():
        return Snapshot(memory=MemoryState(rss_bytes=1, available_bytes=9), kv=KvState(usage=0.3))

    assert run(server(), replace(PLAN, waive=()), steady)["outcome"] == "promoted"


def test_memory_that_nobody_shows_is_not_a_pass():
    report = run(server(), replace(PLAN, waive=(), hold_s=12.0))
    assert report["outcome"] == "undecided"
    assert "no memory numbers" in report["why"]


def test_a_url_and_an_engine_are_no_pair():
    from engine.config import EngineConfig

    with pytest.raises(ConfigError, match="one of each"):
        run_canary(PLAN, EngineConfig(), SPECS[CANDIDATE], LOAD)
