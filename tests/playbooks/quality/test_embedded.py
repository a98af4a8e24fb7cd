"""On the real model: outliers break the tensor format and not the default one."""

import pytest

from engine import models
from engine.config import EMBEDDED, EngineConfig
from engine.execution import calibration
from engine.execution.load import load_model
from engine.models.surgery import Pair
from playbooks.quality.arm import QualityArm
from playbooks.quality.cases import golden
from playbooks.quality.controls import injected_model, plain_arm, ranges_of
from playbooks.quality.metrics import Scores, summarise
from playbooks.quality.passkey import filler
from playbooks.quality.scoring import Text, score
from playbooks.quality.structured import MAKERS, answer_tasks, form, structured_tasks
from playbooks.quality.suspects import find_suspects

pytestmark = pytest.mark.model
PAIRS = [Pair(5, 1, 22), Pair(15, 0, 23)]
FACTOR = 16.0


@pytest.fixture(scope="module")
def config():
    return EngineConfig(compute="f32")


@pytest.fixture(scope="module")
def loaded(config):
    return load_model(config)


@pytest.fixture(scope="module")
def texts(loaded):
    tokenizer = loaded.tokenizer
    asked = [case.tokens(tokenizer) for case in golden()[::24]]
    notes = tokenizer.encode(" ".join(filler(lambda s: len(s.split()), 80, seed=9)))
    return [Text(str(i), "own", ids) for i, ids in enumerate([*asked, notes])]


@pytest.fixture(scope="module")
def injected(config, loaded):
    return injected_model(config, loaded, PAIRS, FACTOR)


@pytest.fixture(scope="module")
def scored(config, loaded, injected, texts):
    """Metrics of formats on the model with outliers, against the untouched model on fp16."""
    plain = plain_arm(config, injected, 256)
    found = ranges_of(plain, texts).calibration("injected", injected.identity, 4)
    arms = {
        "fp16": plain,
        "int8_channel": QualityArm(config, injected, 256),
        "int8_token": QualityArm(
            config.with_(kv_format="int8_token"), injected, 256, calibration=found
        ),
        "no lanes": QualityArm(config.with_(kv_format="int8_token"), injected, 256),
        "int8_tensor": QualityArm(
            config.with_(kv_format="int8_tensor"), injected, 256, calibration=found
        ),
    }
    scores = score(plain_arm(config, loaded, 256), list(arms.values()), texts, lambda: None)
    suspects = find_suspects(arms["int8_tensor"], plain, texts[-1].tokens)
    metrics = {n: summarise(Scores.join(s)) for n, s in zip(arms, scores, strict=True)}
    return metrics, suspects


def test_the_injected_model_is_the_same_model(scored):
    assert scored[0]["fp16"]["mean_kld"] < 2e-5
    assert scored[0]["fp16"]["top1_agreement"] > 0.995


def test_per_channel_scales_do_not_mind_outliers(scored):
    assert scored[0]["int8_channel"]["mean_kld"] < 3e-4


def test_per_token_scales_need_their_outlier_lanes(scored):
    metrics = scored[0]
    assert metrics["int8_token"]["mean_kld"] < 0.3 * metrics["no lanes"]["mean_kld"]


def test_a_scale_per_layer_breaks_and_the_channels_are_named(scored):
    metrics, suspects = scored
    assert metrics["int8_tensor"]["mean_kld"] > 0.01
    for pair in PAIRS:
        named = {s.channel for s in suspects if (s.layer, s.head) == (pair.layer, pair.head)}
        assert named & set(pair.channels(64))


def test_four_bits_stay_near_with_lanes_and_less_without(config, loaded, texts):
    arms = [
        QualityArm(config.with_(kv_format=fmt, outlier_channels=lanes), loaded, 256)
        for fmt, lanes in (("k8v4", 4), ("k4v4", 4), ("k4v4", 0))
    ]
    scores = score(plain_arm(config, loaded, 256), arms, texts, lambda: None)
    k8v4, k4v4, bare = (summarise(Scores.join(s))["mean_kld"] for s in scores)
    assert k8v4 < 0.002 and k4v4 < 0.004
    assert k8v4 < k4v4 < 0.8 * bare


@pytest.fixture(scope="module")
def broken(config, loaded, texts, tmp_path_factory):
    """K so coarse that each layer has one large pair and a few steps for all others."""
    spec = loaded.spec
    pairs = [
        Pair(layer, 0, int(reach[: spec.head_dim // 2].argmax()))
        for layer, reach in enumerate(ranges_of(plain_arm(config, loaded, 256), texts).k_max[:, 0])
    ]
    model = injected_model(config, loaded, pairs, FACTOR)
    found = ranges_of(plain_arm(config, model, 256), texts)
    path = tmp_path_factory.mktemp("broken") / "c.json"
    found.calibration("broken", model.identity, 0).save(path)
    return config.with_(kv_format="int8_tensor", calibration=str(path)), model


def test_structured_answers_tell_a_broken_format_from_sound_ones(config, loaded, broken):
    asked = structured_tasks(quick=True)[::2]
    base = answer_tasks(config.with_(kv_format="fp16"), loaded, asked)
    valid = [task.valid(answer.text) for task, answer in zip(asked, base, strict=True)]
    assert sum(valid) >= 0.6 * len(asked)
    assert {task.kind for task, ok in zip(asked, valid, strict=True) if ok} == set(MAKERS)
    k4v4 = answer_tasks(config.with_(kv_format="k4v4"), loaded, asked)
    assert form(asked, base, k4v4)["structure_p"] >= 0.2
    assert form(asked, base, answer_tasks(*broken, asked))["structure_p"] < 0.05


def test_the_calibration_that_ships_is_of_the_embedded_model(loaded, tmp_path, monkeypatch):
    monkeypatch.setenv("EVEWATCH_HOME", str(tmp_path))
    assert models.describe(models.resolve(EMBEDDED)).identity == loaded.identity
    found = calibration.for_engine(EngineConfig(), loaded.spec, loaded.identity)
    assert found is not None and found.longest > 8000
    assert {(o.layer, o.head) for o in found.outliers} == {(18, 2)}


def test_its_scales_hold_for_text_that_it_was_not_measured_on(config, loaded, texts):
    arm = QualityArm(config.with_(kv_format="int8_static"), loaded, 256)
    for text in texts:
        arm.logits(text.tokens)
    clipped = arm.cache.saturation_ratio
    assert clipped is not None and clipped < 1e-3
