"""Writes the tiny models of `builders` as the files that real models come in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import save_file

from builders import CHATML, MERGES, SPECIAL, tiny_inner
from engine.models import ModelSpec

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}


def hf_config(spec: ModelSpec) -> dict[str, Any]:
    return {
        "architectures": [ARCHITECTURES[spec.architecture]],
        "model_type": spec.architecture,
        "hidden_act": "silu",
        "hidden_size": spec.hidden,
        "intermediate_size": spec.mlp,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads,
        "head_dim": spec.head_dim,
        "vocab_size": spec.vocab,
        "max_position_embeddings": spec.max_positions,
        "rms_norm_eps": spec.norm_eps,
        "rope_theta": spec.rope_theta,
        "tie_word_embeddings": spec.tied,
        "attention_bias": spec.out_bias,
        "bos_token_id": spec.bos,
        "eos_token_id": sorted(spec.eos_ids),
    }


def write_hf(
    folder: Path,
    spec: ModelSpec,
    tensors: dict[str, torch.Tensor],
    shards: int = 1,
    **config: Any,
) -> Path:
    """A Hugging Face folder; `config` adds to or replaces keys of config.json."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(hf_config(spec) | config))
    (folder / "tokenizer.json").write_text(tiny_inner().to_str())
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "<|im_end|>", "chat_template": CHATML})
    )
    names = sorted(tensors)
    if shards == 1:
        save_file(tensors, folder / "model.safetensors")
        return folder
    home = {name: f"model-{i % shards + 1:05}.safetensors" for i, name in enumerate(names)}
    for file in set(home.values()):
        save_file({n: tensors[n] for n in names if home[n] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": home}))
    return folder


def write_gguf(
    path: Path,
    spec: ModelSpec,
    tensors: dict[str, torch.Tensor],
    encoding: str = "F32",
    drop: tuple[str, ...] = (),
    **metadata: Any,
) -> Path:
    """A GGUF file; `drop` leaves out metadata keys, `metadata` adds (__ reads as a dot).

    Matrices are in `encoding`, vectors in F32, as converters write them.
    """
    writer = gguf.GGUFWriter(path, spec.architecture)
    for key, value in (gguf_metadata(spec) | metadata).items():
        if key not in drop:
            _add(writer, key.replace("__", "."), value)
    kind = gguf.GGMLQuantizationType[encoding]
    names = gguf.get_tensor_name_map(_arch(spec.architecture), spec.layers)
    for name, tensor in tensors.items():
        short = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert short is not None, name
        values = np.ascontiguousarray(_interleave(spec, name, tensor).numpy())
        if values.ndim == 1 or encoding == "F32":
            writer.add_tensor(short, values)
        else:
            writer.add_tensor(short, gguf.quantize(values, kind), raw_dtype=kind)
    if spec.rope_divisors and spec.rope_scaling == "llama3":
        writer.add_tensor("rope_freqs.weight", np.array(spec.rope_divisors, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_metadata(spec: ModelSpec) -> dict[str, Any]:
    arch, vocab = spec.architecture, tiny_inner().get_vocab()
    return {
        f"{arch}.block_count": spec.layers,
        f"{arch}.context_length": spec.max_positions,
        f"{arch}.embedding_length": spec.hidden,
        f"{arch}.feed_forward_length": spec.mlp,
        f"{arch}.attention.head_count": spec.heads,
        f"{arch}.attention.head_count_kv": spec.kv_heads,
        f"{arch}.attention.key_length": spec.head_dim,
        f"{arch}.attention.layer_norm_rms_epsilon": spec.norm_eps,
        f"{arch}.rope.freq_base": spec.rope_theta,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": sorted(vocab, key=vocab.__getitem__),
        "tokenizer.ggml.token_type": [3] * len(SPECIAL) + [1] * (len(vocab) - len(SPECIAL)),
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": spec.bos,
        "tokenizer.ggml.eos_token_id": min(spec.eos_ids),
        "tokenizer.chat_template": CHATML,
    }


def _arch(name: str) -> gguf.MODEL_ARCH:
    return {text: arch for arch, text in gguf.MODEL_ARCH_NAMES.items()}[name]


def _interleave(spec: ModelSpec, name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Converters of `llama` files put the rows of a RoPE pair (i, i + D/2) side by side."""
    heads = {"q_proj": spec.heads, "k_proj": spec.kv_heads}.get(name.split(".")[-2])
    if heads is None or spec.architecture != "llama":
        return tensor
    half = spec.head_dim // 2
    order = [row for i in range(half) for row in (i, i + half)]
    per_head = tensor.reshape(heads, spec.head_dim, -1)
    return per_head[:, order].reshape(tensor.shape)


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)
