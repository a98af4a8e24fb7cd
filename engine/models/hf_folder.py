"""A Hugging Face folder as a Checkpoint: config.json, safetensors, tokenizer.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from engine.errors import ModelError
from engine.models.hf_config import HfConfig
from engine.models.keys import Keys
from engine.models.weights import Checkpoint, TensorInfo
from engine.text.tokenizer import Tokenizer
from kernels.weights import FLOAT, RawWeight

INDEX = "model.safetensors.index.json"
_ENCODINGS = {name.upper() for name in FLOAT}


class HfCheckpoint(Checkpoint):
    def __init__(self, folder: Path) -> None:
        self.path = folder
        self._home: dict[str, Path] = {}
        self.tensors = {}
        for shard in _shards(folder):
            self._list(shard)
        config = HfConfig(str(folder / "config.json"), read_json(folder / "config.json"))
        path = folder / "generation_config.json"
        generation = Keys(str(path), read_json(path) if path.exists() else {})
        name = folder.resolve().name
        self.spec, self.notes = config.spec(name, self.tensors.keys(), generation)

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
        return Tokenizer.from_folder(self.path, self.spec.eos_ids)

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
