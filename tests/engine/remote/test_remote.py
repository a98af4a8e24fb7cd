"""RemoteEngine: states over time, restarts behind a real socket, secrets, talking to it."""

import json
import logging
import time

import httpx
import pytest

from engine.errors import ConfigError, EngineError
from engine.remote import NotAvailable, attach
from engine.request import FinishReason, SamplingParams
from engine.snapshot import QueueState, Snapshot, SourceState
from remote_pages import triton
from remote_stub import URL, Server, SocketServer, page, with_value
from waiting import CEILING_S, until

LIVE, STALE = SourceState.LIVE, SourceState.STALE
UNREACHABLE = SourceState.UNREACHABLE
TOKEN = "sk-very-secret"


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def attached(server, clock, **options):
    return server.attach(clock=clock, monotonic=clock, **options)


# --- states ------------------------------------------------------------------------------


def test_a_refused_connection_is_unreachable_at_once_and_keeps_the_last_numbers(clock):
    server = Server(page("vllm/busy"))
    engine = attached(server, clock)
    assert engine.poll().source.state is LIVE
    server.pages["/metrics"] = httpx.ConnectError("Connection refused")
    clock.now += 2.0
    snapshot = engine.poll()
    assert snapshot.source.state is UNREACHABLE
    assert (snapshot.source.age_s, snapshot.source.reason) == (2.0, "Connection refused")
    assert snapshot.batch.running == 11  # old, and marked as such
    clock.now += 3.0
    assert engine.snapshot().source.age_s == 5.0
    assert engine.numbers is None


def test_one_slow_answer_is_stale_and_the_second_is_unreachable(clock):
    server = Server(page("vllm/busy"))
    engine = attached(server, clock)
    engine.poll()
    server.pages["/metrics"] = httpx.ReadTimeout("slow")
    assert engine.poll().source.state is STALE
    assert engine.poll().source.state is UNREACHABLE
    server.pages["/metrics"] = page("vllm/busy")
    snapshot = engine.poll()
    assert (snapshot.source.state, snapshot.source.age_s, snapshot.source.reason) == (
        LIVE,
        0.0,
        None,
    )


def test_what_was_never_there_has_no_numbers_and_an_age(clock):
    engine = attached(Server(httpx.ConnectError("refused")), clock)
    clock.now += 7.0
    snapshot = engine.poll()
    assert snapshot.source.state is UNREACHABLE and snapshot.source.age_s == 7.0
    assert snapshot.seq == 0 and snapshot.engine.model is None


def test_events_tell_what_was_found_and_what_happened(clock):
    server = Server(page("vllm/busy"))
    engine = attached(server, clock)
    engine.poll()
    server.pages["/metrics"] = httpx.ConnectError("refused")
    engine.poll(), engine.poll()
    clock.now += 12.0
    later = with_value(page("vllm/after"), "process_start_time_seconds", "1.9e9")
    server.pages["/metrics"] = with_value(later, "vllm:num_preemptions_total", "3")
    texts = [event.text for event in engine.poll().events]
    assert texts[0] == f"found vLLM at {URL}"
    assert texts[1].startswith("it does not tell: KV pages by state")
    assert texts[2:] == [
        "unreachable: refused",
        "live again after 12 s",
        "it restarted: its counters began again",
        "preempted 3 times since the last look",
    ]


def test_an_engine_that_holds_requests_and_makes_no_token_raises_an_alarm(clock):
    engine = attached(Server(page("vllm/busy")), clock)
    assert engine.poll().engine.alarm is None
    clock.now += 31.0
    assert engine.poll().engine.alarm == (
        "24 requests are in the engine and no token came for 31 s"
    )


def test_it_says_what_it_found_and_cannot_know(clock):
    engine = attached(Server(page("llamacpp/busy")), clock)
    engine.poll()
    assert (engine.engine, engine.title) == ("llamacpp", "llama.cpp server")
    assert any("no histograms" in text for text in engine.cannot_know)


def test_a_cap_that_we_know_is_shown_where_the_engine_tells_none(clock):
    batch = attached(Server(page("vllm/busy")), clock, cap=16).poll().batch
    assert (batch.cap, batch.cap_max) == (16, 16)


# --- EveWatch ----------------------------------------------------------------------------


def evewatch(snapshot):
    return Server(
        page("vllm/busy") + b"evewatch:kv_pages_open 3\n",
        **{"/snapshot": snapshot.to_json().encode()},
    )


def test_evewatch_gives_its_own_snapshot(clock):
    inner = Snapshot(seq=77, time=123.0, queue=QueueState(waiting=5, oldest_wait_s=2.5))
    snapshot = attached(evewatch(inner), clock).poll()
    assert (snapshot.source.engine, snapshot.source.target) == ("evewatch", URL)
    assert (snapshot.queue.waiting, snapshot.queue.oldest_wait_s) == (5, 2.5)
    assert snapshot.time == 1000.0  # by our clock, whatever theirs says


