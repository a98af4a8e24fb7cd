"""An OpenAI-compatible endpoint, well-behaved and not: in memory, and behind a socket."""

import asyncio
import gzip
import json

import httpx
import pytest

from engine.errors import ConfigError
from engine.remote.answer import MAX_EVENT, BadStream, EventReader
from load_stub import (
    DONE,
    URL,
    ScriptedTransport,
    StubServer,
    event,
    load_on,
    run_virtual,
    stream_of,
    timed,
    token,
    usage,
)
from playbooks.load.client import LoadRun
from playbooks.load.endpoint import Endpoint, EndpointSpec
from playbooks.load.summary import summarize
from playbooks.load.targets import TargetUnreachable
from playbooks.load.workload import make_spec

# --- numbers that are known ------------------------------------------------------------------


@pytest.mark.parametrize(("arrivals", "rate"), [("constant:10", 10), ("closed:7", 10)])
def test_the_metrics_of_known_delays_are_those_delays(arrivals, rate):
    found = summarize(load_on(ScriptedTransport(stream_of), arrivals))
    truth = {"ttft_ms": 200, "tpot_ms": 50, "itl_ms": 50, "e2e_ms": 700}
    for name, value in truth.items():
        assert found["latency"][name]["p50"] == pytest.approx(value, rel=1e-3)
        assert found["latency"][name]["p99"] == pytest.approx(value, rel=1e-3)
    assert found["throughput"]["requests_s"] == pytest.approx(rate, rel=0.01)
    assert found["throughput"]["output_tok_s"] == pytest.approx(rate * 11, rel=0.01)
    assert found["throughput"]["total_tok_s"] == pytest.approx(rate * 31, rel=0.01)
    assert found["verdict"] == "pass"


def test_several_tokens_in_an_event_are_counted_by_usage():
    def script(body):
        return [0.1, token(" a b c"), 0.4, token(" d e", "stop"), usage(17, 5) + DONE]

    result = load_on(ScriptedTransport(script), requests=50)
    record = result.records[0]
    assert (record.prompt_tokens, record.output_tokens, len(record.events)) == (17, 5, 2)
    assert record.tpot_ms == pytest.approx(400 / 4, rel=1e-3)
    assert list(record.itl_ms) == pytest.approx([400], rel=1e-3)
    found = summarize(result)
    assert found["throughput"]["output_tok_s"] == pytest.approx(50, rel=0.02)
    assert found["finish_reasons"] == {"stop": 50}


def test_without_usage_an_event_counts_as_a_token_and_the_report_says_so():
    def script(body):
        return [0.1, token(), 0.1, token(finish="stop"), DONE]

    found = summarize(load_on(ScriptedTransport(script)))
    assert found["tokens"]["output"] == 600
    assert found["tokens"]["prompt"] == found["tokens"]["prompt_asked"]
    assert any("300 answers came without usage" in note for note in found["warnings"])


def test_chat_deltas_and_what_comes_before_the_first_token():
    def delta(**fields):
        return event({"choices": [{"delta": fields, "finish_reason": None}]})

    def script(body):
        assert body["messages"][0]["role"] == "user"
        return [
            0.05, b": keep-alive\n\n" + delta(role="assistant", content=""),
            0.15, delta(reasoning_content="hm"),
            0.3, delta(content="Hello"),
            event({"choices": [{"delta": {}, "finish_reason": "stop"}]}),
            usage(9, 2) + DONE,
        ]  # fmt: skip

    result = load_on(ScriptedTransport(script), api="chat", requests=20)
    assert result.records[0].ttft_ms == pytest.approx(200, rel=1e-3)
    assert result.records[0].e2e_ms == pytest.approx(500, rel=1e-3)
    assert all(r.completed for r in result.records)


def test_events_cut_anywhere_and_with_any_line_ends_are_the_same():
    def script(body):
        pieces = stream_of(body, text=" –é漢🙂")
        data = b"".join(p for p in pieces if isinstance(p, bytes)).replace(b"\n", b"\r\n")
        return [0.2, *(data[i : i + 1] for i in range(len(data)))]

    result = load_on(ScriptedTransport(script), requests=3)
    assert [(r.error, r.output_tokens, len(r.events)) for r in result.records] == [
        (None, 11, 11)
    ] * 3


# --- what servers do ---------------------------------------------------------------------------

