"""GGUF as a Checkpoint: its keys and tensor names, and the row order of its Q and K."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from engine.errors import ModelError
from engine.models.gguf_file import GgufFile, GgufTensor
from engine.models.gguf_tokenizer import build_tokenizer
from engine.models.spec import FAMILIES, ModelSpec
from engine.models.weights import Checkpoint, TensorInfo
from engine.text.tokenizer import Tokenizer
from kernels.weights import RawWeight

T = TypeVar("T", int, float, bool, str)

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
        self.spec = _Keys(self._file).spec(self.tensors)

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


class _Keys:
    """Typed reads of the metadata, under the architecture's prefix."""

    def __init__(self, file: GgufFile) -> None:
        self._file, self._metadata = file, file.metadata
        self._where = str(file.path)
        self._arch = self._metadata.get("general.architecture")
        if self._arch not in FAMILIES:
            raise ModelError(
                f"{file.path}: architecture {self._arch!r} is not supported; "
                f"supported: {', '.join(FAMILIES)}"
            )

    def get(self, key: str, kind: type[T], default: T | None = None) -> T:
        full = f"{self._arch}.{key}"
        value: Any = self._metadata.get(full, default)
        if kind is float and isinstance(value, int):
            value = float(value)
        if not isinstance(value, kind):
            problem = "is missing" if value is None else f"is {value!r}, not {kind.__name__}"
            raise ModelError(f"{self._where}: {full} {problem}")
        return value

    def spec(self, tensors: dict[str, TensorInfo]) -> ModelSpec:
        self._refuse_variants()
        heads, hidden = self.get("attention.head_count", int), self.get("embedding_length", int)
        head_dim = self.get("attention.key_length", int, hidden // max(heads, 1))
        if self.get("rope.dimension_count", int, head_dim) != head_dim:
            raise ModelError(f"{self._where}: RoPE over a part of the head is not supported")
        embedding = tensors.get("model.embed_tokens.weight")
        positions = self.get("context_length", int)
        window = self.get("attention.sliding_window", int, 0)
        scaling, divisors = self._scaling(head_dim)
        return ModelSpec(
            name=self._file.path.stem,
            architecture=str(self._arch),
            layers=self.get("block_count", int),
            hidden=hidden,
            heads=heads,
            kv_heads=self.get("attention.head_count_kv", int, heads),
            head_dim=head_dim,
            mlp=self.get("feed_forward_length", int),
            vocab=embedding.shape[0] if embedding else self.get("vocab_size", int),
            max_positions=min(positions, window) if window else positions,
            norm_eps=self.get("attention.layer_norm_rms_epsilon", float),
            rope_theta=self.get("rope.freq_base", float, 10_000.0),
            rope_scaling=scaling,
            rope_divisors=divisors,
            tied="lm_head.weight" not in tensors,
            qkv_bias="model.layers.0.self_attn.q_proj.bias" in tensors or self._arch == "qwen2",
            out_bias="model.layers.0.self_attn.o_proj.bias" in tensors,
            qk_norm=self._arch == "qwen3",
            bos=next(iter(self._token_ids("bos")), None),
            eos_ids=frozenset(self._token_ids("eos", "eot", "eom")),
        )

    def _refuse_variants(self) -> None:
        if self.get("expert_count", int, 0):
            raise ModelError(f"{self._where}: mixture-of-experts models are not supported")
        if self._metadata.get("split.count", 0) not in (0, 1):
            raise ModelError(f"{self._where}: one part of a split GGUF; merge the parts first")

    def _scaling(self, head_dim: int) -> tuple[str, tuple[float, ...] | None]:
        factors = self._file.tensors.get(_FACTORS)
        if factors is not None:
            return "llama3", tuple(self._file.read(factors).dequantise().flatten().tolist())
        kind = self.get("rope.scaling.type", str, "none")
        if kind == "none":
            return "none", None
        if kind == "linear":
            return "linear", (self.get("rope.scaling.factor", float),) * (head_dim // 2)
        raise ModelError(
            f"{self._where}: RoPE scaling {kind!r} is not supported; supported: linear, llama3"
        )

    def _token_ids(self, *roles: str) -> list[int]:
        ids = (self._metadata.get(f"tokenizer.ggml.{role}_token_id") for role in roles)
        return [i for i in ids if isinstance(i, int)]
