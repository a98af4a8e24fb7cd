"""An end is an end, bookkeeping never spoils an answer, and our limits are ours: what servers and
this machine do to an answer, as far as a load must tell it apart.
"""

import asyncio
import errno
import os

import httpx
import pytest

from load_stub import DONE, ScriptedTransport, event, load_on, stream_of, token
from playbooks.canary.evidence import Sample
from playbooks.load.summary import summarize

# --- an end is an end ---------------------------------------------------------------------------
# A value in finish_reason that no server documents ends nothing; nor does a documented one when
# the body is then cut off.

NO_END = ["", "null", "None", "none", "NULL", "undefined", "in_progress", "running",
          "NOT_FINISHED", "unknown", 0, False, [], {}, {"type": None}, " ",
          "FINISH_REASON_UNSPECIFIED"]  # fmt: skip


def chunk_of(text, reason, chat):
    part = {"delta": {"content": text}} if chat else {"text": text}
    return event({"choices": [{"index": 0, "finish_reason": reason, **part}]})


@pytest.mark.parametrize("reason", NO_END)
@pytest.mark.parametrize("api", ["chat", "completions"])
@pytest.mark.parametrize("done", [b"", DONE], ids=["clean end", "DONE"])
def test_a_reason_that_is_none_ends_no_answer(reason, api, done):
    def script(body):
        return [0.1, chunk_of("Hel", reason, api == "chat"), chunk_of("lo", reason, True), done]

    found = summarize(load_on(ScriptedTransport(script), api=api, requests=10))
    assert (found["errors"], found["finish_reasons"]) == ({"dropped": 10}, {})


@pytest.mark.parametrize(
    "reason",
    ["stop", "length", "tool_calls", "content_filter", "function_call", "eos_token", "eos", "STOP",
     "stop_sequence", "end_turn", "max_tokens", "limit", {"type": "stop"}, "MAX_TOKENS",
     "COMPLETE", "refusal", "sensitive", "SAFETY", {"type": "length", "length": 5}],
)  # fmt: skip
@pytest.mark.parametrize("tail", [DONE, b"", DONE.rstrip(b"\n"), b": bye\n\n" + DONE])
def test_a_documented_reason_ends_it_with_done_or_the_bodys_end(reason, tail):
    def script(body):
        return [0.1, chunk_of("Hel", "", False), chunk_of("lo", reason, False), tail]

    found = summarize(load_on(ScriptedTransport(script), requests=10))
    assert found["requests"]["completed"] == 10, found["error_examples"]


class Cut(ScriptedTransport):
    """The connection breaks when the pieces are over."""

    async def handle_async_request(self, request):
        response = await super().handle_async_request(request)
        pieces = response.stream

        class Stream(type(pieces)):
            async def __aiter__(self):
                async for piece in pieces:
                    yield piece
                raise httpx.RemoteProtocolError("incomplete chunked read")

        response.stream = Stream([])
        return response


def test_a_cut_before_done_breaks_the_answer_and_one_after_it_does_not():
    whole = chunk_of("Hi", "stop", False)
    cut = summarize(load_on(Cut(lambda body: [0.1, whole]), requests=5))
    assert cut["errors"] == {"dropped": 5}
    after = summarize(load_on(Cut(lambda body: [0.1, whole, DONE]), requests=5))
    assert after["requests"]["completed"] == 5


def test_an_end_that_is_followed_by_more_was_none():
    def script(body):
        return [0.1, chunk_of("Hel", "stop", False), chunk_of("lo", None, False)]

    assert summarize(load_on(ScriptedTransport(script), requests=5))["errors"] == {"dropped": 5}


# --- what is an event --------------------------------------------------------------------------
# The same two pieces of text and an end, as servers and proxies between write them.

