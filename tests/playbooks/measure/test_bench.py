"""The benchmark on a tiny model: what it counts, and the work that it refuses."""

import json

import pytest

from builders import tiny_spec, tiny_tensors
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.models import resolve
from model_files import write_hf
from playbooks.load.summary import latency_block
from playbooks.measure.bench import BenchRequest, make_work, read_workload, run_bench
from playbooks.steps.models import BenchWork


@pytest.fixture(autouse=True)
def short_roofline(monkeypatch):
    """Three passes: the least that a limit is measured with."""
    monkeypatch.setattr("playbooks.measure.machine_limits.LOOK_S", 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    spec = tiny_spec()
    return write_hf(tmp_path_factory.mktemp("model"), spec, tiny_tensors(spec))


def config(folder, **changes):
    return EngineConfig(
        model=str(folder), max_batch=8, token_budget=32, kv_memory=1 << 22, **changes
    )


def test_the_report_counts_what_was_served(folder):
    assert resolve(str(folder)) == folder
    seen = []
    spec = BenchWork(requests=12, prompt_mean=20, output_mean=10)
    report = run_bench(
        config(folder), spec, progress=lambda done, total: seen.append((done, total))
    )
    assert seen[-1] == (12, 12)
    work = report["work"]
    assert (report["schema"], report["kind"], work["requests"]) == (1, "bench", 12)
    rates = report["throughput"]
    assert rates["output_tok_s"] * report["wall_s"] == pytest.approx(work["output_tokens"])
    assert rates["total_tok_s"] * report["wall_s"] == pytest.approx(
        work["output_tokens"] + work["prompt_tokens"]
    )
    for name in ("ttft_ms", "tpot_ms", "e2e_ms", "queue_ms"):
        block = report["latency"][name]
        assert set(block) == {"p50", "p90", "p99", "mean", "n"}
        assert block["p50"] is not None
        assert block["p99"] is None  # 12 samples have no 99th percentile
    assert report["latency"]["itl_ms"]["n"] == work["output_tokens"] - 12
    assert 0 < report["roofline_fraction"] < 1
    assert 0 < report["integer_fraction"] < 1
    assert report["machine"]["compute"] == "f32"
    assert report["kv"]["format"] == "int8_channel"
    assert 0 < report["kv"]["peak_pages"] <= report["kv"]["pages_total"]
    json.dumps(report, allow_nan=False)


def test_the_flops_counted_are_those_that_the_requests_need(folder):
    """Every token but each request's last goes through the layers; the head runs per output."""
    spec = BenchWork(requests=3, prompt_mean=9, output_mean=4, sigma=0)
    report = run_bench(config(folder), spec)
    from engine.models import describe

    model = describe(folder).spec
    queries, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
    layer = (queries + 2 * keys) * model.hidden + queries * model.hidden
    layer += 3 * model.hidden * model.mlp
    expected = 2 * model.layers * layer * 3 * (9 + 3) + 2 * model.vocab * model.hidden * 3 * 4
    assert report["gemm_gflop"] * 1e9 == pytest.approx(expected)


def test_a_workload_file_is_the_work(tmp_path, folder):
    path = tmp_path / "work.json"
    path.write_text(json.dumps([{"prompt": [5, 6, 7], "out": 2}, {"prompt": "the", "out": 1}]))
    assert make_work(BenchWork(workload=str(path)), 100, 100) == [
        BenchRequest([5, 6, 7], 2),
        BenchRequest("the", 1),
    ]
    report = run_bench(config(folder), BenchWork(workload=str(path)))
    assert report["work"]["output_tokens"] == 3


def test_repeats_report_the_median_run_and_crosstalk_finds_none(folder):
    spec = BenchWork(requests=4, prompt_mean=8, output_mean=4)
    report = run_bench(config(folder), spec, repeats=3, crosstalk=True)
    assert sorted(report["repeats"])[1] == report["throughput"]["output_tok_s"]
    assert report["crosstalk"] == {"requests": 16, "differing": 0, "mixed": 0, "examples": []}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "cannot be read"),
        ("{}", "non-empty JSON list"),
        ("[]", "non-empty JSON list"),
        ("[5]", "request 0"),
        ('[{"prompt": "a", "out": 1}, {"prompt": "a"}]', "request 1"),
        ('[{"prompt": [], "out": 1}]', "prompt must be"),
        ('[{"prompt": [-1], "out": 1}]', "prompt must be"),
        ('[{"prompt": "a", "out": 0}]', "out must be"),
        ('[{"prompt": "a", "out": true}]', "out must be"),
    ],
)
def test_a_malformed_workload_gets_one_clear_line(tmp_path, text, why):
    path = tmp_path / "work.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=why) as caught:
        read_workload(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("row", "why"), [([5] * 300, "more than the model's"), ([9999], "is outside")]
)
def test_work_that_cannot_be_served_is_refused_before_it_starts(tmp_path, folder, row, why):
    path = tmp_path / "work.json"
    path.write_text(json.dumps([{"prompt": row, "out": 1}]))
    with pytest.raises(ConfigError, match=why):
        run_bench(config(folder), BenchWork(workload=str(path)))


def test_latency_blocks_have_nulls_where_n_is_too_small():
    assert latency_block([]) == {"p50": None, "p90": None, "p99": None, "mean": None, "n": 0}
    few = latency_block([1.0, None, 3.0])
    assert (few["p50"], few["p90"], few["n"]) == (2.0, None, 2)
    assert latency_block([float(i) for i in range(100)])["p99"] == pytest.approx(98.01)


def test_fields_of_a_workload_that_nobody_needs_are_let_be(tmp_path):
    path = tmp_path / "work.json"
    path.write_text('[{"id": 0, "prompt": [1, 2], "out": 3, "note": "x"}]')
    assert read_workload(path) == [BenchRequest([1, 2], 3)]
