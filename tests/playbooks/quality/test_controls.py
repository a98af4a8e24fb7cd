import pytest
import torch

from builders import tiny_spec, tiny_tensors
from engine.config import EngineConfig
from engine.execution.calibration import Ranges
from engine.execution.load import load_model
from engine.models.surgery import Pair
from model_files import write_hf
from playbooks.quality.arm import QualityArm
from playbooks.quality.controls import (
    choose_pairs,
    fp16_control,
    injected_model,
    named,
    outlier_control,
    plain_arm,
    ranges_of,
)
from playbooks.quality.scoring import Text
from playbooks.quality.suspects import Suspect, find_suspects


def random_text(seed):
    random = torch.Generator().manual_seed(seed)
    return Text(f"t{seed}", "own", torch.randint(0, 272, (60,), generator=random).tolist())


TEXTS = [random_text(seed) for seed in range(3)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A tiny model whose attention is sharp, so that errors in K matter."""
    spec = tiny_spec()
    tensors = tiny_tensors(spec)
    for name in tensors:
        if "q_proj" in name or "k_proj" in name:
            tensors[name] *= 3.0
    return str(write_hf(tmp_path_factory.mktemp("hf") / "tiny", spec, tensors))


@pytest.fixture(scope="module")
def config(model):
    return EngineConfig(model=model, kernels="reference")


@pytest.fixture(scope="module")
def loaded(config):
    return load_model(config)


def test_an_arm_says_what_the_whole_sequence_says(config, loaded):
    """Chunks, pages and the first position asked for change nothing."""
    tokens = TEXTS[0].tokens
    whole = QualityArm(config.with_(kv_format="fp16"), loaded, 60).logits(tokens)
    assert whole.shape == (60, loaded.spec.vocab)
    for fmt in ("fp16", "int8_channel"):
        one = QualityArm(config.with_(kv_format=fmt), loaded, 60)
        chunked = QualityArm(config.with_(kv_format=fmt), loaded, 60, chunk=7)
        torch.testing.assert_close(
            one.logits(tokens, 5), chunked.logits(tokens, 5), rtol=0, atol=1e-4
        )
        assert one.logits(tokens, 5).shape[0] == 55
    torch.testing.assert_close(
        whole[5:], QualityArm(config.with_(kv_format="fp16"), loaded, 60).logits(tokens, 5)
    )


def test_an_arm_can_be_used_again_and_keeps_nothing(config, loaded):
    arm = QualityArm(config, loaded, 60)
    first = arm.logits(TEXTS[0].tokens)
    arm.logits(TEXTS[1].tokens)
    assert torch.equal(arm.logits(TEXTS[0].tokens), first)
    with pytest.raises(RuntimeError), arm.feed(TEXTS[0].tokens):
        raise RuntimeError
    assert torch.equal(arm.logits(TEXTS[0].tokens), first)


def test_a_sequence_that_does_not_fit_is_refused(config, loaded):
    with pytest.raises(ValueError, match="KV pool"):
        QualityArm(config, loaded, 16).logits([1] * 100)


def test_fp16_passes_against_itself(config, loaded):
    ticks = []
    base = plain_arm(config, loaded, 60)
    control = fp16_control(base, TEXTS, lambda: ticks.append(1))
    assert control.ok and control.verdict == "pass"
    assert len(ticks) == len(TEXTS)


def test_tensor_scales_fail_on_outliers_and_the_culprits_are_named(config, loaded):
    base = plain_arm(config, loaded, 60)
    control = outlier_control(config, base, TEXTS, lambda: None)
    assert control.verdict == "fail"
    assert control.missed == () and control.ok
    assert len(control.injected) == loaded.spec.layers
    assert control.suspects[0].why == "it stretches the scale that it shares"


def test_a_control_that_names_nobody_is_not_ok(config, loaded, monkeypatch):
    monkeypatch.setattr("playbooks.quality.controls.find_suspects", lambda *_: [])
    control = outlier_control(config, plain_arm(config, loaded, 60), TEXTS, lambda: None)
    assert control.verdict == "fail" and not control.ok


def test_injected_outliers_hurt_only_formats_that_share_scales(config, loaded):
    """Per channel they cost nothing; calibrated lanes keep them in hp as well."""
    pairs = [Pair(0, 0, 2), Pair(1, 1, 5)]
    injected = injected_model(config, loaded, pairs, 32.0)
    plain = plain_arm(config, injected, 60)
    calibration = ranges_of(plain, TEXTS).calibration("tiny", injected.identity, 4)
    found = {}
    for fmt in ("int8_channel", "int8_token", "int8_tensor"):
        bare = None if fmt != "int8_tensor" else calibration
        arm = QualityArm(config.with_(kv_format=fmt), injected, 60, calibration=bare)
        found[fmt] = {
            (s.layer, s.head, s.channel) for s in find_suspects(arm, plain, TEXTS[0].tokens)
        }
    both = {(p.layer, p.head, c) for p in pairs for c in p.channels(16)}
    assert both <= found["int8_tensor"]
    assert both <= found["int8_token"]
    lanes = QualityArm(config.with_(kv_format="int8_token"), injected, 60, calibration=calibration)
    assert not both & {
        (s.layer, s.head, s.channel) for s in find_suspects(lanes, plain, TEXTS[0].tokens)
    }


def test_a_static_scale_that_clips_is_named(config, loaded):
    plain = plain_arm(config, loaded, 60)
    ranges = ranges_of(plain, TEXTS)
    ranges.k_max[1, 0, 7] /= 20  # as if it had been calibrated on too little
    calibration = ranges.calibration("tiny", loaded.identity, 0)
    arm = QualityArm(config.with_(kv_format="int8_static"), loaded, 60, calibration=calibration)
    worst = find_suspects(arm, plain, TEXTS[0].tokens)[0]
    assert (worst.layer, worst.head, worst.channel) == (1, 0, 7)
    assert worst.why == "its own error stands out"


def test_an_unquantised_format_has_no_suspects(config, loaded):
    plain = plain_arm(config, loaded, 60)
    assert find_suspects(plain, plain_arm(config, loaded, 60), TEXTS[0].tokens) == []
    quantised = QualityArm(config, loaded, 60)
    assert find_suspects(quantised, plain, TEXTS[0].tokens[:5]) == []


def test_the_largest_pairs_are_injected_as_far_as_float16_reaches():
    ranges = Ranges(30, 3, 64)
    ranges.k_max += 1.0
    ranges.k_max[5, 1, 40] = 9.0
    pairs, factor = choose_pairs(ranges)
    assert [p.layer for p in pairs] == [5, 15, 25] and factor == 32.0
    assert pairs[0] == Pair(5, 1, 8)
    ranges.k_max[0, 0, 0] = 2000.0
    assert choose_pairs(ranges)[1] == 8.0


def test_a_pair_is_named_by_either_of_its_channels():
    suspect = Suspect(1, 0, 13, 9.0, "", 0.1)
    assert named(Pair(1, 0, 5), [suspect], 16)
    assert not named(Pair(1, 0, 6), [suspect], 16)
    assert not named(Pair(0, 0, 5), [suspect], 16)
