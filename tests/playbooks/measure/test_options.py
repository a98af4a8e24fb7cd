"""The option matrix: figures from here where there are any, else with their source."""

import pytest
import tomli

from engine.config import EngineConfig
from engine.errors import ConfigError
from playbooks.measure.arm_metrics import METRICS
from playbooks.measure.options import FILE, option_matrix
from report_schemas import violations


def compared(setting, before, after, change, verdict="better", metric="throughput"):
    interval = {"change": change, "low": change - 0.1, "high": change + 0.1}
    row = {"metric": metric, "title": metric, "better": "higher", "verdict": verdict}
    row |= interval | {"from": "a", "to": "b"}
    arms = [{"name": "a", "config": {setting: before}}, {"name": "b", "config": {setting: after}}]
    return {"name": "own", "model": "tiny", "quick": False, "repeats": 3, "arms": arms,
            "effects": [row]}  # fmt: skip


def by_id(report):
    return {row["id"]: row for row in report["options"]}


def test_every_candidate_is_there_with_a_source():
    report = option_matrix(compared=[])
    assert violations(report, "options") == []
    assert set(by_id(report)) == {
        "continuous_batching", "kv_quantisation", "kv_four_bits", "dynamic_batch", "prefix_cache",
        "predicted_lengths",
        "operator_fusion", "integer_products", "speculative_decoding", "weight_quantisation",
    }  # fmt: skip
    for row in report["options"]:
        assert row["claim"] == "reported elsewhere"
        assert row["measured"] is None
        assert row["source"] and row["rollback"] and row["elsewhere"] and row["unmeasured"]


def test_what_it_looks_for_exists():
    settings, metrics = EngineConfig().to_dict(), {metric.name for metric in METRICS}
    for row in tomli.loads(FILE.read_text("utf-8"))["option"]:
        wanted = dict(row.get("measured", {}))
        if wanted:
            assert wanted.pop("metric") in metrics
            assert set(wanted) <= set(settings)


def test_a_comparison_made_here_takes_the_figures_place():
    newest = compared("policy", "static", "continuous", 2.2)
    older = compared("policy", "static", "continuous", 9.0)
    row = by_id(option_matrix(compared=[newest, older]))["continuous_batching"]
    assert row["claim"] == "measured here" and row["unmeasured"] is None
    assert row["measured"]["change"] == 2.2
    assert row["measured"]["experiment"] == "own"


def test_a_comparison_the_other_way_round_is_turned():
    found = compared("policy", "continuous", "static", -0.5, "worse")
    measured = by_id(option_matrix(compared=[found]))["continuous_batching"]["measured"]
    assert measured["change"] == pytest.approx(1.0)
    assert measured["verdict"] == "better"
    assert measured["low"] < 1.0 < measured["high"]


def test_another_metric_or_setting_is_no_evidence():
    wrong = [compared("policy", "static", "continuous", 1.0, metric="memory"),
             compared("max_batch", 1, 2, 1.0)]  # fmt: skip
    assert by_id(option_matrix(compared=wrong))["continuous_batching"]["measured"] is None


def test_sorting():
    found = compared("policy", "static", "continuous", 2.2)
    assert option_matrix("gain", [found])["options"][0]["id"] == "continuous_batching"
    risks = [row["risk_level"] for row in option_matrix("risk", [])["options"]]
    assert risks == sorted(risks)
    costs = [row["cost_level"] for row in option_matrix("cost", [])["options"]]
    assert costs == sorted(costs)
    with pytest.raises(ConfigError, match="--sort"):
        option_matrix("luck", [])
