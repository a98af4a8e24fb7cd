"""Whatever a target sends ends as a state with a reason: nothing raises, nothing looks well."""

import gzip
import re
import zlib

import httpx
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.remote.adapters import canonical, known, recognise
from engine.remote.adapters.llamacpp import read_slots
from engine.remote.client import MAX_BODY
from engine.remote.errors import Unparsable
from engine.remote.metrics.metrics_page import _USUAL, _parsed, _sample, _split, parse
from engine.remote.metrics.scrape import Scrape
from engine.snapshot import Snapshot, SourceState
from remote_pages import OTHER_PROGRAM, sglang
from remote_stub import Server, page

UNPARSABLE, WRONG = SourceState.UNPARSABLE, SourceState.WRONG_ENGINE
UNREACHABLE = SourceState.UNREACHABLE


@pytest.mark.parametrize(
    ("body", "state", "reason"),
    [
        (page("damaged/empty"), UNPARSABLE, "empty"),
        (b"\n\n  \n", UNPARSABLE, "empty"),
        (page("damaged/html"), UNPARSABLE, "HTML"),
        (page("damaged/truncated"), UNPARSABLE, "cut off in the middle of a line"),
        (page("damaged/binary"), UNPARSABLE, "binary"),
        (b"\xff\xfe\xfd\n", UNPARSABLE, "UTF-8"),
        (b"hello, world\n", UNPARSABLE, "no sample"),
        (b"# nothing but comments\n", UNPARSABLE, "no samples"),
        (b"vllm:num_requests_running{ 3\n", UNPARSABLE, "no sample"),
        (b'vllm:num_requests_running{engine="0"} three\n', UNPARSABLE, "no sample"),
        (OTHER_PROGRAM, WRONG, "of no engine that is known here"),
        (None, WRONG, "exports no metrics; vLLM"),
    ],
)
def test_a_bad_page_has_a_state_and_a_reason(body, state, reason):
    snapshot = Server(body).attach().poll()
    assert snapshot.source.state is state
    assert reason in snapshot.source.reason
    assert snapshot.batch.running is None and snapshot.kv.usage is None
    assert Snapshot.from_json(snapshot.to_json()).source == snapshot.source


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (httpx.Response(500), "answered 500 Internal Server Error"),
        (httpx.Response(502, content=page("damaged/html")), "answered 502"),
        (httpx.Response(401), "it wants a token"),
        (httpx.Response(302, headers={"location": "/login"}), "redirects"),
        (httpx.ConnectError("[Errno 111] Connection refused"), "Connection refused"),
        (httpx.ReadError("reset by peer"), "reset by peer"),
        (httpx.ReadTimeout("slow"), "no answer within"),
    ],
)
def test_a_bad_answer_is_unreachable_and_says_why(answer, reason):
    snapshot = Server(answer).attach().poll()
    assert snapshot.source.state is UNREACHABLE
    assert reason in snapshot.source.reason
    assert "Errno" not in snapshot.source.reason


def test_another_engine_than_the_one_expected_is_wrong():
    snapshot = Server(sglang()).attach(engine="vllm").poll()
    assert snapshot.source.state is WRONG
    assert snapshot.source.reason == "expected vllm, found SGLang"