WHOLE = token("a") + token("b") + token("", "stop") + DONE
FORMS = {
    "lines that end in CR LF": WHOLE.replace(b"\n", b"\r\n"),
    "lines that end in CR": WHOLE.replace(b"\n", b"\r"),
    "a byte order mark": b"\xef\xbb\xbf" + WHOLE,
    "no space behind the colon": WHOLE.replace(b"data: ", b"data:"),
    "events without data": b"data:\n\n" + WHOLE.replace(DONE, b"data: \n\n" + DONE),
    "fields of other names": b"server-timing: 3\nx_trace: a\n" + WHOLE,
    "names of events, and pings": b'event: ping\ndata: {"type": "ping"}\n\nevent: x\n' + WHOLE,
    "Azure's first event": event({"choices": [], "prompt_filter_results": [{}]}) + WHOLE,
    "no choices, no error": event({"choices": None, "error": None, "usage": None}) + WHOLE,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cut", [1, 2, 3, 7, 10_000])
def test_however_events_are_written_the_answer_is_the_same(form, cut):
    body = FORMS[form]
    pieces = [body[at : at + cut] for at in range(0, len(body), cut)]
    (record,) = load_on(ScriptedTransport(lambda _: [0.1, *pieces]), requests=1).records
    assert (record.error, record.finish_reason, len(record.events)) == (None, "stop", 2)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'event: error\ndata: {"message": "boom", "code": 500}\n\n', "boom"),
        (b"event: error\ndata: overloaded\n\n", "overloaded"),
        (b'event: error\ndata: {"error": {"message": "no room"}}\n\n', "no room"),
        (event({"error": {"message": "cuda \x1b[31m", "type": "x"}}), "cuda [31m"),
        (event({"error": "plain"}), "plain"),
        (event({"error": {"code": 500}}), '{"code": 500}'),
        (event({"object": "error", "message": "older vLLM", "code": 400}), "older vLLM"),
        (event({"error": {"message": "bad key SECRET-1234"}}), "bad key …"),
    ],
)
def test_an_error_in_the_stream_is_told_in_the_servers_words(data, said):
    transport = ScriptedTransport(lambda _: [0.1, token(), data])
    (record,) = load_on(transport, requests=1, key="SECRET-1234").records
    assert (record.error, record.detail) == ("api_error", said)


WRITTEN = [{"content": "x"}, {"reasoning_content": "x"}, {"reasoning": "x"}, {"refusal": "no"},
           {"tool_calls": [{"function": {"arguments": "{"}}]}, {"function_call": {"name": "f"}},
           {"content": [{"type": "text", "text": "x"}]}, {"audio": {"data": "eA=="}},
           {"reasoning_details": [{"text": "x"}]}]  # fmt: skip


@pytest.mark.parametrize("delta", WRITTEN)
def test_whatever_a_model_wrote_is_output(delta):
    def script(body):
        parts = [{"delta": {"role": "assistant", "content": ""}}, {"delta": delta},
                 {"delta": {}, "finish_reason": "stop"}]  # fmt: skip
        return [0.1, *(event({"choices": [part]}) for part in parts), DONE]

    (record,) = load_on(ScriptedTransport(script), api="chat", requests=1).records
    assert (record.error, len(record.events)) == (None, 1)


# --- bookkeeping never spoils an answer ---------------------------------------------------------

NO_COUNT = [None, {}, [], "9", 5, {"prompt_tokens": None, "completion_tokens": None},
            {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
            {"prompt_tokens": -1, "completion_tokens": -5}, {"completion_tokens": "many"},
            {"completion_tokens": 5.5}, {"completion_tokens": True}, {"total_tokens": 14},
            {"completion_tokens": 1e300}, {"completion_tokens": [5]}]  # fmt: skip


def counted(*counts, requests=10):
    """A run whose answers have five events, with these usages between and after them."""

    def script(body):
        pieces = [event({"choices": [{"text": "x"}], "usage": c}) for c in counts[:-1]]
        pieces += [token()] * (5 - len(pieces))
        return [0.1, *pieces, token("", "stop"), event({"choices": [], "usage": counts[-1]}), DONE]

    result = load_on(ScriptedTransport(script), requests=requests)
    found = summarize(result)
    assert found["requests"]["completed"] == requests, found["error_examples"]
    return found, result.records[0]


@pytest.mark.parametrize("count", NO_COUNT)
def test_usage_that_says_nothing_is_counted_by_events_and_it_is_said(count):
    found, record = counted(count, count)
    assert (record.output_tokens, record.prompt_tokens) == (5, 20)
    assert found["tokens"]["counted_by_target"] == 0
    assert any("10 answers came without usage" in note for note in found["warnings"])


@pytest.mark.parametrize(
    "counts",
    [
        ({"prompt_tokens": 9, "completion_tokens": 7},),
        ({"prompt_tokens": 9.0, "completion_tokens": 7.0},),
        ({"prompt_tokens": "9", "completion_tokens": "7"},),
        ({"prompt_tokens": 9, "total_tokens": 16},),
        ({"completion_tokens": 7, "total_tokens": 16},),
        ({"prompt_tokens": 9, "completion_tokens": 7}, {"prompt_tokens": 0}),
        ({"prompt_tokens": 9, "completion_tokens": 7}, None),
        ({"prompt_tokens": 9, "completion_tokens": 1}, {"prompt_tokens": 9, "total_tokens": 16}),
        ({"prompt_tokens": 9}, {"completion_tokens": 7, "extra": {"cached": None}}),
        ({"input_tokens": 9, "output_tokens": 7},),
        ({"prompt_tokens": 0, "input_tokens": 9, "output_tokens": 7},),
    ],
)
def test_what_is_sound_of_usage_is_taken(counts):
    found, record = counted(*counts)
    assert (record.prompt_tokens, record.output_tokens) == (9, 7)
    assert found["tokens"]["counted_by_target"] == 10
    assert not any("usage" in note for note in found["warnings"])


@pytest.mark.parametrize(
    "end",
    [
        {"choices": [{"text": "", "usage": {"prompt_tokens": 9, "completion_tokens": 7}}]},
        {"choices": [], "x_groq": {"usage": {"prompt_tokens": 9, "completion_tokens": 7}}},
        {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 7}, "x_groq": None},
    ],
)
def test_usage_is_found_where_servers_put_it(end):
    transport = ScriptedTransport(lambda _: [0.1, token("x", "stop"), event(end), DONE])
    (record,) = load_on(transport, requests=1).records
    assert (record.prompt_tokens, record.output_tokens) == (9, 7)


