import pytest

from playbooks.quality.limits import ANSWERED, SCORED, Limit, LimitResult, judge, shown, verdict

GOOD = {
    "mean_kld": 0.0001, "p99_kld": 0.0005, "top1_agreement": 0.996, "rms_dp": 0.003,
    "ppl_change": -0.001, "passkey_misses": 0.0, "first_divergence": 0.9, "length_change": 0.02,
    "repetition_p": 1.0, "early_end_p": 1.0, "replacement_up": 0, "second_turn": 0.0,
    "structure_p": 1.0,
}  # fmt: skip
ALL = SCORED + ANSWERED


def of(metric, value):
    return next(g.verdict for g in judge(GOOD | {metric: value}, ALL) if g.limit.metric == metric)


def test_a_lossless_format_passes():
    assert verdict(judge(GOOD, ALL)) == "pass"


@pytest.mark.parametrize(
    ("metric", "value", "expected"),
    [
        ("mean_kld", 0.002, "pass"), ("mean_kld", 0.005, "warn"), ("mean_kld", 0.0101, "fail"),
        ("p99_kld", 0.021, "warn"), ("p99_kld", 0.041, "fail"),
        ("top1_agreement", 0.99, "pass"), ("top1_agreement", 0.98, "warn"),
        ("top1_agreement", 0.96, "fail"),
        ("rms_dp", 0.02, "warn"), ("rms_dp", 0.031, "fail"),
        ("ppl_change", -0.02, "fail"), ("ppl_change", 0.005, "warn"),
        ("passkey_misses", 1, "pass"), ("passkey_misses", 2, "fail"),
        ("first_divergence", 0.49, "fail"), ("first_divergence", 0.5, "pass"),
        ("length_change", -0.11, "fail"), ("length_change", 0.1, "pass"),
        ("repetition_p", 0.04, "fail"), ("early_end_p", 0.1, "warn"),
        ("structure_p", 0.25, "pass"), ("structure_p", 0.125, "warn"),
        ("structure_p", 1 / 32, "fail"), ("replacement_up", 1, "fail"),
        ("second_turn", 1.0, "fail"),
    ],
)  # fmt: skip
def test_every_limit(metric, value, expected):
    assert of(metric, value) == expected


@pytest.mark.parametrize(
    "metric", ["passkey_misses", "second_turn", "length_change", "structure_p"]
)
def test_what_a_model_cannot_show_is_left_out(metric):
    assert of(metric, None) == "not available"
    assert verdict(judge(GOOD | {metric: None}, ALL)) == "pass"


@pytest.mark.parametrize("metric", ["mean_kld", "p99_kld", "first_divergence"])
def test_missing_evidence_never_passes(metric):
    assert verdict(judge(GOOD | {metric: None}, ALL)) == "inconclusive"


def test_a_failure_outweighs_missing_evidence_and_that_a_warning():
    assert verdict(judge(GOOD | {"mean_kld": 0.5, "p99_kld": None}, ALL)) == "fail"
    assert verdict(judge(GOOD | {"mean_kld": 0.005, "p99_kld": None}, ALL)) == "inconclusive"


def test_a_gate_says_its_number_and_its_limit():
    limit = Limit("top1_agreement", "top-1", 0.99, 0.965, percent=True)
    assert shown(LimitResult(limit, 0.98, "warn")) == "98.00%, must be at or above 99.00%"
    assert "no value" in shown(LimitResult(limit, None, "inconclusive"))