def test_an_evewatch_that_calls_itself_stale_is_stale(clock):
    inner = FakeStale.snapshot()
    snapshot = attached(evewatch(inner), clock).poll()
    assert (snapshot.source.state, snapshot.source.reason) == (STALE, "its thread hangs")
    assert snapshot.source.age_s == 9.0


class FakeStale:
    @staticmethod
    def snapshot():
        from engine.snapshot import Source

        return Snapshot(seq=1, time=1.0, source=Source(STALE, age_s=9.0, reason="its thread hangs"))


# --- a real socket -----------------------------------------------------------------------


def test_a_target_that_is_killed_and_started_again():
    with SocketServer({"/metrics": page("vllm/after")}) as server:
        engine = attach(server.url, interval_s=0.05)
        engine.start()
        try:
            until(lambda: engine.snapshot().source.state is LIVE)
            server.kill()
            polls = len(server.asked)
            until(lambda: engine.snapshot().source.state is UNREACHABLE)
            assert len(server.asked) == polls
            dead = engine.snapshot().source
            assert dead.reason and dead.age_s > 0
            # It comes back with counters that began again.
            server.pages["/metrics"] = with_value(
                page("vllm/busy"), "process_start_time_seconds", "1.9e9"
            )
            server.start()
            until(lambda: engine.snapshot().source.state is LIVE)
            until(lambda: len(engine.series()) >= 8)
            assert engine.restarts == 1
            for s in engine.series():
                rates = (s.batch.output_tok_s, s.batch.prompt_tok_s, s.queue.arrivals_per_s)
                assert all(rate is None or rate >= 0 for rate in rates)
        finally:
            engine.stop()


def test_a_target_that_comes_late_is_watched_until_it_is_there():
    server = SocketServer({"/metrics": page("vllm/busy")}).start()
    server.kill()
    engine = attach(server.url, interval_s=0.05)
    engine.start()
    try:
        assert engine.snapshot().source.state is UNREACHABLE
        server.start()
        until(lambda: engine.snapshot().source.state is LIVE)
    finally:
        engine.stop()
        server.kill()


# --- addresses and secrets ---------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    ["http://h:8000", "http://h:8000/", "http://h:8000/v1", "http://h:8000/metrics",
     "http://h:8000/v1/chat/completions", "http://h:8000/snapshot"],
)  # fmt: skip
def test_any_address_of_a_server_leads_to_its_metrics(url):
    server = Server(page("vllm/busy"))
    assert server.attach(url).poll().source.state is LIVE
    assert str(server.asked[0].url) == "http://h:8000/metrics"


@pytest.mark.parametrize(
    ("url", "why"),
    [("ftp://h", "expected the address"), ("h:8000", "expected the address"), ("", "expected"),
     ("http://", "expected"), (f"http://me:{TOKEN}@h", "token_env"),
     (f"http://me:pa/{TOKEN}@h", "expected"), ("http://h:99999", "expected")],
)  # fmt: skip
def test_an_address_that_cannot_be_is_refused(url, why):
    with pytest.raises(ConfigError, match=why) as caught:
        attach(url)
    assert TOKEN not in str(caught.value)


def test_the_token_goes_to_the_target_and_nowhere_else(caplog):
    caplog.set_level(logging.DEBUG)
    server = Server(page("vllm/busy"))
    engine = server.attach(token=TOKEN)
    engine.poll()
    assert server.asked[0].headers["authorization"] == f"Bearer {TOKEN}"
    server.pages["/metrics"] = httpx.ConnectError(f"bad header Bearer {TOKEN}")
    snapshot = engine.poll()
    server.pages["/metrics"] = httpx.Response(401)
    refused = engine.poll()
    assert "its token is refused" in refused.source.reason
    everything = snapshot.to_json() + refused.to_json() + caplog.text + repr(engine)
    assert TOKEN not in everything


@pytest.mark.parametrize(
    ("options", "why"), [({"engine": "gpt"}, "expected one of"), ({"interval_s": 0}, "interval")]
)
def test_options_that_cannot_be_are_refused(options, why):
    with pytest.raises(ConfigError, match=why):
        attach(URL, **options)


# --- controls and questions --------------------------------------------------------------


def test_what_only_the_inside_can_do_is_not_available():
    engine = Server(page("vllm/busy")).attach()
    engine.poll()
    for call in (
        lambda: engine.set_cap(4),
        lambda: engine.set_paused(True),
        lambda: engine.set_dynamic(True),
        lambda: engine.set_draining(True),
        lambda: engine.set_max_wait(1.0),
    ):
        with pytest.raises(NotAvailable, match="watched from outside"):
            call()
    assert engine.why_not("set_cap") and not engine.why_not("submit")
    assert issubclass(NotAvailable, EngineError)


def events(*parts):
    return b"".join(b"data: " + part.encode() + b"\n\n" for part in parts)


