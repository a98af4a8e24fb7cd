"""GGUF as a Checkpoint: its keys and tensor names, and the row order of its Q and K."""

from __future__ import annotations

from pathlib import Path

from engine.errors import ModelError
from engine.models.gguf_file import GgufFile, GgufTensor
from engine.models.gguf_tokenizer import build_tokenizer
from engine.models.keys import Keys
from engine.models.rope import KINDS, Scaling, positive
from engine.models.spec import FAMILIES, ModelSpec
from engine.models.weights import Checkpoint, TensorInfo
from engine.text.tokenizer import Tokenizer
from kernels.weights import RawWeight

_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_FACTORS = "rope_freqs.weight"
_INTERLEAVED = ("llama",)
"""Architectures whose files keep RoPE pairs in neighbouring rows of Q and K."""


class GgufCheckpoint(Checkpoint):
    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = GgufFile(path)
        self._by_name: dict[str, GgufTensor] = {}
        self.tensors = {}
        for tensor in self._file.tensors.values():
            name = hf_name(tensor.name)
            self._by_name[name] = tensor
            self.tensors[name] = TensorInfo(name, tensor.kind.name, tensor.shape)
        self.spec = _Config(self._file).spec(self.tensors)

    @property
    def files(self) -> list[Path]:
        return [self.path]

    def tokenizer(self) -> Tokenizer:
        return build_tokenizer(self._file.metadata, str(self.path))

    def read(self, info: TensorInfo) -> RawWeight:
        weight = self._file.read(self._by_name[info.name])
        if len(info.shape) == 1:
            weight = RawWeight.dense(weight.dequantise())
        if self.spec.architecture not in _INTERLEAVED:
            return weight
        if ".q_proj." in info.name:
            return _pairs_apart(weight, self.spec.heads, len(info.shape))
        if ".k_proj." in info.name:
            return _pairs_apart(weight, self.spec.kv_heads, len(info.shape))
        return weight


def hf_name(name: str) -> str:
    """The Hugging Face name of a GGUF tensor; names without one stay."""
    if name in _TOP:
        return _TOP[name]
    parts = name.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in _IN_LAYER:
        return f"model.layers.{parts[1]}.{_IN_LAYER[parts[2]]}.{parts[3]}"
    return name


def _pairs_apart(weight: RawWeight, heads: int, dims: int) -> RawWeight:
    """Rows of every head from 0 D/2 1 D/2+1 … back to 0 1 2 …: pairs (i, i + D/2).

    Moves whole rows, so quantised blocks stay as they are. A bias is one row of values.
    """
    rows = weight.data if dims == 2 else weight.data.reshape(-1, 1)
    apart = rows.reshape(heads, -1, 2, rows.shape[1]).transpose(1, 2).reshape(rows.shape)
    return RawWeight(weight.encoding, weight.rows, weight.cols, apart.reshape(weight.data.shape))


# Keys under the architecture's prefix that change nothing here.
_HARMLESS = ("vocab_size", "tensor_data_layout", "rope.scaling.finetuned", "expert_used_count")


class _Config:
    """What the metadata say of the decoder, read whole."""

    def __init__(self, file: GgufFile) -> None:
        self._file, self._where = file, str(file.path)
        general = Keys(self._where, file.metadata)
        self._arch = general.get("general.architecture", str, "none")
        if self._arch not in FAMILIES:
            raise ModelError(
                f"{self._where}: architecture {self._arch!r} is not supported; "
                f"supported: {', '.join(FAMILIES)}"
            )
        general.only("general.type", "model")
        if general.get("split.count", int, 0) > 1:
            raise ModelError(f"{self._where}: one part of a split GGUF; merge the parts first")
        self._ids = {
            role: general.ids(f"tokenizer.ggml.{role}_token_id")
            for role in ("bos", "eos", "eot", "eom")
        }
        prefix = f"{self._arch}."
        values = {
            k.removeprefix(prefix): v for k, v in file.metadata.items() if k.startswith(prefix)
        }
        self._keys = Keys(self._where, values, prefix)

    def spec(self, tensors: dict[str, TensorInfo]) -> ModelSpec:
        keys = self._keys
        self._refuse_variants()
        heads, hidden = keys.get("attention.head_count", int), keys.get("embedding_length", int)
        head_dim = keys.get("attention.key_length", int, hidden // max(heads, 1))
        for key in ("rope.dimension_count", "attention.value_length"):
            if keys.get(key, int, head_dim) != head_dim:
                raise keys.refused(key)
        embedding = tensors.get("model.embed_tokens.weight")
        vocab = embedding.shape[0] if embedding else keys.get("vocab_size", int)
        positions = keys.get("context_length", int)
        window = keys.get("attention.sliding_window", int, 0)
        scaling, divisors = self._scaling(head_dim)
        layer = "model.layers.0.self_attn."
        spec = ModelSpec(
            name=self._file.path.stem,
            architecture=self._arch,
            layers=keys.get("block_count", int),
            hidden=hidden,
            heads=heads,
            kv_heads=keys.get("attention.head_count_kv", int, heads),
            head_dim=head_dim,
            mlp=keys.get("feed_forward_length", int),
            vocab=vocab,
            max_positions=min(positions, window) if window else positions,
            norm_eps=keys.get("attention.layer_norm_rms_epsilon", float),
            rope_theta=keys.get("rope.freq_base", float, 10_000.0),
            rope_scaling=scaling,
            rope_divisors=divisors,
            tied="lm_head.weight" not in tensors,
            qkv_bias=layer + "q_proj.bias" in tensors or self._arch == "qwen2",
            out_bias=layer + "o_proj.bias" in tensors,
            qk_norm=self._arch == "qwen3",
            bos=min(self._ids["bos"], default=None),
            eos_ids=frozenset(i for role in ("eos", "eot", "eom") for i in self._ids[role]),
        )
        keys.refuse_rest(_HARMLESS)
        return spec

    def _refuse_variants(self) -> None:
        keys = self._keys
        if keys.get("expert_count", int, 0):
            raise ModelError(f"{self._where}: mixture-of-experts models are not supported")
        if not keys.get("attention.causal", bool, True):
            raise keys.refused("attention.causal")
        for key in ("rope.scaling.attn_factor", "logit_scale", "embedding_scale", "residual_scale"):
            keys.only(key, 1.0)

    def _scaling(self, head_dim: int) -> Scaling:
        """The file's factors for each pair, times one for all: a file may have both."""
        keys, half = self._keys, head_dim // 2
        factors = self._file.tensors.get(_FACTORS)
        new, old = (
            keys.optional("rope.scaling.factor", float),
            keys.optional("rope.scale_linear", float),
        )
        given = "rope.scaling.factor" if new is not None else "rope.scale_linear"
        kind = keys.get("rope.scaling.type", str, "none" if new is old is None else "linear")
        if kind not in ("none", "linear"):
            raise ModelError(
                f"{self._where}: RoPE scaling {kind!r} is not supported; "
                f"supported: {', '.join(KINDS)}"
            )
        keys.value("rope.scaling.original_context_length")  # what a factor is made of, no more
        stretch = positive(keys, given) if kind == "linear" else 1.0
        if factors is not None:
            each = self._file.read(factors).dequantise().flatten().tolist()
            return "llama3", tuple(stretch * factor for factor in each)
        return ("linear", (stretch,) * half) if kind == "linear" else ("none", None)