GOOD = token() + token()
HALF = b'data: {"choices": [{"text": "\xe2'
FAILING = event({"error": {"message": "out of memory"}})
BROKEN = {
    "an event that is no JSON": ([GOOD + event("{oops")], "bad_stream"),
    "JSON of another form": ([GOOD + event("[1, 2]")], "bad_stream"),
    "choices that are no list": ([event({"choices": {"a": 1}})], "bad_stream"),
    "a choice that is no object": ([event({"choices": [3]})], "bad_stream"),
    "half a character in an event": (
        [b'data: {"choices": [{"text": "\xe2\x82"}]}\n\n'],
        "bad_stream",
    ),
    "a line that is no event": ([GOOD + b"<html>\n\n"], "bad_stream"),
    "an event without end": ([b"data: " + b"x" * (MAX_EVENT + 9)], "bad_stream"),
    "[DONE] without a finish reason": ([GOOD + DONE], "dropped"),
    "an end by abort": ([GOOD + token("", "abort") + DONE], "aborted"),
    "an end by error": ([GOOD + token("", "error") + DONE], "aborted"),
    "vLLM's older error": (
        [GOOD + event({"object": "error", "message": "CUDA error", "code": 500}) + DONE],
        "api_error",
    ),
    "an end in the middle": ([GOOD], "dropped"),
    "an end in the middle of a character": (
        [GOOD + b'data: {"choices": [{"text": "\xe2'],
        "dropped",
    ),
    "no event at all": ([b""], "dropped"),
    "an error in the stream": (
        [GOOD + event({"error": {"message": "out of memory"}})],
        "api_error",
    ),
    "an answer without text": ([token("", "stop") + DONE], "no_output"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_stream_is_a_counted_failure_and_no_number(name):
    pieces, kind = BROKEN[name]
    turn = iter(range(1000))

    def script(body):
        return stream_of(body) if next(turn) % 2 else [0.1, *pieces]

    found = summarize(load_on(ScriptedTransport(script), requests=200))
    assert found["errors"] == {kind: 100}
    assert found["error_examples"][kind]
    assert found["requests"]["completed"] == 100
    assert found["latency"]["e2e_ms"]["p50"] == pytest.approx(700, rel=1e-3)
    assert found["throughput"]["requests_s"] == pytest.approx(5, rel=0.03)
    assert found["throughput"]["output_tok_s"] == pytest.approx(55, rel=0.03)
    assert found["verdict"] == "fail"


@pytest.mark.parametrize("other", ["an answer without text", "an end in the middle"])
def test_an_answer_without_text_is_no_error_of_the_target(other):
    turn = iter(range(1000))

    def script(body):
        return [stream_of(body), BROKEN["an answer without text"][0], BROKEN[other][0]][
            next(turn) % 3
        ]

    found = summarize(load_on(ScriptedTransport(script), requests=300))
    assert found["requests"]["failed"] == 200
    expected = 0.0 if other == "an answer without text" else 1 / 3
    assert found["requests"]["error_rate"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("status", "kind", "text", "expected"),
    [
        (500, "text/plain", b"boom", ("http_500", "boom")),
        (503, "application/json", b'{"error": "busy"}', ("http_503", "busy")),
        (429, "text/event-stream", b"", ("http_429", "no text")),
        (200, "application/json", b'{"choices": []}', ("not_streamed", "application/json")),
        (200, "text/html", b"<p>Sign in first</p>", ("not_streamed", "Sign in first")),
        (200, "text/plain", b"queue is full\n", ("bad_stream", "queue is full")),
        (200, "", b"", ("dropped", "before the answer was finished")),
        (500, "text/html", b"\xff\xfe" * 100_000, ("http_500", "�")),
    ],
)
def test_an_answer_that_is_no_stream_is_a_counted_failure(status, kind, text, expected):
    transport = ScriptedTransport(lambda body: [0.1, text], status, kind)
    found = summarize(load_on(transport, requests=10))
    assert found["errors"] == {expected[0]: 10}
    assert expected[1] in found["error_examples"][expected[0]]
    assert len(found["error_examples"][expected[0]]) < 300


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "", "application/octet-stream", "Text/Event-Stream", "application/x-ndjson"],
)
def test_a_stream_under_another_name_is_one(kind):
    transport = ScriptedTransport(lambda body: [0.1, *stream_of(body)], 200, kind)
    assert summarize(load_on(transport, requests=3))["requests"]["completed"] == 3


@pytest.mark.parametrize("coding", ["gzip", "br"])
def test_a_compressed_stream_is_read_or_named(coding):
    class Compressing(ScriptedTransport):
        async def handle_async_request(self, request):
            response = await super().handle_async_request(request)
            response.headers["content-encoding"] = coding
            return response

    whole = gzip.compress(token("a") + token("b", "stop") + DONE)
    found = summarize(load_on(Compressing(lambda body: [0.1, whole[:20], whole[20:]]), requests=3))
    assert found["requests"]["completed"] == (3 if coding == "gzip" else 0)
    assert found["errors"] == ({} if coding == "gzip" else {"not_streamed": 3})


