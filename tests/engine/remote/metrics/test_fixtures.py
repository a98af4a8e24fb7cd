"""Real scrapes give the numbers that are in the files, worked out by hand."""

import json

import pytest

from engine.snapshot import SourceState
from remote_pages import lmdeploy, sglang, sglang_priorities, tgi, triton, trtllm
from remote_stub import Server, page, with_value

MODELS = b'{"object":"list","data":[{"id":"smollm2","max_model_len":2048}]}'


def look(body, **pages):
    engine = Server(body, **pages).attach()
    snapshot = engine.poll()
    assert snapshot.source.state is SourceState.LIVE, snapshot.source.reason
    return snapshot


def exactly(value):
    return pytest.approx(value, rel=1e-12)


# --- vLLM --------------------------------------------------------------------------------


def test_vllm_busy():
    s = look(page("vllm/busy"), **{"/v1/models": MODELS})
    assert s.source.engine == "vllm"
    assert (s.engine.model, s.engine.max_model_len) == ("smollm2", 2048)
    assert (s.batch.running, s.queue.waiting) == (11, 13)
    assert s.queue.requests_total == 30  # 6 ended + 11 + 13
    assert s.finished == {"stop": 5, "length": 1, "abort": 0, "error": 0, "repetition": 0}
    assert (s.batch.prompt_tokens_total, s.batch.output_tokens_total) == (1828, 177)
    assert (s.batch.steps_total, s.batch.preemptions_total) == (12, 0)
    assert s.kv.usage == exactly(0.08839779005524862)
    assert (s.kv.total, s.kv.page_tokens, s.kv.pool_bytes) == (182, 128, 1073741824)
    assert s.kv.prefix_hit_ratio == 0.0  # 0 of 1828: known to be none
    assert s.memory.rss_bytes == 760877056


def test_vllm_busy_latencies_from_the_buckets():
    s = look(page("vllm/busy"))
    ttft, tpot, itl = s.latency.ttft_ms, s.latency.tpot_ms, s.latency.itl_ms
    assert (ttft.n, tpot.n, itl.n) == (17, 6, 160)
    assert ttft.mean == exactly(64.14651346206665 / 17 * 1e3)
    # Rank 8.5 of 17: 1 at or below 2.5 s, 16 at or below 5 s.
    assert ttft.p50 == exactly((2.5 + 2.5 * (8.5 - 1) / 15) * 1e3)
    assert ttft.p90 == exactly((2.5 + 2.5 * (15.3 - 1) / 15) * 1e3)
    assert ttft.p99 is None  # 17 are too few for it
    # Rank 3 of 6: 0 at or below 0.2 s, 5 at or below 0.3 s.
    assert tpot.p50 == exactly((0.2 + 0.1 * 3 / 5) * 1e3)
    assert tpot.p90 is None
    # Rank 158.4 of 160: 144 at or below 0.75 s, 159 at or below 1 s.
    assert itl.p99 == exactly((0.75 + 0.25 * (158.4 - 144) / 15) * 1e3)


def test_what_lies_in_the_first_bucket_is_only_known_to_be_below_it():
    wait = look(page("vllm/busy")).queue.wait_ms
    assert (wait.p50, wait.floor) == (300.0, 300.0)
    assert wait.mean == exactly(0.0023149450007622363 / 6 * 1e3)


def test_vllm_stages_are_shares_of_the_requests_time():
    stages = look(page("vllm/busy")).stages
    assert stages.prefill == exactly(16.886680853999678 / 35.29152798652649)
    assert stages.decode == exactly(15.447606146000453 / 35.29152798652649)
    assert stages.tokenize is None


def test_vllm_after():
    s = look(page("vllm/after"))
    assert s.finished["stop"] == 22 and s.finished["length"] == 8
    assert s.batch.output_tokens_total == 600
    assert (s.batch.running, s.queue.waiting, s.kv.usage) == (0, 0, 0.0)
    assert s.batch.bound_by == "queue"
    assert s.latency.ttft_ms.n == 30
    # Rank 27 of 30: 22 at or below 10 s, 30 at or below 20 s.
    assert s.latency.ttft_ms.p90 == exactly((10 + 10 * (27 - 22) / 8) * 1e3)
    assert s.latency.ttft_hist.counts[13:17] == (15, 1, 5, 8)


def test_vllm_idle_reports_zeros_and_no_latency():
    s = look(page("vllm/idle"))
    assert (s.batch.running, s.batch.output_tokens_total, s.queue.requests_total) == (0, 0, 0)
    assert s.latency.ttft_ms.p50 is None and s.latency.ttft_ms.n == 0
    assert s.kv.prefix_hit_ratio is None  # nothing was looked up
    assert s.stages.prefill is None


