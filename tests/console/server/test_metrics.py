"""/metrics: vLLM's names with vLLM's meaning, and counters that only ever grow."""

import math
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.request import SamplingParams
from repository import ROOT
from served import serving
from waiting import until

SHARED = ROOT.parent / "shared" / "fixtures" / "vllm" / "busy.prom"


def scrape(served):
    made = served.get("/metrics")
    assert made.status_code == 200
    assert made.headers["content-type"].startswith("text/plain; version=")
    return {family.name: family for family in text_string_to_metric_families(made.text)}


def values(families):
    """Every sample by name and labels."""
    return {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for family in families.values()
        for s in family.samples
    }


def total(families, name, **labels):
    return sum(
        value
        for (sample, own), value in values(families).items()
        if sample == name and labels.items() <= dict(own).items()
    )


@pytest.fixture
def live():
    with serving() as served:
        yield served


def test_counts_are_those_of_what_was_served(live):
    for i in range(3):
        live.post(prompt=[5 + i] * 10, max_tokens=4, ignore_eos=True)
    live.post(prompt="a", max_tokens=0)
    live.until_idle()  # an answer leaves before its step is counted
    found = scrape(live)
    assert total(found, "vllm:request_success_total", finished_reason="length") == 3
    assert total(found, "vllm:request_success_total") == 3
    assert total(found, "vllm:prompt_tokens_total") == 30
    assert total(found, "vllm:generation_tokens_total") == 12
    assert total(found, "vllm:time_to_first_token_seconds_count") == 3
    assert total(found, "vllm:inter_token_latency_seconds_count") == 9
    assert total(found, "vllm:request_prompt_tokens_sum") == 30
    assert total(found, "vllm:request_generation_tokens_sum") == 12
    assert total(found, "vllm:request_generation_tokens_bucket", le="5.0") == 3
    assert total(found, "vllm:request_generation_tokens_bucket", le="2.0") == 0
    assert total(found, "vllm:iteration_tokens_total_sum") == 30 + 9
    http = {"handler": "/v1/completions", "method": "POST"}
    assert total(found, "http_requests_total", status="2xx", **http) == 3
    assert total(found, "http_requests_total", status="4xx", **http) == 1
    assert total(found, "vllm:num_requests_running") == 0
    assert 0 <= total(found, "vllm:kv_cache_usage_perc") <= 1
    assert total(found, "evewatch:kv_pages") == live.engine.pool.total


def test_gauges_show_what_is_under_way():
    with serving(started=False, max_batch=2) as served:
        engine = served.engine
        streams = [engine.submit([5] * 20, SamplingParams(max_tokens=50)) for _ in range(5)]
        engine.step()
        engine.loop.observer.publish()
        found = scrape(served)
        assert total(found, "vllm:num_requests_running") == 2
        assert total(found, "vllm:num_requests_waiting") == 3
        usage = engine.pool.used / engine.pool.total
        assert total(found, "vllm:kv_cache_usage_perc") == pytest.approx(usage)
        for stream in streams:
            engine.cancel(stream.request_id)
        engine.step()
        assert total(scrape(served), "vllm:request_success_total", finished_reason="abort") == 5


def test_scrapes_are_fresh_however_rare_they_are(live, monkeypatch):
    """Not the state at the last scrape: that may be a quarter of a minute ago."""
    compute = live.engine.loop.compute
    fast = compute.run

    def slow(plan):  # or the requests would have ended before the Snapshot is an old one
        time.sleep(0.005)
        return fast(plan)

    monkeypatch.setattr(compute, "run", slow)
    scrape(live)
    streams = [
        live.engine.submit([5] * 10, SamplingParams(max_tokens=400, ignore_eos=True))
        for _ in range(8)
    ]
    until(lambda: len(live.engine.scheduler.running) == 8)
    until(lambda: time.time() - live.engine.loop.observer.snapshot.time > 0.6)  # nobody looks
    assert total(scrape(live), "vllm:num_requests_running") == 8
    for stream in streams:
        live.engine.cancel(stream.request_id)
    live.until_idle()


