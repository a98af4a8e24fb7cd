"""A configuration is read whole.

The kind: a key of a model's configuration that changes what is computed, at whatever depth and in
whatever spelling it stands. It is applied, or refused by its name before a weight is read; nothing
falls back to a default in silence.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from builders import tiny_spec, tiny_tensors
from engine import models
from engine.errors import ModelError
from engine.models import ModelSpec
from kernels import reference
from model_files import write_gguf, write_hf

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


def hf_spec(folder: Path, family: str = "llama", **config: Any) -> ModelSpec:
    spec = tiny_spec(family)
    return models.describe(write_hf(folder / "m", spec, tiny_tensors(spec), **config)).spec


def gguf_spec(folder: Path, drop: tuple[str, ...] = (), **metadata: Any) -> ModelSpec:
    spec = tiny_spec()
    path = write_gguf(folder / "m.gguf", spec, tiny_tensors(spec), drop=drop, **metadata)
    return models.describe(path).spec


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "softcap of the scores": ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
    "softcap of the logits": ({"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
    "scale of the scores": ({"query_pre_attn_scalar": 256}, "query_pre_attn_scalar"),
    "multiplier of the embedding": ({"embedding_multiplier": 12.0}, "embedding_multiplier"),
    "multiplier of the residual": ({"residual_multiplier": 0.22}, "residual_multiplier"),
    "multiplier of attention": ({"attention_multiplier": 0.015}, "attention_multiplier"),
    "scale of the logits": ({"logits_scaling": 8.0}, "logits_scaling"),
    "clipped projections": ({"clip_qkv": 8.0}, "clip_qkv"),
    "part of the head": ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    "no rotation at all": ({"partial_rotary_factor": 0.0}, "partial_rotary_factor"),
    "part of the head, inside": (
        {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
        "rope_parameters: partial_rotary_factor",
    ),
    "layers without positions": ({"no_rope_layers": [1, 0]}, "no_rope_layers"),
    "chunked attention": ({"layer_types": ["chunked_attention"] * 2}, "layer_types"),
    "biases of the MLP": ({"mlp_bias": True}, "mlp_bias"),
    "another activation": ({"hidden_act": "gelu"}, "hidden_act"),
    "another activation's name": ({"hidden_activation": "gelu_pytorch_tanh"}, "hidden_activation"),
    "experts": ({"num_local_experts": 8, "num_experts_per_tok": 2}, "num_local_experts"),
    "quantised": ({"quantization_config": {"quant_method": "awq"}}, "quantization_config"),
    "quantised, elsewhere": ({"compression_config": {"format": "pack"}}, "compression_config"),
    "in the text's table": ({"text_config": {"attn_logit_softcapping": 50.0}}, "attn_logit"),
    "pictures": ({"vision_config": {"hidden_size": 8}}, "vision_config"),
    "code of its own": ({"auto_map": {"AutoModelForCausalLM": "m.Mine"}}, "auto_map"),
    "another class": ({"architectures": ["LlamaForSequenceClassification"]}, "architecture"),
    "class of another family": ({"architectures": ["Qwen2ForCausalLM"]}, "architecture"),
    "yarn": ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "'yarn' is not supported"),
    "dynamic": ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "'dynamic'"),
    "longrope": ({"rope_scaling": {"rope_type": "longrope", "long_factor": [1.0]}}, "'longrope'"),
    "by kinds of layers": (
        {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e6}}},
        "rope_parameters: full_attention",
    ),
    "a factor that is not used": (
        {"rope_scaling": {"rope_type": "default", "factor": 4.0}},
        "rope_scaling: factor",
    ),
    "attention's own factor": (
        {"rope_scaling": {"type": "linear", "factor": 2.0, "attention_factor": 1.2}},
        "rope_scaling: attention_factor",
    ),
    "another epsilon": ({"layer_norm_eps": 1e-3}, "layer_norm_eps"),
    "classes as a table": ({"architectures": {"a": 1}}, "architecture"),
    "a class as a text": ({"architectures": "LlamaForCausalLM"}, "'LlamaForCausalLM'"),
    "two classes": ({"architectures": ["LlamaForCausalLM", "Mine"]}, "Mine"),
    "a family as a list": ({"model_type": ["llama"]}, "architecture"),
    "kinds of too few layers": ({"layer_types": ["full_attention"] * 3}, "layer_types"),
    "kinds of layers as a text": ({"layer_types": "full_attention"}, "layer_types"),
    "no mask": ({"is_causal": False}, "is_causal"),
    "no positions": ({"use_rope": False}, "use_rope"),
    "in a table that nobody knows": ({"my": {"own": {"rope_theta": 5.0}}}, "my"),
    "not known by anybody": ({"residual_gate_scale": 0.5}, "residual_gate_scale"),
}


@pytest.mark.parametrize(("config", "name"), REFUSED.values(), ids=REFUSED)
def test_a_key_that_is_not_applied_is_refused_by_name(
    tmp_path: Path, config: dict[str, Any], name: str
) -> None:
    with pytest.raises(ModelError) as caught:
        hf_spec(tmp_path, **config)
    assert name in str(caught.value) and "config.json" in str(caught.value)
    assert "\n" not in str(caught.value)


CONTRADICTIONS: dict[str, dict[str, Any]] = {
    "two bases": {"rope_theta": 1e4, "rope_parameters": {"rope_theta": 1e6}},
    "two scalings": {"rope_scaling": LLAMA3, "rope_parameters": {"type": "linear", "factor": 2.0}},
    "two types": {"rope_scaling": {"rope_type": "llama3", "type": "linear", "factor": 2.0}},
    "two depths": {"rms_norm_eps": 1e-5, "text_config": {"rms_norm_eps": 1e-6}},
}


@pytest.mark.parametrize("config", CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_what_says_two_things_is_refused(tmp_path: Path, config: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=r"leave one|do not agree|which one\?"):
        hf_spec(tmp_path, **config)


@pytest.mark.parametrize("bad", [0, 0.0, -2.0, float("nan"), float("inf"), "4", True, None, [4.0]])
@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_a_rope_factor_must_be_a_positive_number(tmp_path: Path, key: str, bad: object) -> None:
    for table in ({"type": "linear", "factor": bad}, LLAMA3 | {"factor": bad}):
        with pytest.raises(ModelError, match="factor"):
            hf_spec(tmp_path, **{key: table})


@pytest.mark.parametrize(
    "change",
    [
        {"low_freq_factor": 0},
        {"high_freq_factor": 1.0},
        {"original_max_position_embeddings": 0},
        {"low_freq_factor": 5.0},
    ],
)
def test_the_other_numbers_of_llama3_scaling_are_checked_too(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    with pytest.raises(ModelError, match=r"must be a positive number|is not below"):
        hf_spec(tmp_path, rope_scaling=LLAMA3 | change)


def test_every_spelling_of_rope_is_the_same(tmp_path: Path) -> None:
    linear = {"factor": 2.0}
    wanted = hf_spec(tmp_path, rope_theta=5e5, rope_scaling={"type": "linear"} | linear)
    assert wanted.rope_divisors == (2.0,) * 8 and wanted.rope_theta == 5e5
    both = {"type": "linear", "rope_type": "linear"} | linear
    for config in (
        {"rope_theta": 500_000, "rope_scaling": {"rope_type": "linear"} | linear},
        {"rope_theta": None, "rope_parameters": both | {"rope_theta": 5e5}},
        {"rope_theta": None, "rope_scaling": both | {"rope_theta": 5e5}},
        {"rope_theta": 5e5, "rope_parameters": both, "rope_scaling": both},
        {"rope_theta": None, "text_config": {"rope_theta": 5e5, "rope_scaling": both}},
        {"rope_theta": 5e5, "rope_scaling": linear},
        {"rope_theta": 5e5, "rope_parameters": both | {"partial_rotary_factor": 1.0}},
    ):
        assert hf_spec(tmp_path, **config) == wanted


def test_what_changes_nothing_is_no_reason_to_refuse(tmp_path: Path) -> None:
    """Neutral values of keys that would, and keys about training, generation and software."""
    plain = hf_spec(tmp_path)
    assert plain == hf_spec(
        tmp_path,
        attn_logit_softcapping=None,
        num_experts=0,
        mlp_bias=False,
        embedding_multiplier=1.0,
        logits_scaling=1,
        hidden_activation="silu",
        partial_rotary_factor=1,
        rope_scaling=None,
        sliding_window=None,
        layer_types=["full_attention"] * 2,
        rope_interleaved=False,
        pretraining_tp=1,
        initializer_range=0.02,
        attention_dropout=0.1,
        torch_dtype="bfloat16",
        _name_or_path="somewhere",
        **{"transformers.js_config": {"dtype": "q4"}},
    )


def test_a_key_that_nobody_knows_is_told(tmp_path: Path) -> None:
    spec = tiny_spec()
    folder = write_hf(tmp_path / "m", spec, tiny_tensors(spec), trained_by="a friend")
    loaded = models.load(folder, reference)
    assert [note for note in loaded.notes if "trained_by is not known" in note]


@pytest.mark.parametrize(
    ("family", "config", "positions"),
    [
        ("mistral", {}, 256),
        ("llama", {"sliding_window": 64}, 64),
        ("llama", {"sliding_window": 64, "use_sliding_window": False}, 256),
        ("qwen3", {"sliding_window": 64, "use_sliding_window": True}, 64),
        ("qwen2", {"sliding_window": 64, "layer_types": ["sliding_attention"] * 2}, 64),
    ],
)
def test_a_window_bounds_the_context_in_every_family(
    tmp_path: Path, family: str, config: dict[str, Any], positions: int
) -> None:
    assert hf_spec(tmp_path, family, **config).max_positions == positions


def test_a_mistral_that_says_nothing_has_the_window_of_its_reference(tmp_path: Path) -> None:
    config = {"max_position_embeddings": 32768}
    assert hf_spec(tmp_path, "mistral", **config).max_positions == 4096
    assert hf_spec(tmp_path, "mistral", **config, sliding_window=None).max_positions == 32768


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"eos_token_id": 99_999}, "token id 99999"),
        ({"eos_token_id": "2"}, "eos_token_id"),
        ({"bos_token_id": 1.5}, "bos_token_id"),
        ({"hidden_size": True}, "hidden_size"),
        ({"head_dim": None, "hidden_size": 63}, "does not divide"),
        ({"rms_norm_eps": float("nan")}, "norm epsilon"),
        ({"rope_theta": float("inf")}, "RoPE base"),
        ({"text_config": [1]}, "text_config"),
    ],
)
def test_values_that_cannot_be_are_refused(
    tmp_path: Path, config: dict[str, Any], name: str
) -> None:
    with pytest.raises(ModelError, match=name):
        hf_spec(tmp_path, **config)


def test_a_negative_id_stands_for_none(tmp_path: Path) -> None:
    assert hf_spec(tmp_path, eos_token_id=[-1, 2], bos_token_id=-1).eos_ids == {2}


GGUF_REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "softcap of the scores": ({"llama__attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
    "softcap of the logits": ({"llama__final_logit_softcapping": 30.0}, "final_logit_softcapping"),
    "scale of the scores": ({"llama__attention__scale": 0.1}, "attention.scale"),
    "clamped projections": ({"llama__attention__clamp_kqv": 8.0}, "attention.clamp_kqv"),
    "slopes": ({"llama__attention__max_alibi_bias": 8.0}, "max_alibi_bias"),
    "scale of the logits": ({"llama__logit_scale": 0.0625}, "logit_scale"),
    "scale of the embedding": ({"llama__embedding_scale": 12.0}, "embedding_scale"),
    "scale of the residual": ({"llama__residual_scale": 0.22}, "residual_scale"),
    "other values' size": ({"llama__attention__value_length": 8}, "value_length"),
    "part of the head": ({"llama__rope__dimension_count": 8}, "rope.dimension_count"),
    "both ways": ({"llama__attention__causal": False}, "attention.causal"),
    "parts of a picture": ({"llama__rope__dimension_sections": [1, 2, 3]}, "dimension_sections"),
    "experts": ({"llama__expert_count": 8}, "mixture-of-experts"),
    "yarn": ({"llama__rope__scaling__type": "yarn"}, "'yarn'"),
    "attention's factor": ({"llama__rope__scaling__attn_factor": 1.2}, "attn_factor"),
    "pooling": ({"llama__pooling_type": 1}, "pooling_type"),
    "an adapter": ({"general__type": "adapter"}, "general.type"),
    "a head count a layer": ({"llama__attention__head_count_kv": [2, 1]}, "head_count_kv"),
    "not known by anybody": ({"llama__attention__gate_scale": 0.5}, "gate_scale"),
}


@pytest.mark.parametrize(("metadata", "name"), GGUF_REFUSED.values(), ids=GGUF_REFUSED)
def test_a_gguf_key_that_is_not_applied_is_refused_by_name(
    tmp_path: Path, metadata: dict[str, Any], name: str
) -> None:
    drop = ("llama.attention.head_count_kv",) if "head_count_kv" in name else ()
    with pytest.raises(ModelError, match=name):
        gguf_spec(tmp_path, drop, **metadata)


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan")])
@pytest.mark.parametrize("key", ["llama__rope__scaling__factor", "llama__rope__scale_linear"])
def test_a_gguf_rope_factor_must_be_a_positive_number(
    tmp_path: Path, key: str, factor: float
) -> None:
    with pytest.raises(ModelError, match=r"rope\.scal.* must be a positive number"):
        gguf_spec(tmp_path, **{key: factor})


def test_a_gguf_factor_without_a_type_is_linear_in_both_spellings(tmp_path: Path) -> None:
    for key in ("llama__rope__scaling__factor", "llama__rope__scale_linear"):
        assert gguf_spec(tmp_path, **{key: 4.0}).rope_divisors == (4.0,) * 8
    off = {"llama__rope__scaling__type": "none", "llama__rope__scaling__factor": 4.0}
    assert gguf_spec(tmp_path, **off).rope_divisors is None


def test_a_gguf_factor_of_a_pair_must_be_positive(tmp_path: Path) -> None:
    spec = tiny_spec()
    object.__setattr__(spec, "rope_scaling", "llama3")
    object.__setattr__(spec, "rope_divisors", (1.0, 0.0) * 4)
    path = write_gguf(tmp_path / "m.gguf", spec, tiny_tensors(spec))
    with pytest.raises(ModelError, match="RoPE factor"):
        models.describe(path)


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.self_attn.q_proj.bias",
        "model.layers.1.mlp.gate_proj.bias",
        "model.layers.2.input_layernorm.weight",
        "model.layers.0.self_attn.q_norm.weight",
        "model.layers.0.self_attn.sinks",
        "vision.weight",
    ],
)
def test_a_tensor_that_no_part_is_made_of_is_refused_by_name(tmp_path: Path, name: str) -> None:
    """The configuration's other half: what the file brings and the decoder would leave out."""
    spec = tiny_spec()
    folder = write_hf(tmp_path / "m", spec, tiny_tensors(spec) | {name: torch.ones(4)})
    with pytest.raises(ModelError, match=f"tensor {name} belongs to no part of a llama"):
        models.load(folder, reference)


def test_buffers_that_follow_from_the_configuration_are_left_alone(tmp_path: Path) -> None:
    spec = tiny_spec()
    buffer = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}
    models.load(write_hf(tmp_path / "m", spec, tiny_tensors(spec) | buffer), reference)