@pytest.mark.parametrize("forever", [[1e9], [0.5, b": still here\n\n"] * 100, [0.2, token()] * 100])
def test_a_server_that_stalls_or_never_ends_is_given_up(forever):
    result = load_on(ScriptedTransport(lambda body: forever), requests=20, timeout_s=3.0)
    assert summarize(result)["errors"] == {"timeout": 20}
    assert (result.end - result.start) / 1e9 == pytest.approx(1.9 + 3, abs=0.01)


# --- behind a socket ----------------------------------------------------------------------------


def run_against(behave, requests=6, arrivals="closed:3", timeout_s=20.0, lengths="fixed:5,4"):
    async def go():
        async with StubServer(behave) as server:
            endpoint = Endpoint(EndpointSpec(server.url))
            spec = make_spec(arrivals, lengths, requests=requests, timeout_s=timeout_s)
            return await LoadRun(endpoint, spec).run(), server

    async def bounded():
        return await asyncio.wait_for(go(), 60)

    result, server = asyncio.run(bounded())
    return summarize(result), server


def test_a_run_over_a_socket():
    found, server = run_against(timed(0.01, 0.002), requests=40)
    assert found["requests"]["completed"] == 40
    assert found["errors"] == {}
    assert found["target"]["model"] == "stub"
    assert found["latency"]["ttft_ms"]["p50"] >= 10
    assert found["latency"]["e2e_ms"]["p50"] >= 15
    assert found["tokens"]["output"] == 160
    assert found["tokens"]["prompt"] == 40 * 5
    assert len(server.bodies) == 40


def test_a_server_that_drops_the_connection_over_a_socket():
    async def drop(exchange):
        await exchange.start()
        await exchange.chunk(token())
        exchange.writer.close()

    found, _ = run_against(drop)
    assert found["errors"] == {"dropped": 6}


def test_a_server_that_stalls_over_a_socket():
    async def stall(exchange):
        await exchange.start()
        await exchange.chunk(token())
        await asyncio.Event().wait()

    found, _ = run_against(stall, timeout_s=0.2)
    assert found["errors"] == {"timeout": 6}


def test_a_server_that_answers_500_over_a_socket():
    async def refuse(exchange):
        await exchange.start("500 Internal Server Error", "text/plain")
        await exchange.chunk(b"out of memory")
        await exchange.end()

    found, _ = run_against(refuse)
    assert found["errors"] == {"http_500": 6}
    assert found["error_examples"] == {"http_500": "out of memory"}


def test_characters_cut_between_chunks_over_a_socket():
    async def cut(exchange):
        await exchange.start()
        data = token("漢") + token("🙂", "stop") + usage(5, 2) + DONE
        half = data.index("漢".encode()) + 1
        for part in (data[:half], data[half : half + 60], data[half + 60 :]):
            await exchange.chunk(part)
            await asyncio.sleep(0)
        await exchange.end()

    found, _ = run_against(cut)
    assert found["requests"]["completed"] == 6
    assert found["tokens"]["output"] == 12


def test_nobody_at_the_address():
    async def port_of_nobody():
        async with StubServer(timed(0, 0)) as server:
            return server.url

    url = asyncio.run(port_of_nobody())
    spec = make_spec("constant:100", "fixed:5,4", requests=5)
    with pytest.raises(TargetUnreachable, match=url):
        asyncio.run(LoadRun(Endpoint(EndpointSpec(url)), spec).run())
    named = Endpoint(EndpointSpec(url, model="m"))
    found = summarize(asyncio.run(LoadRun(named, spec).run()))
    assert found["errors"] == {"connect": 5}
    assert found["verdict"] == "inconclusive"


def test_a_server_that_names_no_model():
    transport = ScriptedTransport(lambda body: [b"{}"], kind="application/json")
    endpoint = Endpoint(EndpointSpec(URL), transport)
    with pytest.raises(ConfigError, match="--model"):
        run_virtual(LoadRun(endpoint, make_spec("constant:1", requests=1)).run())


# --- what is sent -------------------------------------------------------------------------------


def bodies(seed=0, **spec):
    transport = ScriptedTransport(stream_of)
    endpoint = Endpoint(EndpointSpec(URL, model="m", **spec), transport)
    load = make_spec("poisson:20", "chat*0.05", requests=30, seed=seed)
    run_virtual(LoadRun(endpoint, load).run())
    return [request.content for request in transport.requests]


def test_the_same_seed_sends_the_same_bytes():
    assert bodies(3) == bodies(3) != bodies(4)


def test_prompts_as_token_ids_have_their_exact_length():
    load = make_spec("poisson:20", "chat*0.05", requests=30)
    asked = [prompt for _, (prompt, _) in zip(range(30), load.mix.pairs(0), strict=False)]
    sent = [json.loads(body)["prompt"] for body in bodies(token_ids=True)]
    assert list(map(len, sent)) == asked
    assert all(type(i) is int for prompt in sent for i in prompt)