def test_a_page_without_end_is_capped():
    line = b"vllm:num_requests_running 1\n"

    def endless():
        while True:
            yield line * 10_000

    snapshot = Server(lambda request: httpx.Response(200, content=endless())).attach().poll()
    assert snapshot.source.state is UNPARSABLE and "16 MiB" in snapshot.source.reason
    with pytest.raises(Unparsable, match="16 MiB"):
        parse(line * (MAX_BODY // len(line) + 1), canonical)


def test_a_line_without_end_and_samples_without_number_are_refused():
    with pytest.raises(Unparsable, match="characters"):
        parse(b'vllm:num_requests_running{a="' + b'\\"' * 100_000 + b'"} 1\n', canonical)
    with pytest.raises(Unparsable, match="samples"):
        parse(b"vllm:num_requests_running 1\n" * 100_001, canonical)


def test_a_family_written_twice_counts_once():
    once = page("vllm/busy")
    twice = once + once
    assert Server(twice).attach().poll().batch.running == 11
    found, again = parse(once, canonical), parse(twice, canonical)
    assert {n: f.values for n, f in found.families.items()} == {
        n: f.values for n, f in again.families.items()
    }


def test_an_engine_that_has_renamed_everything_is_live_and_tells_nothing():
    snapshot = Server(b"vllm:something_new 1\n").attach().poll()
    assert (snapshot.source.state, snapshot.source.engine) == (SourceState.LIVE, "vllm")
    assert snapshot.batch.running is None and snapshot.queue.waiting is None


def test_a_histogram_that_does_not_fit_together_hits_one_field():
    body = page("vllm/busy").replace(
        b'vllm:e2e_request_latency_seconds_bucket{engine="0",le="10.0",model_name="smollm2"} 6.0',
        b'vllm:e2e_request_latency_seconds_bucket{engine="0",le="10.0",model_name="smollm2"} 9.0',
    )
    snapshot = Server(body).attach().poll()
    assert snapshot.latency.e2e_ms.n == 0 and snapshot.latency.ttft_ms.n == 17
    assert "e2e_request_latency_seconds" in snapshot.engine.note


@pytest.mark.parametrize("cut", range(0, 7777, 311))
def test_a_page_cut_anywhere_is_never_live_with_half_a_line(cut):
    body = page("damaged/truncated")[:cut]
    snapshot = Server(body).attach().poll()
    if not body.endswith(b"\n"):
        assert snapshot.source.state is UNPARSABLE


@pytest.mark.parametrize("name", ["vllm/busy", "vllm/two_engines", "llamacpp/busy"])
def test_lines_in_the_usual_form_read_as_the_parser_reads_them(name):
    lines = [line for line in page(name).decode().splitlines() if line and line[0] != "#"]
    assert len(lines) > 10
    for line in lines:
        parsed = [(*_split(n, labels), *rest) for n, labels, *rest in _parsed(line)]
        assert _USUAL.fullmatch(line) and _sample(line) == parsed


def encoded(coding, body):
    return httpx.Response(200, headers={"content-encoding": coding}, stream=httpx.ByteStream(body))


@pytest.mark.parametrize(
    "answer",
    [
        encoded("gzip", gzip.compress(page("vllm/busy"), mtime=0)),
        encoded("deflate", zlib.compress(page("vllm/busy"))),
        encoded("gzip, identity", gzip.compress(page("vllm/busy"), mtime=0)),
        encoded("none", page("vllm/busy")),
        encoded("UTF-8", page("vllm/busy")),
        encoded("identity, identity", page("vllm/busy")),
        page("vllm/busy").replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + page("vllm/busy"),
        httpx.Response(200, headers={"content-type": "text/html"}, content=page("vllm/busy")),
    ],
)
def test_what_a_proxy_does_to_a_page_changes_no_number(answer):
    plain, seen = (Server(one).attach().poll() for one in (page("vllm/busy"), answer))
    assert seen.source.state is SourceState.LIVE
    for part in ("queue", "batch", "kv", "latency", "finished"):
        assert getattr(seen, part) == getattr(plain, part)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (encoded("br", b"\x0b\x02\x80abc\x03"), "encoded \\(br\\)"),
        (encoded("zstd", zstandard.compress(page("vllm/busy"))), "encoded \\(zstd\\)"),
        (encoded("compress", b"\x1f\x9d"), "encoded \\(compress\\)"),
        (
            encoded("gzip, gzip", gzip.compress(gzip.compress(b"a" * 9, mtime=0), mtime=0)),
            "encoded \\(gzip\\)",
        ),
        (encoded("gzip", page("vllm/busy")), "cannot be decompressed"),
        (gzip.compress(page("vllm/busy"), mtime=0), "compressed"),
        (encoded("gzip", gzip.compress(b"a" * (MAX_BODY + 1), mtime=0)), "more than 16 MiB"),
    ],
)
def test_a_page_in_an_encoding_that_was_not_asked_for_says_so(answer, reason):
    source = Server(answer).attach().poll().source
    assert source.state is UNPARSABLE
    assert re.search(reason, source.reason)


# --- fuzz --------------------------------------------------------------------------------

BUSY = page("vllm/busy")


def only_trouble(body):
    """Parsing gives a page or Unparsable; and what is recognised reads without an error."""
    try:
        found = parse(body, canonical, known)
    except Unparsable as error:
        assert str(error) and "\n" not in str(error)
        return
    adapter = recognise(found)
    if adapter is not None:
        adapter.read(found)
    state = Server(body).attach().poll().source.state
    assert state in (SourceState.LIVE, WRONG, UNPARSABLE)


@given(st.binary(max_size=400))
@settings(max_examples=150, deadline=None)
def test_any_bytes(body):
    only_trouble(body + b"\n")


@given(st.integers(0, len(BUSY) - 1), st.binary(min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_a_real_page_with_some_bytes_replaced(at, noise):
    only_trouble(BUSY[:at] + noise + BUSY[at + len(noise) :])


NAMES = st.sampled_from(
    ["vllm:num_requests_running", "vllm:kv_cache_usage_perc", "vllm:cache_config_info",
     "vllm:e2e_request_latency_seconds_bucket", "sglang:token_usage", "llamacpp:n_decode_total",
     "tgi_queue_size", "nv_trt_llm_kv_cache_block_metrics", "trtllm_kv_cache_utilization",
     "evewatch:x", "lmdeploy:num_requests_waiting", "nv_inference_request_success"]
)  # fmt: skip
LABELS = st.dictionaries(
    st.sampled_from(
        ["le", "engine", "model", "tp_rank", "num_gpu_blocks", "request_type", "priority"]
    ),
    st.text(max_size=5).map(lambda t: t.replace("\\", "").replace('"', "").replace("\n", "")),
    max_size=4,
)
VALUES = st.sampled_from(
    ["0", "1", "-1", "NaN", "+Inf", "-Inf", "1e308", "1e-300", "9" * 400, "0.5"]
)


@given(st.lists(st.tuples(NAMES, LABELS, VALUES), min_size=1, max_size=12))
@settings(max_examples=150, deadline=None)
def test_well_formed_nonsense(samples):
    lines = [
        f"{name}{{{','.join(f'{k}={chr(34)}{v}{chr(34)}' for k, v in labels.items())}}} {value}"
        for name, labels, value in samples
    ]
    body = ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")
    only_trouble(body)
    snapshot = Server(body).attach().poll()
    assert "NaN" not in snapshot.to_json()
    assert snapshot.kv.usage is None or 0 <= snapshot.kv.usage <= 1


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["n_ctx", "is_processing", "n_prompt_tokens", "next_token",
                                       "n_decoded"]), inner, max_size=4),
))  # fmt: skip
def test_any_json_as_slots(value):
    scrape = Scrape()
    read_slots(value, scrape)
    read_slots([value], scrape)
    assert all(pool.usage is None or 0 <= pool.usage <= 1 for pool in scrape.pools)