@pytest.mark.parametrize(
    ("told", "cached"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 4}}, 4),
        ({"prompt_tokens_details": {"cached_tokens": 0}}, 0),
        ({"prompt_tokens_details": {"cached_tokens": None}}, None),
        ({"prompt_tokens_details": {"cached_tokens": "no"}}, None),
        ({"prompt_tokens_details": {}}, None),
        ({"input_tokens_details": {"cached_tokens": 4}}, 4),
        ({"prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 5}, 4),
        ({"cached_tokens": 4}, 4),
        ({"cache_read_input_tokens": 0}, 0),
        ({"prompt_tokens_details": {"cached_tokens": 10}}, None),
    ],
)
def test_tokens_that_a_cache_had_are_known_zero_or_not_known(told, cached):
    _, record = counted({"prompt_tokens": 9, "completion_tokens": 7} | told)
    assert record.cached_tokens == cached


def test_a_count_of_one_side_is_taken_and_the_other_is_named():
    found, record = counted({"completion_tokens": 7})
    assert (record.prompt_tokens, record.output_tokens) == (20, 7)
    assert any("without a count of their prompt" in note for note in found["warnings"])
    found, record = counted({"prompt_tokens": 9, "completion_tokens": 0})
    assert (record.prompt_tokens, record.output_tokens) == (9, 5)
    assert any("without usage" in note for note in found["warnings"])


# --- our limits are ours ------------------------------------------------------------------------


def at_a_limit(number, every=2):
    """Every second connection fails as httpx says it when this machine is at a limit."""
    turn = iter(range(10_000))

    class Limited(ScriptedTransport):
        async def handle_async_request(self, request):
            if next(turn) % every == 0:
                try:
                    try:
                        raise OSError(number, os.strerror(number))
                    except OSError as error:
                        raise OSError("All connection attempts failed") from error
                except OSError as error:
                    raise httpx.ConnectError("All connection attempts failed") from error
            return await super().handle_async_request(request)

    return Limited(stream_of)


@pytest.mark.parametrize("arrivals", ["constant:10", "closed:4"])
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS])
def test_our_own_limits_are_counted_apart_and_named(number, arrivals):
    found = summarize(load_on(at_a_limit(number), arrivals, requests=100))
    assert found["errors"] == {"client_limit": 50}
    assert (found["requests"]["failed"], found["requests"]["client_limit"]) == (0, 50)
    assert found["requests"]["error_rate"] == 0.0
    assert found["verdict"] == "inconclusive"
    assert "could not be sent: out of" in found["reasons"][0]


def test_what_this_machine_cannot_send_is_no_fault_of_a_canary():
    result = load_on(at_a_limit(errno.EMFILE), requests=10)
    samples = [Sample.of(record, lambda start, end: 0) for record in result.records]
    assert sum(sample is None for sample in samples) == 5
    assert not any(sample.is_fault or sample.error for sample in samples if sample is not None)


@pytest.mark.parametrize("number", [errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH])
def test_what_the_target_does_is_no_limit_of_ours(number):
    found = summarize(load_on(at_a_limit(number), requests=20))
    assert found["errors"] == {"connect": 10}


def test_the_soft_limit_of_open_files_is_raised():
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, before[0]), before[1]))
        load_on(ScriptedTransport(stream_of), requests=1)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == before[1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_when_every_request_fails_the_generator_is_not_blamed():
    def late(body):
        asyncio.get_running_loop()._selector.now += 0.2  # our loop is late, and nothing shows it
        return [token()]

    found = summarize(load_on(ScriptedTransport(late), requests=50))
    assert found["errors"] == {"dropped": 50} and not found["generator_bound"]
    assert found["reasons"] == ["no request was answered in the measuring window"]
