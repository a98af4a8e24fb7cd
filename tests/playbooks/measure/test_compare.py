"""Comparisons on a tiny model: pairs, order, verdicts, goals, and what is refused."""

from dataclasses import replace

import pytest

from builders import tiny_loaded, tiny_spec, tiny_tensors
from engine.config import EngineConfig
from engine.errors import ConfigError
from kernels import dispatch
from model_files import write_gguf
from playbooks.measure import compare
from playbooks.measure.arm_metrics import judge_goal
from playbooks.measure.compare import run_compare
from playbooks.measure.experiment import ArmSpec, Experiment, ExperimentSize, Goal, WorkSpec
from playbooks.reports import results
from playbooks.statistics.intervals import Interval
from playbooks.steps.models import CompareStep
from report_schemas import violations

LOADED = tiny_loaded(dispatch.select("reference").ops)
CONFIG = EngineConfig(kernels="reference", max_batch=8, token_budget=32, kv_memory=1 << 21)
SIZE = ExperimentSize(repeats=2, batch_requests=10, rate_requests=6)
WORK = WorkSpec(20, 10, 0.8, 0.8, 128)


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path))


def experiment(*arms, **changes):
    arms = arms or (
        ArmSpec("base", {"kv_format": "fp16"}),
        ArmSpec("int8", {"kv_format": "int8_channel"}),
    )
    fields = {"work": WORK, "size": SIZE, "quick": SIZE} | changes
    return Experiment("tiny", "A tiny comparison", arms, **fields)


def run(one, quality=None, **options):
    step = CompareStep(**{"quick": False, "quality": quality is not None} | options)
    return run_compare(one, CONFIG, step, loaded=LOADED, quality=quality)


def test_arms_take_turns_on_the_same_requests(monkeypatch):
    trials = []
    real = compare.run_trial

    def spy(engine, arrivals, mix, requests, seed, **rest):
        trial = real(engine, arrivals, mix, requests, seed, **rest)
        lengths = [(r.prompt_tokens, r.output_tokens) for r in trial.records]
        trials.append((engine.config.kv_format, arrivals.label, seed, lengths))
        return trial

    monkeypatch.setattr(compare, "run_trial", spy)
    seen = []
    report = run_compare(
        experiment(rate=200.0, seed=7), CONFIG, CompareStep(quick=False, quality=False),
        lambda done, total: seen.append((done, total)), LOADED,
    )  # fmt: skip
    formats = [t[0] for t in trials]
    assert formats == ["fp16", "int8_channel"] * 4
    for first, second in zip(trials[::2], trials[1::2], strict=True):
        assert first[1:] == second[1:]
    assert [t[2] for t in trials[::2]] == [7, 7, 8, 8]
    assert [t[1] for t in trials[::2]] == ["closed:10", "poisson:200"] * 2
    assert seen[-1] == (64, 64)
    assert report["work"]["rate_requests_s"] == 200.0


def test_the_report_is_what_its_schema_says_and_effects_are_of_the_arms():
    report = run(experiment(goals=(Goal("kv_bytes_per_token", at_most=0.7),)))
    assert violations(report, "compare") == []
    rows = {row["metric"]: row for row in report["effects"]}
    kv = rows["kv_bytes_per_token"]
    assert (kv["from"], kv["to"], kv["verdict"]) == ("base", "int8", "better")
    arms = {arm["name"]: arm for arm in report["arms"]}
    ratio = arms["int8"]["kv"]["bytes_per_token"] / arms["base"]["kv"]["bytes_per_token"]
    assert 1 + kv["change"] == pytest.approx(ratio)
    assert rows["p99_e2e"]["change"] is None  # 20 requests have no 99th percentile
    assert rows["p50_e2e"]["n"] == 20
    assert report["overall"] == []  # two arms: it would be the same again
    assert report["goals"][0]["verdict"] == report["verdict"] == "pass"
    base = arms["base"]["throughput"]
    assert base["output_tok_s"] == pytest.approx(sum(base["repeats"]) / 2)
    assert len(report["findings"]) == 2


def test_a_change_that_changes_nothing_is_not_called_better():
    report = run(experiment(ArmSpec("a"), ArmSpec("b", {"seed": 5}), size=replace(SIZE, repeats=4)))
    exact = {row["metric"]: row["verdict"] for row in report["effects"]}
    assert exact["kv_bytes_per_token"] == "no difference"
    for row in report["effects"]:
        if row["low"] is not None and row["low"] < -0.03 and row["high"] > 0.03:
            assert row["verdict"] == "inconclusive"


def test_the_rate_is_a_share_of_what_the_first_arm_reached():
    report = run(experiment(rate_of_first=0.5))
    first = report["arms"][0]["throughput"]
    served = 10 / (sum([10 * 10]) / first["repeats"][0])
    assert report["work"]["rate_requests_s"] == pytest.approx(0.5 * served, rel=0.1)
    assert report["arms"][0]["latency"]["e2e_ms"]["n"] == 12
    fixed = run(experiment(rate_of_first=0.5), rate=333.0)
    assert fixed["work"]["rate_requests_s"] == 333.0


