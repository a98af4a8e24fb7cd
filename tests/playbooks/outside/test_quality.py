"""The quality step by URL, whole: recorded, held against, and what a target refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from load_stub import ScriptedTransport
from playbooks.faults.proxy import FaultyProxy
from playbooks.outside import quality_cases
from playbooks.outside.care import Care
from playbooks.outside.quality import run_quality
from playbooks.outside.site import UrlSite
from playbooks.outside.traffic import GuardedEndpoint
from playbooks.outside.validity import TOOL_CASES
from playbooks.runs.outcome import StepClock, StepOutcome
from playbooks.steps.models import QualityStep
from served import Served, serving

CASES = [
    {"id": f"own-{i}", "messages": [{"role": "user", "content": f"{w} {i} {w}"}], "max_tokens": 12}
    for i, w in enumerate(["red", "green", "blue", "black"])
]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(max_positions=256) as running:
        yield running


@pytest.fixture
def cases(tmp_path: Path) -> str:
    path = tmp_path / "cases.jsonl"
    path.write_text("".join(json.dumps(case) + "\n" for case in CASES))
    return str(path)


def quality(url: str, cases: str, care: Care | None = None, **params: Any) -> StepOutcome:
    step = QualityStep(size="quick", golden=False, cases=(cases,), **params)
    return run_quality(UrlSite(url, care=care or Care()), step, StepClock())


def test_answers_are_recorded_and_the_same_target_keeps_them(served, cases, tmp_path):
    file = tmp_path / "answers.json"
    first = quality(served.url, cases, record=str(file))
    assert first.metrics["json_valid"] == 0.0  # a tiny model of random weights, without chats
    assert "failed_limits" not in first.metrics
    kept = quality(served.url, cases, against=str(file))
    assert (kept.metrics["failed_limits"], kept.metrics["unclear"]) == (0, 0), kept.note
    assert kept.metrics["top_kld"] == pytest.approx(0.0, abs=1e-6)
    assert len(json.loads(file.read_text())["tops"]) == len(CASES)


def test_tools_that_are_refused_are_not_told_and_no_failure(served, cases):
    care = Care((("error_rate", 0.0),))
    found = quality(served.url, cases, care)
    assert found.metrics["calls_valid"] is None
    assert {"calls_valid", "top_kld", "mean_kld"} <= found.not_told
    assert "tool calls are refused: http_400: tools: is not supported" in found.note
    assert not found.doubts


def test_a_second_url_is_asked_with_the_same_care_and_in_the_same_journal(served, cases):
    with FaultyProxy(served.url) as other:
        site = UrlSite(served.url, care=Care(max_share=1.0))
        step = QualityStep(size="quick", golden=False, cases=(cases,), against=other.url)
        found = run_quality(site, step, StepClock())
    assert found.metrics["failed_limits"] == 0, found.note
    sent = {phase.address: len(phase.records) for phase in site.journal.phases if phase.records}
    assert 0 < sent[other.url] < sent[served.url]
    asked, _ = quality_cases.size_of(step)  # with JSON asked for twice, where chats are refused
    assert sum(sent.values()) <= asked + 24  # and the clients with marks


def test_a_target_that_calls_tools_is_judged_by_its_calls():
    def answer(body: dict[str, Any]) -> list[bytes]:
        asked = body["messages"][0]["content"]
        arguments = {"city": "Oslo", "unit": "celsius"} if "Oslo" in asked else {"city": 7}
        call = {"function": {"name": "get_weather", "arguments": json.dumps(arguments)}}
        choice = {"message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}
        return [json.dumps({"choices": [choice]}).encode()]

    transport = ScriptedTransport(answer, kind="application/json")
    endpoint = GuardedEndpoint(UrlSite("http://h"), transport)
    endpoint.model = "m"
    valid, why = quality_cases._calls(endpoint)
    assert why is None
    assert [case for case, good in valid.items() if good] == ["tool-weather"]
    assert len(valid) == len(TOOL_CASES) == len(transport.requests)
    assert json.loads(transport.requests[0].content)["user"] == "evewatch"


@pytest.mark.parametrize("chats", [True, False])
def test_json_is_asked_for_in_a_chat_where_there_are_chats(chats):
    def answer(body: dict[str, Any]) -> list[bytes]:
        if "messages" in body and not chats:
            return [b'{"error": {"message": "no chat template"}, "object": "error"}']
        text = '["red", "blue", "yellow"]'
        said = {"message": {"content": text}} if chats else {"text": text}
        return [json.dumps({"choices": [said | {"finish_reason": "stop"}]}).encode()]

    class Transport(ScriptedTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            found = await super().handle_async_request(request)
            if b'"messages"' in request.content and not chats:
                found.status_code = 400
            return found

    transport = Transport(answer, kind="application/json")
    endpoint = GuardedEndpoint(UrlSite("http://h"), transport)
    endpoint.model = "m"
    valid = quality_cases._formed(endpoint)
    assert [case for case, good in valid.items() if good] == ["json-list"]
    assert len(transport.requests) == len(valid) + (not chats)
