import json

import pytest

from builders import tiny_spec, tiny_tensors
from engine.config import EngineConfig
from engine.errors import ConfigError
from model_files import write_gguf, write_hf
from playbooks.quality.check import run_quality
from playbooks.quality.controls import Control
from playbooks.steps.models import QualityStep

CASES = "\n".join(
    f'[[case]]\nid = "c{i}"\ncategory = "{"even" if i % 2 == 0 else "odd"}"\n'
    f'prompt = "Say the number {i} and then go on with the next one."\nmax_tokens = 6'
    for i in range(4)
)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    spec = tiny_spec()
    tensors = tiny_tensors(spec)
    for name in tensors:
        if "q_proj" in name or "k_proj" in name:
            tensors[name] *= 3.0  # attention sharp enough that errors in K matter
    folder = write_hf(tmp_path_factory.mktemp("hf") / "tiny", spec, tensors)
    return EngineConfig(model=str(folder), kernels="reference")


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    path = tmp_path_factory.mktemp("cases") / "own.toml"
    path.write_text(CASES)
    return QualityStep(cases=(str(path),), golden=False)


@pytest.fixture(scope="module")
def steps():
    return []


@pytest.fixture(scope="module")
def report(config, spec, steps):
    return run_quality(config, spec, lambda done, total: steps.append((done, total)))


def test_the_same_format_passes(config, spec):
    report = run_quality(config.with_(kv_format="fp16"), spec)
    assert report["verdict"] == "pass" and report["reasons"] == []
    assert report["metrics"]["mean_kld"] == pytest.approx(0, abs=1e-6)
    assert report["metrics"]["kept_prefix"] == 1.0
    assert report["suspects"] == [] == report["changes"]


def test_the_default_format_is_close_and_not_the_same(report):
    """A random model hardly prefers any token, so its top choice means nothing here."""
    assert report["format"] == "int8_channel" and report["baseline"] == "fp16"
    metrics, gates = report["metrics"], {g["metric"]: g["verdict"] for g in report["gates"]}
    assert 0 < metrics["mean_kld"] < 2e-3 and gates["mean_kld"] == "pass"
    assert metrics["mean_kld_low"] <= metrics["mean_kld"] <= metrics["mean_kld_high"]


def test_both_controls_ran_and_did_what_they_must(report):
    controls = report["controls"]
    assert controls["fp16"]["verdict"] == "pass" and controls["fp16"]["ok"]
    tensor = controls["int8_tensor_outliers"]
    assert tensor["verdict"] == "fail" and tensor["ok"]
    suspects = {(s["layer"], s["channel"]) for s in tensor["suspects"]}
    for pair in tensor["injected"]:
        assert suspects & {(pair["layer"], c) for c in pair["channels"]}


def test_the_report_is_plain_json_with_the_keys_programs_read(report):
    again = json.loads(json.dumps(report, allow_nan=False))
    assert again["schema"] == 1 and again["kind"] == "quality"
    for key in ("verdict", "metrics", "controls", "suspects", "worst"):
        assert key in again
    assert set(report["categories"]) == {"even", "odd"}
    assert sum(row["positions"] for row in report["categories"].values()) == report["positions"]
    assert len(report["gates"]) == 13


def test_the_worst_cases_have_both_answers(report):
    klds = [case["mean_kld"] for case in report["worst"]]
    assert len(klds) == 4
    for case in report["worst"]:
        assert case["prompt"].startswith("Say the number")
        assert (case["baseline"] == case["candidate"]) == (case["first_divergence"] is None)


def test_progress_reaches_its_end(report, steps):
    assert steps[-1][0] == steps[-1][1] == len(steps)


def test_a_control_that_misbehaves_makes_it_inconclusive(config, spec, monkeypatch):
    asleep = Control("pass", "fail", [], "a control")
    monkeypatch.setattr("playbooks.quality.check.fp16_control", lambda *_: asleep)
    report = run_quality(config, spec)
    assert report["verdict"] == "inconclusive"
    assert report["reasons"] == ["control (a control): expected pass, got fail"]


def test_a_bad_format_fails_and_names_suspects(config, spec, tmp_path):
    """A calibration that is far too small clips every key."""
    from engine.execution.load import load_model
    from playbooks.measure.calibrate import measure

    loaded = load_model(config)
    good = measure(config, loaded, [loaded.tokenizer.encode("Say the number 1 and then go on.")])
    good.k_max[0, 1, 4] /= 50
    good.save(tmp_path / "c.json")
    static = config.with_(kv_format="int8_static", calibration=str(tmp_path / "c.json"))
    report = run_quality(static, spec)
    assert report["verdict"] == "fail"
    assert any("KL divergence" in reason for reason in report["reasons"])
    first = report["suspects"][0]
    assert (first["layer"], first["head"], first["channel"]) == (0, 1, 4)


def test_rounded_products_are_held_against_those_of_floats(spec, tmp_path):
    path = write_gguf(tmp_path / "tiny.gguf", tiny_spec(), tiny_tensors(tiny_spec()), "Q4_1")
    config = EngineConfig(model=str(path), kernels="reference", kv_format="fp16", compute="int8")
    report = run_quality(config, spec)
    change = {"setting": "compute", "baseline": "f32", "candidate": "int8"}
    assert (report["candidate"], report["changes"]) == ("fp16, compute int8", [change])
    assert 1e-6 < report["metrics"]["mean_kld"] < 0.01
    assert report["metrics"]["second_turn"] == 0
    assert all(control["ok"] for control in report["controls"].values())


def test_nothing_runs_when_the_static_format_has_no_calibration(
    config, spec, tmp_path, monkeypatch
):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="evewatch model calibrate"):
        run_quality(config.with_(kv_format="int8_static"), spec, lambda *_: pytest.fail("it ran"))


def test_a_check_without_cases_is_refused(config):
    with pytest.raises(ConfigError, match="no cases"):
        run_quality(config, QualityStep("full", golden=False))


def test_a_case_longer_than_the_model_is_refused_by_name(config, tmp_path):
    path = tmp_path / "long.toml"
    path.write_text(f'[[case]]\nid = "epic"\nprompt = "{"x" * 500}"')
    with pytest.raises(ConfigError, match="'epic'"):
        run_quality(config, QualityStep("full", cases=(str(path),), golden=False))


def test_the_same_id_twice_is_refused(config, spec):
    with pytest.raises(ConfigError, match="there 2 times"):
        run_quality(config, QualityStep("full", cases=spec.cases * 2, golden=False))