def test_all_arms_have_the_same_memory_and_context():
    arms = (ArmSpec("a", {"kv_format": "fp16"}), ArmSpec("b", {"kv_format": "int8_channel"}))
    report = run(experiment(*arms, kv_rows=6))
    configs = [arm["config"] for arm in report["arms"]]
    assert {c["max_model_len"] for c in configs} == {128}
    assert len({c["kv_memory"] for c in configs}) == 1
    assert report["arms"][0]["kv"]["pages_total"] == 6 * 128 // 16
    assert report["arms"][1]["kv"]["pages_total"] > 6 * 128 // 16


def test_formats_are_judged_once_and_fp16_is_the_reference():
    judged = []

    def quality(config):
        judged.append(config.kv_format)
        return {"verdict": "warn"}

    arms = (ArmSpec("a", {"kv_format": "fp16"}), ArmSpec("b", {"kv_format": "int8_token"}),
            ArmSpec("c", {"dynamic_batch": True}))  # fmt: skip
    report = run(experiment(*arms, chain=True), quality)
    assert judged == ["int8_token"]
    assert [arm["quality"] for arm in report["arms"]] == ["reference", "warn", "warn"]
    assert {(row["from"], row["to"]) for row in report["overall"]} == {("a", "c")}


def test_products_of_integers_are_one_change_on_weights_of_their_own(tmp_path):
    spec, judged = tiny_spec(), []
    path = write_gguf(tmp_path / "tiny.gguf", spec, tiny_tensors(spec), "Q4_1")

    def quality(config):
        judged.append((config.kv_format, config.compute))
        return {"verdict": "pass"}

    arms = (ArmSpec("floats", {"kv_format": "fp16"}), ArmSpec("integers", {"compute": "int8"}))
    config, step = CONFIG.with_(model=str(path)), CompareStep(quick=False, quality=True)
    report = run_compare(experiment(*arms, chain=True), config, step, quality=quality)
    assert judged == [("fp16", "int8")]
    assert [arm["quality"] for arm in report["arms"]] == ["reference", "pass"]
    assert [arm["config"]["compute"] for arm in report["arms"]] == ["f32", "int8"]
    assert report["arms"][1]["changes"] == {"compute": "int8"}


def test_a_kept_quality_verdict_is_used_again(monkeypatch):
    from engine import models

    monkeypatch.setattr(models, "resolve", lambda model: model)
    monkeypatch.setattr(models, "describe", lambda path: LOADED)
    kept = {"kind": "quality", "verdict": "pass", "baseline": "fp16",
            "identity": LOADED.identity, "config": CONFIG.to_dict()}  # fmt: skip
    results.save(kept)
    assert compare.kept_quality(CONFIG)["verdict"] == "pass"


@pytest.mark.parametrize("other", [{"verdict": "inconclusive"}, {"baseline": "int8_token"}])
def test_a_kept_report_that_says_something_else_is_not(monkeypatch, other):
    from engine import models
    from playbooks.quality import check as quality

    monkeypatch.setattr(models, "resolve", lambda model: model)
    monkeypatch.setattr(models, "describe", lambda path: LOADED)
    kept = {"kind": "quality", "verdict": "pass", "baseline": "fp16",
            "identity": LOADED.identity, "config": CONFIG.to_dict()}  # fmt: skip
    results.save(kept | other)
    monkeypatch.setattr(quality, "run_quality", lambda config, spec: kept | {"verdict": "warn"})
    assert compare.kept_quality(CONFIG)["verdict"] == "warn"


@pytest.mark.parametrize(
    ("goal", "change", "verdict"),
    [
        (Goal("throughput", at_least=3), Interval(2.5, 2.0, 3.0, 3), "pass"),
        (Goal("throughput", at_least=3), Interval(1.5, 1.0, 2.0, 3), "fail"),
        (Goal("throughput", at_least=3), Interval(2.5, -0.1, 9.0, 3), "inconclusive"),
        (Goal("throughput", at_least=3), None, "inconclusive"),
        (Goal("p99_e2e", at_most=0.7), Interval(-0.4, -0.5, -0.2, 100), "pass"),
        (Goal("p99_e2e", at_most=0.7), Interval(-0.2, -0.3, -0.1, 100), "fail"),
    ],
)
def test_goals(goal, change, verdict):
    row = {"change": None, "low": None, "high": None}
    if change is not None:
        row = {"change": change.estimate, "low": change.low, "high": change.high}
    assert judge_goal(goal, row)["verdict"] == verdict


def test_what_cannot_run_is_refused_before_anything_does(monkeypatch):
    monkeypatch.setattr(compare, "run_trial", lambda *a, **k: pytest.fail("it ran"))
    both = ArmSpec("b", {"policy": "static", "kv_format": "fp16"})
    with pytest.raises(ConfigError, match="at once"):
        run(experiment(ArmSpec("a"), both))
    small = ArmSpec("b", {"kv_memory": 1000})
    with pytest.raises(ConfigError, match="too little"):
        run(experiment(ArmSpec("a"), small))
    with pytest.raises(ConfigError, match="repeats"):
        run(experiment(), repeats=1)


def test_several_changes_may_be_allowed():
    both = ArmSpec("b", {"policy": "static", "kv_format": "fp16"})
    report = run(experiment(ArmSpec("a"), both), allow_many=True)
    assert report["arms"][1]["changes"] == both.changes
    assert report["verdict"] == "pass"