def test_two_engines_are_added_where_it_is_right_and_weighted_where_not():
    s = look(page("vllm/two_engines"))
    assert (s.batch.running, s.queue.waiting, s.batch.output_tokens_total) == (22, 26, 354)
    assert s.kv.usage == exactly((0.08839779005524862 + 0.95) / 2)  # pools of equal size
    assert s.kv.total == 364
    assert "engine 1 95%" in s.engine.note and "engine 0 9%" in s.engine.note
    one = look(page("vllm/busy")).latency.ttft_ms
    assert s.latency.ttft_ms.n == 34
    assert s.latency.ttft_ms.p50 == exactly(one.p50)


def test_pools_of_two_sizes_are_weighted_by_their_size():
    body = page("vllm/two_engines").replace(
        b'engine="1",gpu_memory_utilization', b'engine="1", gpu_memory_utilization'
    )
    lines = [
        line.replace(b'num_gpu_blocks="182"', b'num_gpu_blocks="546"')
        if b'engine="1", gpu' in line
        else line
        for line in body.split(b"\n")
    ]
    s = look(b"\n".join(lines))
    assert s.kv.total == 728
    assert s.kv.usage == exactly((0.08839779005524862 * 182 + 0.95 * 546) / 728)


def test_a_nan_gauge_hits_one_field():
    s = look(with_value(page("vllm/busy"), "vllm:kv_cache_usage_perc", "NaN"))
    assert s.kv.usage is None
    assert (s.batch.running, s.queue.waiting, s.kv.total) == (11, 13, 182)
    assert s.engine.note == "vllm:kv_cache_usage_perc is nan"


@pytest.mark.parametrize("value", ["135", "1.2", "-0.5", "+Inf"])
def test_a_usage_that_is_no_share_is_not_known(value):
    s = look(with_value(page("vllm/busy"), "vllm:kv_cache_usage_perc", value))
    assert s.kv.usage is None


def test_one_rank_without_a_number_leaves_the_whole_unknown():
    body = page("vllm/two_engines").replace(b"} 0.95\n", b"} NaN\n")
    assert look(body).kv.usage is None


def test_vllms_old_names():
    body = page("vllm/busy")
    for new, old in (
        (b"vllm:kv_cache_usage_perc", b"vllm:gpu_cache_usage_perc"),
        (b"vllm:request_time_per_output_token_seconds", b"vllm:something_else"),
        (b"vllm:inter_token_latency_seconds", b"vllm:time_per_output_token_seconds"),
        (b"vllm:prefix_cache_", b"vllm:gpu_prefix_cache_"),
    ):
        body = body.replace(new, old)
    body += b'vllm:num_requests_swapped{engine="0",model_name="smollm2"} 2\n'
    s = look(body)
    assert s.kv.usage == exactly(0.08839779005524862)
    assert s.queue.waiting == 15  # swapped out ones wait too
    assert s.latency.tpot_ms.n == s.latency.itl_ms.n == 160
    assert s.kv.prefix_hit_ratio == 0.0


# --- llama.cpp ---------------------------------------------------------------------------


def slots(busy, version="new"):
    state = {"n_decoded": 40, "n_remain": 10}
    one = {"n_ctx": 2048, "is_processing": True, "n_prompt_tokens": 60}
    one["next_token"] = [state] if version == "new" else state
    idle = {"n_ctx": 2048, "is_processing": False, "n_prompt_tokens": 500, "next_token": [state]}
    return [one] * busy + [idle] * (32 - busy)


def as_json(value):
    import json

    return json.dumps(value).encode()


def test_llamacpp_busy():
    s = look(page("llamacpp/busy"))
    assert s.source.engine == "llamacpp"
    assert (s.batch.running, s.queue.waiting) == (32, 8)
    assert (s.batch.prompt_tokens_total, s.batch.output_tokens_total) == (3267, 2059)
    assert s.batch.steps_total == 206
    assert s.latency.tpot_ms.mean == exactly(593.131 / 2059 * 1e3)
    assert s.latency.tpot_ms.p50 is None  # it has no histograms
    assert s.kv.usage is None  # nor a KV gauge
    assert s.batch.output_tok_s is None  # one look knows no rate; its gauges say 0


def test_llamacpp_after():
    s = look(page("llamacpp/after"))
    assert (s.batch.running, s.queue.waiting, s.batch.bound_by) == (0, 0, "queue")


