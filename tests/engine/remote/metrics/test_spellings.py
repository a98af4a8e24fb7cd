"""Names that a collector has respelt are the engine's, and it is said; one bad line hides nothing;
a gauge is not a clock.
"""

import re

import pytest

from engine.remote.adapters import canonical
from engine.remote.errors import Unparsable
from engine.remote.metrics.metrics_page import parse
from engine.snapshot import SourceState
from remote_pages import sglang
from remote_stub import Server, page

LIVE = SourceState.LIVE


@pytest.mark.parametrize(
    ("spelt", "engine"),
    [
        ("vllm_num_requests_running", "vllm"),
        ("ray_vllm:num_requests_running", "vllm"),
        ("ray_vllm_num_requests_running", "vllm"),
        ("prod_eu_vllm_num_requests_running", "vllm"),
        ("vllm.num_requests_running", "vllm"),
        ("ray_vllm_generation_tokens", "vllm"),
        ("vllm_generation_tokens_total_total", "vllm"),
        ("ray_vllm_time_to_first_token_seconds_bucket", "vllm"),
        ("sglang_num_running_reqs", "sglang"),
        ("dynamo_sglang:token_usage", "sglang"),
        ("llamacpp_requests_processing", "llamacpp"),
        ("lmdeploy_num_requests_running", "lmdeploy"),
        ("otel_tgi_queue_size", "tgi"),
        ("ray_trtllm_num_requests_running", "trtllm"),
        ("acme_nv_inference_request_success", "triton"),
    ],
)
def test_respelt_names_are_the_engines_own(spelt, engine):
    from engine.remote.adapters import by_name

    assert canonical(spelt) in by_name(engine).reads()


@pytest.mark.parametrize(
    "other",
    ["node_cpu_seconds_total", "vllm", "num_requests_running", "sglang_router_requests_total",
     "myvllm_num_requests_running", "http_requests_total", "x_process_start_time_seconds"],
)  # fmt: skip
def test_names_of_others_stay_theirs(other):
    assert canonical(other) is None


@pytest.mark.parametrize(
    "respell",
    [
        lambda body: body.replace(b"vllm:", b"vllm_"),
        lambda body: body.replace(b"vllm:", b"ray_vllm:"),
        lambda body: re.sub(rb"^(vllm):(\w+){", rb'{"\1.\2",', body, flags=re.M),
        lambda body: body.replace(b"vllm:", b"ray_vllm_").replace(b"_tokens_total{", b"_tokens{"),
    ],
)
def test_a_respelt_page_reads_as_the_original_and_says_so(respell):
    plain = Server(page("vllm/busy")).attach().poll()
    respelt = Server(respell(page("vllm/busy"))).attach().poll()
    assert respelt.source.state is LIVE
    for part in ("batch", "queue", "kv", "latency", "stages", "finished"):
        assert getattr(respelt, part) == getattr(plain, part)
    assert "spells vLLM's names otherwise" in respelt.engine.note


def test_two_spellings_of_one_name_are_one_number():
    own = b'vllm:num_requests_running{engine="0"} 3\n'
    body = own.replace(b"vllm:", b"ray_vllm_") + own + own.replace(b"vllm:", b"x_vllm_")
    assert Server(body).attach().poll().batch.running == 3


# --- one bad line ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        b"vllm:num_preemptions_total{engine=0} 5",
        b"vllm:num_preemptions_total 1.2.3",
        b"vllm:num_preemptions_total{",
        b"vllm:num_preemptions_total",
        b'vllm:num_preemptions_total{a="' + b"x" * 20_000 + b'"} 1',
        "vllm:num_preemptions_total{a=“b”} 5".encode(),
    ],
)
def test_a_bad_line_is_named_and_hides_nothing(line):
    body = line + b"\n" + page("vllm/busy")
    s = Server(body).attach().poll()
    assert (s.source.state, s.batch.running, s.queue.waiting) == (LIVE, 11, 13)
    assert "no samples" in s.engine.note and len(s.engine.note) < 300


def test_a_page_that_is_mostly_no_samples_is_none():
    with pytest.raises(Unparsable, match="no sample"):
        parse(b"vllm:num_requests_running 1\nvllm:num_requests_waiting{ 1\n", canonical)


def test_openmetrics_may_end_without_a_line_end():
    body = page("vllm/busy") + b"# EOF"
    assert Server(body).attach().poll().source.state is LIVE


# --- a gauge is not a clock --------------------------------------------------------------


def test_a_rate_gauge_of_an_idle_engine_is_of_the_past():
    assert Server(sglang(running=0)).attach().poll().batch.output_tok_s is None
    assert Server(sglang(running=7)).attach().poll().batch.output_tok_s == 86.5


def test_a_gauge_that_stands_still_with_the_counters_is_old():
    def without_tokens(requests):
        lines = [b"sglang:gen_throughput 86.5", b"sglang:num_running_reqs 3",
                 b"sglang:num_requests_total %d" % requests]  # fmt: skip
        return b"\n".join(lines) + b"\n"

    server = Server(without_tokens(10))
    engine = server.attach()
    assert engine.poll().batch.output_tok_s == 86.5
    server.pages["/metrics"] = without_tokens(11)
    assert engine.poll().batch.output_tok_s == 86.5
    assert engine.poll().batch.output_tok_s is None


def test_what_a_counter_can_say_is_taken_from_the_counter():
    now = [0.0]
    server = Server(sglang())
    engine = server.attach(monotonic=lambda: now[0])
    engine.poll()
    now[0] = 2.0
    server.pages["/metrics"] = sglang().replace(
        b'generation_tokens_total{model_name="qwen"} 7500',
        b'generation_tokens_total{model_name="qwen"} 7700',
    )
    assert engine.poll().batch.output_tok_s == 100.0
