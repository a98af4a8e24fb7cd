"""Profiles: stages that add up, kernels that are found, and words for what is hot."""

import json
from dataclasses import replace

import pytest

from builders import tiny_spec, tiny_tensors
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.observing.host import HostEvidence
from engine.request import STAGES, Stamps
from kernels import dispatch
from model_files import write_hf
from playbooks.checkup.site import Site
from playbooks.measure import profile
from playbooks.measure.kernel_timer import TimedOps
from playbooks.measure.profile import hot_spots, run_profile
from playbooks.runs import procedures
from playbooks.runs.outcome import StepClock
from playbooks.steps.models import ProfileStep
from report_schemas import violations

LENGTHS = "lognormal:12,8,0.3"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    spec = tiny_spec()
    return write_hf(tmp_path_factory.mktemp("model"), spec, tiny_tensors(spec))


def config(folder, kernels):
    return EngineConfig(
        model=str(folder), kernels=kernels, max_batch=8, token_budget=32, kv_memory=1 << 22
    )


@pytest.mark.parametrize("kernels", ["reference", "cpu"])
def test_a_profile_under_load(folder, kernels, tmp_path):
    trace = tmp_path / "trace.json"
    seen = []
    report = run_profile(
        config(folder, kernels),
        ProfileStep("closed:4", LENGTHS, 12),
        lambda done, total: seen.append((done, total)),
        trace,
    )
    assert violations(report, "profile") == []
    assert sum(row["share"] for row in report["stages"]) == pytest.approx(1)
    parts = {row["part"]: row for row in report["steps"]["parts"]}
    assert sum(row["share"] for row in parts.values()) == pytest.approx(1)
    for kind in ("gemm", "attention", "append_kv", "rowwise"):
        assert parts[kind]["ms"] > 0
    inside = sum(parts[k]["ms"] for k in ("gemm", "attention", "append_kv", "rowwise"))
    whole = report["steps"]["mean_ms"] * report["steps"]["count"]
    assert inside <= whole
    assert {row["stage"]: row["ms"]["n"] for row in report["stages"]}["tokenize"] == 12
    assert next(r for r in report["stages"] if r["stage"] == "tokenize")["share"] > 0
    assert report["warnings"] == []
    assert report["hot_spots"]
    events = json.loads(trace.read_text())["traceEvents"]
    names = {event.get("name") for event in events}
    assert names & {"all layers", "attend"}
    assert report["trace"]["steps"] > 1


def test_one_short_request_is_warned_of(folder):
    report = run_profile(config(folder, "reference"), ProfileStep("closed:1", LENGTHS, 1))
    assert "1 request, 1 at most at once" in report["warnings"][0]


def test_a_trace_that_cannot_be_written_is_one_clear_line(folder, tmp_path):
    step, nowhere = ProfileStep("closed:2", LENGTHS, 2), tmp_path / "none" / "trace.json"
    with pytest.raises(ConfigError, match="--trace-out"):
        run_profile(config(folder, "reference"), step, trace_out=nowhere)


def test_stages_are_received_to_finished():
    stamps = Stamps(arrival=1_000_000, received=2_000_000, tokenize_start=3_000_000,
                    tokenize_end=5_000_000, queued=6_000_000, first_scheduled=9_000_000,
                    finished=31_000_000, detokenize_ns=500_000)  # fmt: skip
    stamps.tokens.extend([15_000_000, 20_000_000, 30_000_000])
    found = dict(zip(STAGES, stamps.stages_ms, strict=True))
    assert found == {
        "queue": 4.0, "tokenize": 3.0, "prefill": 6.0, "decode": 14.5, "detokenize": 0.5,
        "return": 1.0,
    }  # fmt: skip
    assert sum(found.values()) == (31_000_000 - 2_000_000) / 1e6


def test_hot_spots_are_sentences_the_greatest_first():
    stages = [
        {"stage": "queue", "share": 0.30},
        {"stage": "tokenize", "share": 0.01},
        {"stage": "decode", "share": 0.51},
        {"stage": "prefill", "share": 0.18},
    ]
    parts = [("GEMM", 0.78), ("attention", 0.12), ("sampling", 0.01)]
    steps = {"parts": [{"label": label, "share": share} for label, share in parts]}
    spots = hot_spots(stages, steps)
    assert spots[0].startswith("decode is 51% of request time; a step is GEMM 78%, attention 12%")
    assert [s.split()[0] for s in spots] == ["decode", "queue", "prefill"]
    assert "GEMM" not in spots[2]


def test_timed_operations_compute_what_the_backend_does():
    import torch

    backend = dispatch.select("reference").ops
    ops = TimedOps(backend)
    x = torch.randn(3, 8)
    weight = torch.randn(8)
    assert torch.equal(ops.rms_norm(x, weight, 1e-5), backend.rms_norm(x, weight, 1e-5))
    spent = ops.spent_ms()
    assert spent["rowwise"] > 0
    assert spent["gemm"] == 0


BUSY = HostEvidence(4.0, cores=2, cpu_s=2.0, wait_s=2.0, others_s=2.0)
QUIET = HostEvidence(4.0, cores=2, cpu_s=4.0, wait_s=0.0, others_s=0.0)


@pytest.mark.parametrize(
    ("hosts", "doubted"), [((QUIET,), False), ((BUSY, QUIET), False), ((BUSY, BUSY), True)]
)
def test_what_lost_too_much_is_measured_once_more_and_then_in_doubt(
    folder, monkeypatch, hosts, doubted
):
    left, real = list(hosts), profile.run_trial

    def trial(*arguments):
        return replace(real(*arguments), host=left.pop(0))

    monkeypatch.setattr(profile, "run_trial", trial)
    site, step = Site(config(folder, "reference")), ProfileStep("closed:4", LENGTHS, 12)
    outcome = procedures.run_profile(site, step, StepClock())
    assert not left
    assert bool(outcome.doubts) is doubted
    assert not doubted or outcome.doubts[0].startswith("marked: lost")
    assert outcome.metrics["decode_share"] > 0