def test_a_request_asks_for_a_stream_with_usage_and_only_when_told_for_a_full_length():
    body = json.loads(bodies()[0])
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    assert "ignore_eos" not in body
    forced = ScriptedTransport(stream_of)
    load_on(forced, requests=1, ignore_eos=True)
    assert json.loads(forced.requests[0].content)["ignore_eos"] is True


def test_the_bearer_token_is_sent():
    transport = ScriptedTransport(stream_of)
    endpoint = Endpoint(EndpointSpec(URL, model="m", key="secret"), transport)
    run_virtual(LoadRun(endpoint, make_spec("constant:1", requests=1)).run())
    assert transport.requests[0].headers["authorization"] == "Bearer secret"
    assert "secret" not in json.dumps(endpoint.describe())


class Moved(ScriptedTransport):
    """Redirects everything to `where`, and answers there."""

    where = "/v1/completions/"

    async def handle_async_request(self, request):
        if request.url.path != "/v1/completions/":
            self.requests.append(request)
            return httpx.Response(307, headers={"location": self.where})
        return await super().handle_async_request(request)


def test_a_redirect_of_the_same_host_is_followed_with_token_and_body():
    transport = Moved(stream_of)
    endpoint = Endpoint(EndpointSpec(URL, model="m", key="secret"), transport)
    spec = make_spec("constant:1", "fixed:5,4", requests=1)
    result = run_virtual(LoadRun(endpoint, spec).run())
    assert result.records[0].completed
    first, second = transport.requests
    assert (first.content, first.headers["authorization"]) == (second.content, "Bearer secret")
    assert second.headers["authorization"] == "Bearer secret"


def test_a_redirect_to_another_host_is_a_failure_that_says_where_to():
    transport = Moved(stream_of)
    transport.where = "http://evil.test/v1/completions/"
    found = summarize(load_on(transport, requests=3))
    assert found["errors"] == {"http_307": 3}
    assert "http://evil.test" in found["error_examples"]["http_307"]
    assert {request.url.host for request in transport.requests} == {"stub"}


@pytest.mark.parametrize(
    ("url", "api", "expected"),
    [
        ("http://h:1", "completions", "http://h:1/v1/completions"),
        ("http://h:1/", "chat", "http://h:1/v1/chat/completions"),
        ("http://h:1/v1", "completions", "http://h:1/v1/completions"),
        ("http://h:1/v1/", "chat", "http://h:1/v1/chat/completions"),
        ("https://h/v1/chat/completions", "completions", "https://h/v1/chat/completions"),
        ("http://h/v1/completions", "chat", "http://h/v1/completions"),
        ("http://h/gateway/v1", "completions", "http://h/gateway/v1/completions"),
    ],
)
def test_addresses(url, api, expected):
    assert Endpoint(EndpointSpec(url, api)).describe()["url"] == expected


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"url": "localhost:8000"}, "expected embedded, null or http"),
        ({"url": "ftp://h"}, "expected embedded, null or http"),
        ({"url": "http://"}, "expected embedded, null or http"),
        ({"url": "http://[::"}, "expected embedded, null or http"),
        ({"url": URL, "api": "responses"}, "completions or chat"),
        ({"url": URL, "api": "chat", "token_ids": True}, "need the completions API"),
        ({"url": URL, "key": "a\nb"}, "bearer token"),
        ({"url": URL, "limit": 1}, "max_context"),
    ],
)
def test_an_endpoint_that_cannot_be_gets_one_clear_line(options, why):
    with pytest.raises(ConfigError, match=why) as caught:
        EndpointSpec(**options)
    assert "\n" not in str(caught.value)


def test_an_event_may_have_several_lines_and_fields():
    reader = EventReader()
    data = b"event: message\nid: 5\nretry: 10\ndata: one\ndata:two\n\n:comment\n\ndata: three\n\n"
    assert list(reader.feed(data)) == ["one\ntwo", "three"]
    with pytest.raises(BadStream):
        list(reader.feed(b"nonsense\n"))


def test_what_the_targets_prefix_cache_had_is_named():
    counts = {"prompt_tokens": 20, "completion_tokens": 3}

    def script(body):
        known = counts | {"prompt_tokens_details": {"cached_tokens": 16}}
        return [*(piece for _ in range(2) for piece in (0.01, token())), token(finish="length"),
                event({"choices": [], "usage": known}), DONE]  # fmt: skip

    report = summarize(load_on(ScriptedTransport(script), requests=10, lengths="fixed:20,3"))
    assert report["tokens"]["prompt_cached"] == 160
    assert any("had 160 of 200 prompt tokens" in note for note in report["warnings"])
    silent = summarize(load_on(ScriptedTransport(stream_of), requests=10))
    assert silent["tokens"]["prompt_cached"] is None