@pytest.mark.parametrize("version", ["new", "old"])
def test_llamacpp_slots_give_cap_and_context_in_use(version):
    s = look(page("llamacpp/busy"), **{"/slots": as_json(slots(8, version))})
    assert s.batch.cap == 32
    assert s.kv.usage == exactly(8 * 100 / (32 * 2048))
    assert s.kv.free == 32 * 2048 - 800


@pytest.mark.parametrize("bad", [b"[]", b"{}", b"[1]", b"nonsense", b'[{"n_ctx": "many"}]'])
def test_slots_that_make_no_sense_say_nothing(bad):
    s = look(page("llamacpp/busy"), **{"/slots": bad})
    assert s.kv.usage is None and s.batch.running == 32


def test_a_processing_slot_that_does_not_tell_leaves_the_usage_unknown():
    broken = slots(2)
    broken[0] = {"n_ctx": 2048, "is_processing": True}
    s = look(page("llamacpp/busy"), **{"/slots": as_json(broken)})
    assert s.kv.usage is None and s.batch.cap == 32


@pytest.mark.parametrize(
    ("slot", "usage"),
    [
        ({"n_ctx": 100, "state": 0}, 0.0),
        ({"n_ctx": 100, "state": 1, "n_past": 30}, None),  # what it holds it does not tell
        ({"n_ctx": 100}, None),
        ({"n_ctx": 100, "is_processing": False, "state": 1}, 0.0),
        ({"n_ctx": 100, "is_processing": True, "n_prompt_tokens": 20,
          "next_token": [{"n_decoded": 5}]}, 0.25),
    ],
)  # fmt: skip
def test_a_slot_that_does_not_say_what_it_holds_is_not_taken_for_empty(slot, usage):
    pages = {"/metrics": page("llamacpp/busy"), "/slots": json.dumps([slot]).encode()}
    assert Server(**pages).attach().poll().kv.usage == usage


def test_llamacpp_props_tell_the_context():
    props = as_json({"default_generation_settings": {"n_ctx": 4096}})
    assert look(page("llamacpp/busy"), **{"/props": props}).engine.max_model_len == 4096


# --- the others --------------------------------------------------------------------------


def test_sglang():
    s = look(sglang())
    assert (s.source.engine, s.engine.model) == ("sglang", "qwen")
    assert (s.batch.running, s.queue.waiting) == (7, 3)
    assert (s.kv.usage, s.kv.total, s.kv.page_tokens) == (0.28, 161721, 1)
    assert s.kv.prefix_hit_ratio == 0.25  # 2000 of 8000 prompt tokens
    assert s.batch.output_tok_s == 86.5  # its own gauge, until two looks give a rate
    assert s.latency.ttft_ms.p50 == exactly(150.0)
    assert s.latency.tpot_ms.mean == exactly(20.0)
    assert s.queue.wait_ms.p50 == exactly(125.0)


def test_sglangs_tensor_parallel_ranks_repeat_one_engine():
    one, four = look(sglang(ranks=1)), look(sglang(ranks=4))
    assert (four.batch.running, four.kv.total) == (one.batch.running, one.kv.total)
    assert four.queue.wait_ms == one.queue.wait_ms


def test_sglangs_series_without_a_priority_is_the_total():
    s = look(sglang_priorities())
    assert (s.batch.running, s.queue.waiting) == (9, 2)


def test_lmdeploy():
    s = look(lmdeploy())
    assert s.source.engine == "lmdeploy"
    assert (s.batch.running, s.queue.waiting, s.kv.usage) == (5, 2, 0.4)
    assert s.latency.ttft_ms.p50 == 500.0
    assert s.latency.tpot_ms.mean == exactly(20.0)
    assert s.finished == {} and s.queue.requests_total is None


def test_tensorrt_llm_at_its_own_path():
    server = Server(b'[{"iter": 1}]', **{"/prometheus/metrics": trtllm()})
    s = server.attach().poll()
    assert (s.source.state, s.source.engine) == (SourceState.LIVE, "trtllm")
    assert (s.batch.running, s.queue.waiting) == (6, 1)
    assert (s.batch.cap, s.batch.cap_max) == (8, 16)
    assert (s.kv.usage, s.kv.total, s.kv.free, s.kv.page_tokens) == (0.5, 1000, 500, 32)
    assert s.batch.step_ms == exactly(20.0)
    assert s.finished == {"stop": 11, "length": 2}
    assert s.latency.e2e_ms.mean == exactly(15.0 / 13 * 1e3)


