"""A Hugging Face folder as a Checkpoint: config.json, safetensors, tokenizer.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError, safe_open

from engine.errors import ModelError
from engine.models.spec import FAMILIES, ModelSpec, scaling_divisors
from engine.models.weights import Checkpoint, TensorInfo
from engine.text.tokenizer import Tokenizer
from kernels.weights import FLOAT, RawWeight

T = TypeVar("T", int, float, bool, str)

INDEX = "model.safetensors.index.json"
_ENCODINGS = {name.upper() for name in FLOAT}


class HfCheckpoint(Checkpoint):
    def __init__(self, folder: Path) -> None:
        self.path = folder
        self._config = read_json(folder / "config.json")
        self._home: dict[str, Path] = {}
        self.tensors = {}
        for shard in _shards(folder):
            self._list(shard)
        self.spec = _Config(folder, self._config).spec(self.tensors)

    def _list(self, shard: Path) -> None:
        try:
            with safe_open(shard, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 (no iterator of its own)
                    part = file.get_slice(name)
                    info = TensorInfo(name, part.get_dtype(), tuple(part.get_shape()))
                    self._home[name], self.tensors[name] = shard, info
        except (SafetensorError, OSError) as error:
            raise ModelError(
                f"{shard}: not whole safetensors ({error}); fetch the file again"
            ) from error

    @property
    def files(self) -> list[Path]:
        return [self.path / "config.json", *sorted(set(self._home.values()))]

    def tokenizer(self) -> Tokenizer:
        return Tokenizer.from_folder(self.path)

    def read(self, info: TensorInfo) -> RawWeight:
        if info.encoding not in _ENCODINGS:
            raise ModelError(
                f"{self.path}: tensor {info.name} is {info.encoding}; "
                f"supported: {', '.join(sorted(_ENCODINGS))}"
            )
        try:
            with safe_open(self._home[info.name], framework="pt") as file:
                tensor = file.get_tensor(info.name)
        except (SafetensorError, OSError) as error:
            raise ModelError(f"{self._home[info.name]}: cannot be read ({error})") from error
        return RawWeight.dense(tensor.reshape(-1, tensor.shape[-1]))


def read_json(path: Path) -> dict[str, Any]:
    """An object, or ModelError in one line."""
    try:
        value = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise ModelError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path}: expected an object, got {type(value).__name__}")
    return value


def _shards(folder: Path) -> list[Path]:
    if (folder / INDEX).exists():
        names = read_json(folder / INDEX).get("weight_map")
        if not isinstance(names, dict) or not all(isinstance(n, str) for n in names.values()):
            raise ModelError(f"{folder / INDEX}: no weight_map of tensor name to file")
        shards = [folder / name for name in sorted(set(names.values()))]
    else:
        shards = sorted(folder.glob("*.safetensors"))
    if not shards:
        hint = " (pickle files are not read: convert them)" if list(folder.glob("*.bin")) else ""
        raise ModelError(f"{folder}: no safetensors files{hint}")
    for shard in shards:
        if not shard.is_file():
            raise ModelError(f"{shard}: missing, but {INDEX} names it; fetch the folder again")
    return shards


class _Config:
    """Typed reads of config.json."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self._folder, self._config = folder, config
        self._where = str(folder / "config.json")

    def get(self, key: str, kind: type[T], default: T | None = None) -> T:
        value: Any = self._config.get(key)
        value = default if value is None else value
        if kind is float and isinstance(value, int):
            value = float(value)
        if not isinstance(value, kind):
            problem = "is missing" if value is None else f"is {value!r}, not {kind.__name__}"
            raise ModelError(f"{self._where}: {key} {problem}")
        return value

    def table(self, key: str) -> dict[str, Any]:
        value = self._config.get(key) or {}
        if not isinstance(value, dict):
            raise ModelError(f"{self._where}: {key} is {value!r}, not an object")
        return value

    def spec(self, tensors: dict[str, TensorInfo]) -> ModelSpec:
        architecture = self._architecture()
        self._refuse_variants()
        hidden, heads = self.get("hidden_size", int), self.get("num_attention_heads", int)
        derived = 128 if architecture == "qwen3" else hidden // max(heads, 1)
        head_dim = self.get("head_dim", int, derived)
        rope = self.table("rope_parameters") or self.table("rope_scaling")
        theta = self.get("rope_theta", float, _number(rope.get("rope_theta"), 10_000.0))
        scaling, divisors = scaling_divisors(self._where, rope, theta, head_dim)
        bias = self.get("attention_bias", bool, False)
        return ModelSpec(
            name=self._folder.resolve().name,
            architecture=architecture,
            layers=self.get("num_hidden_layers", int),
            hidden=hidden,
            heads=heads,
            kv_heads=self.get("num_key_value_heads", int, heads),
            head_dim=head_dim,
            mlp=self.get("intermediate_size", int),
            vocab=self.get("vocab_size", int),
            max_positions=self._positions(),
            norm_eps=self.get("rms_norm_eps", float, 1e-6),
            rope_theta=theta,
            rope_scaling=scaling,
            rope_divisors=divisors,
            tied=self.get("tie_word_embeddings", bool, "lm_head.weight" not in tensors),
            qkv_bias=bias or architecture == "qwen2",
            out_bias=bias and architecture != "qwen2",
            qk_norm=architecture == "qwen3",
            bos=next(iter(sorted(_ids(self._config.get("bos_token_id")))), None),
            eos_ids=self._eos(),
        )

    def _architecture(self) -> str:
        kind = self._config.get("model_type")
        named = self._config.get("architectures") or [""]
        generates = str(named[0]).endswith("ForCausalLM") or not named[0]
        if kind not in FAMILIES or not generates:
            shown = named[0] or kind
            raise ModelError(
                f"{self._where}: architecture {shown!r} is not supported; "
                f"supported: {', '.join(FAMILIES)} for text generation"
            )
        return str(kind)

    def _refuse_variants(self) -> None:
        if self._config.get("quantization_config"):
            raise ModelError(
                f"{self._where}: weights quantised for other software; "
                "use the original folder or a GGUF file"
            )
        if self.get("hidden_act", str, "silu") != "silu":
            raise ModelError(f"{self._where}: hidden_act {self._config['hidden_act']!r}, not silu")
        if self.get("mlp_bias", bool, False):
            raise ModelError(f"{self._where}: biases in the MLP are not supported")
        if self.get("partial_rotary_factor", float, 1.0) != 1.0:
            raise ModelError(f"{self._where}: RoPE over a part of the head is not supported")

    def _positions(self) -> int:
        """Within a sliding window full attention is the same thing: it bounds the context."""
        positions = self.get("max_position_embeddings", int)
        by_default = self._config["model_type"] == "mistral"
        if self._config.get("sliding_window") and self.get("use_sliding_window", bool, by_default):
            return min(positions, self.get("sliding_window", int))
        return positions

    def _eos(self) -> frozenset[int]:
        path = self._folder / "generation_config.json"
        generation = read_json(path) if path.exists() else {}
        ids = _ids(generation.get("eos_token_id")) or _ids(self._config.get("eos_token_id"))
        return frozenset(ids)


def _ids(value: object) -> list[int]:
    """Configurations write one id, a list of ids, or null."""
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, int)]


def _number(value: object, default: float) -> float:
    return float(value) if isinstance(value, int | float) else default