ANSWER = events(
    '{"choices":[{"delta":{"role":"assistant","content":""}}]}',
    '{"choices":[{"delta":{"content":"Hel"}}]}',
    '{"choices":[{"delta":{"content":"lo é"}}]}',
    '{"choices":[{"delta":{},"finish_reason":"stop"}]}',
    '{"choices":[],"usage":{"completion_tokens":2}}',
    "[DONE]",
)


def talk(answer, **params):
    server = Server(page("vllm/busy"), **{"/v1/chat/completions": answer})
    engine = server.attach()
    engine.poll()
    messages = [{"role": "user", "content": "hi"}]
    stream = engine.submit(messages, SamplingParams(max_tokens=5, **params))
    return stream.result(CEILING_S), server


def test_a_question_streams_its_answer():
    result, server = talk(ANSWER, temperature=0.5, stop=("x",))
    assert (result.text, result.finish_reason) == ("Hello é", FinishReason.STOP)
    assert len(result.token_ids) == 2
    import json

    body = json.loads(server.asked[-1].content)
    assert body["messages"] == [{"role": "user", "content": "hi"}]
    assert (body["model"], body["stream"], body["max_tokens"]) == ("smollm2", True, 5)
    assert (body["temperature"], body["stop"]) == (0.5, ["x"])


def test_a_question_follows_a_redirect_of_the_same_host():
    moved = httpx.Response(307, headers={"location": "/v1/chat/completions/"})
    server = Server(page("vllm/busy"), **{
        "/v1/chat/completions": moved, "/v1/chat/completions/": ANSWER,
    })  # fmt: skip
    engine = server.attach(token=TOKEN)
    engine.poll()
    stream = engine.submit([{"role": "user", "content": "hi"}], SamplingParams(max_tokens=5))
    assert stream.result(timeout=10).text == "Hello é"
    assert server.asked[-1].headers["authorization"] == f"Bearer {TOKEN}"
    assert b'"hi"' in server.asked[-1].content


def test_an_answer_cut_in_the_middle_of_a_character_is_put_together():
    def dripping():
        for i in range(0, len(ANSWER), 3):
            yield ANSWER[i : i + 3]

    result, _ = talk(lambda request: httpx.Response(200, content=dripping()))
    assert result.text == "Hello é"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (httpx.Response(400, content=b'{"error": "too long"}'), "answered 400: .*too long"),
        (events('{"choices":[{"delta":{"content":"a"}}]}'), "broke off"),
        (events('{"error": "out of memory"}'), "out of memory"),
        (events("nonsense"), "not understood"),
        (events('{"choices":[{"delta":{"content":"a"},"finish_reason":""}]}'), "broke off"),
        (events('{"choices":[{"delta":{"content":"a"},"finish_reason":"null"}]}'), "broke off"),
        (events('{"choices":[{"delta":{"content":"a"}}]}', "[DONE]"), "broke off"),
        (events('{"choices":[{"delta":{},"finish_reason":"error"}]}', "[DONE]"), "with an error"),
        (events('{"object":"error","message":"CUDA error"}'), "CUDA error"),
        (events("[1]", '{"choices":[7]}'), "broke off|not understood"),
        (httpx.ReadError("reset"), "reset"),
    ],
)
def test_a_question_that_fails_ends_with_the_reason(answer, why):
    result, _ = talk(answer)
    assert result.finish_reason is FinishReason.ERROR
    import re

    assert re.search(why, result.error)


def test_a_cancelled_question_ends():
    def endless():
        while True:
            yield events('{"choices":[{"delta":{"content":"a"}}]}')
            time.sleep(0.005)

    server = Server(page("vllm/busy"), **{
        "/v1/completions": lambda request: httpx.Response(200, content=endless())
    })  # fmt: skip
    engine = server.attach()
    engine.poll()
    stream = engine.submit("hi", SamplingParams(max_tokens=5))
    assert stream.next(timeout=CEILING_S) is not None
    engine.cancel(stream.request_id)
    until(lambda: stream.closed)
    last = stream.result(CEILING_S)
    assert last.finish_reason is FinishReason.CANCELLED
    until(lambda: not engine._chats)


def test_triton_cannot_be_asked():
    engine = Server(triton()).attach()
    engine.poll()
    with pytest.raises(NotAvailable, match="no OpenAI API"):
        engine.submit("hi", SamplingParams())


@pytest.mark.parametrize(
    ("kind", "path", "page_of", "told"),
    [
        ("vllm/busy", "/version", {"version": "0.11.0"}, "0.11.0"),
        ("vllm/busy", "/version", {"release": "0.11.0"}, None),
        ("vllm/busy", "/other", {}, None),
        ("llamacpp/busy", "/props", {"build_info": "b4321-abc"}, "b4321-abc"),
    ],
)
def test_its_version_is_what_its_api_says(clock, kind, path, page_of, told):
    server = Server(page(kind), **{path: json.dumps(page_of).encode()})
    engine = attached(server, clock)
    assert engine.version() is None  # not seen yet
    engine.poll()
    assert engine.version() == told