def test_tgi():
    s = look(tgi())
    assert s.source.engine == "tgi"
    assert (s.batch.running, s.queue.waiting) == (32, 12)
    assert s.finished == {"success": 100, "failure": 6}
    assert (s.batch.output_tokens_total, s.batch.prompt_tokens_total) == (4000, 30000)
    assert s.latency.tpot_ms.p50 == 10.0
    assert s.latency.ttft_ms.n == 0 and s.kv.usage is None
    assert s.queue.wait_ms.mean == exactly(50.0)


def test_triton_reads_one_model_of_an_ensemble():
    s = look(triton())
    assert (s.source.engine, s.engine.model) == ("triton", "llm")
    assert (s.batch.running, s.queue.waiting, s.batch.cap) == (3, 2, 512)
    assert s.finished == {"success": 40, "failure": 1}
    assert (s.kv.usage, s.kv.total, s.kv.free, s.kv.page_tokens) == (0.25, 2400, 1800, 64)
    assert s.latency.e2e_ms.mean == exactly(8.0 / 40 * 1e3)
    assert s.queue.wait_ms.mean == exactly(0.8 / 40 * 1e3)
    assert s.latency.e2e_ms.p50 is None
    assert (s.memory.device_used_bytes, s.memory.device_total_bytes) == (100, 400)


def test_what_waits_for_each_version_of_a_triton_model_waits():
    page = triton(llm=False) + (
        b'nv_inference_pending_request_count{model="ensemble",version="2"} 5\n'
    )
    assert look(page).queue.waiting == 7


def test_the_first_vllms_hit_rate():
    old = b'vllm:num_requests_running{model_name="m"} 1\nvllm:gpu_prefix_cache_hit_rate 0.4\n'
    assert look(old).kv.prefix_hit_ratio == 0.4
    assert look(old.replace(b"0.4", b"-1")).kv.prefix_hit_ratio is None


def test_triton_without_an_llm_backend_reads_the_outermost_model():
    s = look(triton(llm=False))
    assert s.engine.model == "ensemble"
    assert s.latency.e2e_ms.mean == exactly(9.0 / 40 * 1e3)
    assert s.kv.usage is None


# --- lengths, drafts, replicas -----------------------------------------------------------


def test_vllm_tells_how_long_requests_and_steps_are():
    s = look(page("vllm/loaded"))
    prompt, output, step = s.lengths.prompt, s.lengths.output, s.lengths.step
    assert (prompt.n, prompt.mean, output.n, output.mean) == (10, 64.0, 10, 16.0)
    assert (prompt.p50, prompt.p90) == (75.0, 95.0)  # all between 50 and 100
    assert sum(prompt.counts) == 10 and prompt.counts[prompt.edges.index(100.0)] == 10
    assert (step.n, step.mean) == (85, exactly(800 / 85))
    assert step.counts[:6] == (5, 70, 0, 0, 0, 10) and step.edges[:6] == (1, 8, 16, 32, 64, 128)
    assert s.finished["length"] == 10 and s.kv.prefix_hit_ratio == 0.0


def test_an_idle_engine_has_no_lengths_and_one_that_does_not_draft_no_share_of_drafts():
    s = look(page("vllm/idle"))
    assert (s.lengths.prompt, s.lengths.output, s.lengths.step) == (None, None, None)
    assert (s.batch.draft_accepted_ratio, s.batch.draft_tokens) == (None, None)


def test_vllm_tells_what_its_drafts_bring():
    label = '{engine="0",model_name="smol"}'
    counts = {"drafts": 50, "draft_tokens": 200, "accepted_tokens": 90}
    lines = [f"vllm:spec_decode_num_{name}_total{label} {n}.0" for name, n in counts.items()]
    s = look(page("vllm/loaded") + "\n".join([*lines, ""]).encode())
    assert s.batch.draft_accepted_ratio == exactly(0.45)
    assert s.batch.draft_tokens == exactly(1.8)


def test_a_share_of_drafts_that_is_none_is_not_known():
    body = sglang() + b"sglang:spec_accept_rate 1.7\n"
    assert look(body).batch.draft_accepted_ratio is None
    assert look(body.replace(b"1.7", b"0.7")).batch.draft_accepted_ratio == 0.7


def test_engines_behind_one_address_are_told_apart():
    first, second = look(page("vllm/two_engines")).replicas
    assert (first.name, first.running, first.waiting) == ("engine 0", 11, 13)
    assert (second.name, second.kv_usage) == ("engine 1", 0.95)
    assert look(page("vllm/busy")).replicas == ()