def test_counters_and_buckets_never_shrink_and_buckets_are_cumulative(live):
    before = {}
    for turn in range(4):
        live.post(prompt=[5 + turn] * 20, max_tokens=5 + turn, ignore_eos=True)
        if turn == 2:
            live.engine.reset()
        found = scrape(live)
        now = {
            key: value
            for name, family in found.items()
            if family.type in ("counter", "histogram")
            for key, value in values({name: family}).items()
        }
        assert not {k: (v, now[k]) for k, v in before.items() if now[k] < v}
        before = now
        for family in found.values():
            if family.type == "histogram":
                _check_buckets(family)
    assert total(found, "vllm:request_success_total") == 4
    assert total(found, "vllm:request_generation_tokens_sum") == 5 + 6 + 7 + 8


def _check_buckets(family):
    buckets = [s for s in family.samples if s.name.endswith("_bucket")]
    edges = [float(s.labels["le"]) for s in buckets]
    counts = [s.value for s in buckets]
    assert edges == sorted(edges)
    assert math.isinf(edges[-1])
    assert counts == sorted(counts)
    (count,) = (s.value for s in family.samples if s.name.endswith("_count"))
    assert count == counts[-1]
    assert all(s.value >= 0 for s in family.samples)


@pytest.mark.skipif(not SHARED.exists(), reason="needs the recorded scrape of a vLLM server")
def test_names_types_labels_and_buckets_are_vllms(live):
    live.post(prompt="the", max_tokens=3)
    ours = scrape(live)
    theirs = {f.name: f for f in text_string_to_metric_families(SHARED.read_text())}
    same = [name for name in ours if name.startswith("vllm:")]
    assert len(same) >= 22
    for name in same:
        assert name in theirs, f"{name} is no name of vLLM's"
        assert ours[name].type == theirs[name].type
        labels = {frozenset(s.labels) for s in theirs[name].samples}
        if name != "vllm:cache_config_info":
            assert {frozenset(s.labels) for s in ours[name].samples} <= labels
        edges = {s.labels["le"] for s in theirs[name].samples if "le" in s.labels}
        assert edges <= {s.labels["le"] for s in ours[name].samples if "le" in s.labels}
    config = ours["vllm:cache_config_info"].samples[0].labels
    assert {"block_size", "cache_dtype", "num_gpu_blocks"} <= set(config)


def test_nothing_is_said_of_an_engine_that_is_not_up():
    from builders import tiny_loaded
    from console.server import ServerSettings, serve_in_thread
    from engine.config import EngineConfig
    from engine.core import Engine
    from kernels import dispatch
    from served import Served

    engine = Engine(EngineConfig(kernels="reference", kv_memory=4 << 20),
                    tiny_loaded(dispatch.select("reference").ops))  # fmt: skip
    with serve_in_thread(engine, ServerSettings(port=0, drain_s=0)) as server:
        served = Served(engine, server)
        assert not any(name.startswith(("vllm:", "evewatch:kv")) for name in scrape(served))
        assert served.get("/health").status_code == 503
        assert "not loaded" in served.get("/health").json()["reason"]
        for made in (served.post(prompt="a"), served.get("/v1/models"), served.get("/snapshot")):
            assert made.status_code == 503
            assert made.headers["retry-after"]
        engine.start()
        assert served.get("/health").json() == {"status": "ok"}
        assert served.post(prompt="the", max_tokens=2).status_code == 200
        assert any(name.startswith("vllm:") for name in scrape(served))
    engine.stop()
    assert engine.alarm() == "the engine has stopped"


def test_with_predicted_lengths_the_page_says_whether_they_hold():
    """Two clients: `user` tells them apart, and what each of them gets is learnt."""
    with serving(reserve="predicted") as served:
        names = ("evewatch:predicting", "evewatch:length_coverage")
        assert names[0] in scrape(served) and names[1] not in scrape(served)
        stops = list(range(3, 67))
        for i in range(40):
            made = served.post(prompt=[5 + i] * 9, max_tokens=30, temperature=1, seed=i,
                               stop_token_ids=stops, user=f"client {i % 2}")  # fmt: skip
            assert made.status_code == 200
        served.until_idle()
        lengths = served.engine.scheduler.lengths
        assert len(lengths._classes) == 4  # each client, and each one's prompts of 8 to 15 tokens
        served.engine.call(served.engine.loop.observer.publish)
        found = scrape(served)
        assert total(found, names[0]) == 1
        assert total(found, names[1]) == pytest.approx(lengths.coverage)
